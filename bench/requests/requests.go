// Package requests makes observations for tests and benchmarks.
package requests

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/bench/fixtures/transfergen"
	"github.com/sibyl-trace/sibyl/trace"
)

// Plain returns a request of one type and group, with one edge.
func Plain(requestType, group int, start trace.Nanos, d time.Duration) *observation.Observation {
	entry := trace.Op(requestType + 1)
	ctx := trace.Context(0).Child(entry)
	return &observation.Observation{
		Trace: trace.ID{0: byte(start), 1: byte(start >> 8), 2: byte(start >> 16), 3: byte(start >> 24), 4: byte(start >> 32), 5: byte(d), 6: byte(d >> 8), 7: byte(d >> 16)},
		Root:  1, Start: start, Duration: d, Entry: entry, Skeleton: analysis.Hash{Hi: 1, Lo: uint64(group)},
		Contexts: []observation.ContextCount{{Context: ctx, Op: entry, Count: 1, Exclusive: int64(d), Self: int64(d), Total: int64(d)}},
		Edges:    []observation.EdgeTime{{Edge: trace.EdgeOf(ctx, 0, 0), Context: ctx, Nanos: int64(d)}},
	}
}

// benchEdges is how many edges design counts on in a group.
const benchEdges = 20

// Edged returns a request of group number group with benchEdges edges, of which its type has all.
func Edged(r *rand.Rand, requestType, group int) *observation.Observation {
	o := &observation.Observation{
		Trace: trace.ID{0: byte(group), 1: byte(group >> 8)}, Root: trace.SpanID(r.Uint64()),
		Start: trace.Nanos(r.Int64N(1e10)), Entry: trace.Op(requestType + 1), Skeleton: analysis.Hash{Hi: 7, Lo: uint64(group)},
	}
	root := trace.Context(0).Child(o.Entry)
	for i := range benchEdges {
		ns := 50_000 + r.Int64N(50_000)
		ctx, parent := root, trace.Context(0)
		if i > 0 {
			parent, ctx = root, root.Child(trace.Op(i))
		}
		o.Contexts = append(o.Contexts, observation.ContextCount{Context: ctx, Parent: parent, Op: trace.Op(i), Count: 1, Exclusive: ns, Self: ns, Total: ns})
		o.Edges = append(o.Edges, observation.EdgeTime{Edge: trace.EdgeOf(ctx, 0, 0), Context: ctx, Nanos: ns})
		o.Duration += time.Duration(ns)
	}
	Sort(o)
	return o
}

// Sort puts the contexts and edges of a request in order.
func Sort(o *observation.Observation) {
	slices.SortFunc(o.Contexts, func(a, b observation.ContextCount) int { return cmp.Compare(a.Context, b.Context) })
	slices.SortFunc(o.Edges, func(a, b observation.EdgeTime) int { return cmp.Compare(a.Edge, b.Edge) })
}

// Random returns requests of two types and a few groups.
func Random(seed uint64, n int) (all []*observation.Observation) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range n {
		o := Edged(r, r.IntN(2), r.IntN(3))
		o.Trace = trace.ID{0: byte(i), 1: byte(i >> 8), 15: 1}
		all = append(all, o)
	}
	return all
}

// The attribute with the size of the requests that Sized returns, and their entry.
const (
	BodySize   = "http.response.body.size"
	SizedEntry = "shop GET" // of the requests that sized returns
)

// Sized returns a request of one type and group that transfers some bytes.
func Sized(i int, start trace.Nanos, t transfergen.Transfer) *observation.Observation {
	entry := trace.OpOf(trace.SymbolOf([]byte("shop")), trace.SymbolOf([]byte("GET")), trace.Server)
	o := Plain(int(entry)-1, 1, start, t.Latency)
	o.Trace = trace.ID{0: byte(i), 1: byte(i >> 8), 2: byte(i >> 16), 15: 1}
	o.Variables = []observation.Variable{{Context: o.Contexts[0].Context, Key: trace.SymbolOf([]byte(BodySize)), Number: float64(t.Size), Numeric: true}}
	return o
}

// Network is one where all is well: durations vary because sizes do.
func Network() transfergen.Options {
	o := transfergen.Draw(1, 20)
	o.Delayed, o.TimedOut = 0, 0
	return o
}

// World makes observations of requests GET → db, cache.
type World struct {
	*rand.Rand
	Table    *trace.Table
	Get      trace.Context
	ops      [3]trace.Op // GET, db, cache
	Requests []*observation.Observation
}

// NewWorld returns a world without requests.
func NewWorld() *World {
	w := &World{Rand: rand.New(rand.NewPCG(1, 1)), Table: &trace.Table{}}
	for i, service := range []string{"shop", "db", "cache"} {
		w.ops[i] = w.Table.Op(w.Table.Symbol(service), w.Table.Symbol([]string{"GET", "select", "read"}[i]), trace.Server)
	}
	w.Get = w.Table.Child(0, w.ops[0])
	return w
}

// Request adds a request that spends the given times (ms) in GET, db and cache; 0: not executed.
func (w *World) Request(ms ...float64) *observation.Observation {
	o := &observation.Observation{Root: trace.SpanID(w.Uint64() | 1), Start: trace.Nanos(len(w.Requests)) * 1e8, Entry: w.ops[0]}
	for i, t := range ms {
		if t == 0 {
			continue
		}
		context, parent, nanos := w.Get, trace.Context(0), int64(t*1e6)
		if i > 0 {
			context, parent = w.Table.Child(w.Get, w.ops[i]), w.Get
		}
		o.Contexts = append(o.Contexts, observation.ContextCount{Context: context, Parent: parent, Op: w.ops[i], Count: 1, Exclusive: nanos})
		o.Edges = append(o.Edges, observation.EdgeTime{Edge: trace.EdgeOf(context, 0, 0), Context: context, Nanos: nanos})
		o.Duration += time.Duration(nanos)
	}
	slices.SortFunc(o.Contexts, func(a, b observation.ContextCount) int { return cmp.Compare(a.Context, b.Context) })
	slices.SortFunc(o.Edges, func(a, b observation.EdgeTime) int { return cmp.Compare(a.Edge, b.Edge) })
	o.Skeleton = analysis.HashOf(uint64(len(o.Contexts)))
	w.Requests = append(w.Requests, o)
	return o
}

// Text gives a request an attribute at its entry.
func (w *World) Text(o *observation.Observation, key, value string) {
	o.Variables = append(o.Variables, observation.Variable{Context: w.Get, Key: w.Table.Symbol(key), Text: w.Table.Symbol(value)})
}

// Heavy returns a heavy-tailed factor with median 1.
func (w *World) Heavy(sigma float64) float64 { return math.Exp(sigma * w.NormFloat64()) }

// Shop are requests of one entry operation, a third with a read of the cache, of two tiers.
func Shop() *World {
	w := NewWorld()
	for i := range 240 {
		cache := 0.0
		if i%3 == 0 {
			cache = 30 * w.Heavy(0.1)
		}
		o := w.Request(5*w.Heavy(0.1), 10*w.Heavy(0.1), cache)
		o.Skeleton = analysis.Hash{Hi: 1, Lo: uint64(i % 3 / 2)}
		w.Text(o, "tier", []string{"free", "team"}[i%2])
	}
	return w
}

// Observe returns the observations of all usable roots of t.
func Observe(t *trace.Trace) (all []*observation.Observation) {
	p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(t)
	var observer observation.Observer
	for i := range p.Roots {
		if p.Unusable(i) == "" {
			var o observation.Observation
			observer.Observe(p, i, &o)
			all = append(all, &o)
		}
	}
	return all
}
