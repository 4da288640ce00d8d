// Package requests generates observations for tests and benchmarks.
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
	"github.com/sibyl-trace/sibyl/internal/testkit/transfergen"
	"github.com/sibyl-trace/sibyl/trace"
)

// Plain returns a request with one edge. requestType and group are the numbers of the request's type and group.
func Plain(requestType, group int, start trace.Nanos, d time.Duration) *observation.Observation {
	entry := trace.Op(requestType + 1)
	ctx := trace.Context(0).Child(entry)
	return &observation.Observation{
		Trace: trace.ID{
			0: byte(start), 1: byte(start >> 8), 2: byte(start >> 16), 3: byte(start >> 24),
			4: byte(start >> 32), 5: byte(d), 6: byte(d >> 8), 7: byte(d >> 16),
		},
		Root:     1,
		Start:    start,
		Duration: d,
		Entry:    entry,
		Skeleton: analysis.Hash{Hi: 1, Lo: uint64(group)},
		Contexts: []observation.ContextCount{{
			Context:   ctx,
			Op:        entry,
			Count:     1,
			Exclusive: int64(d),
			Self:      int64(d),
			Total:     int64(d),
		}},
		Edges: []observation.EdgeTime{{Edge: trace.EdgeOf(ctx, 0, 0), Context: ctx, Nanos: int64(d)}},
	}
}

// benchEdges is the number of edges of a typical group.
const benchEdges = 20

// Edged returns a request with benchEdges edges. requestType and group are the numbers of the request's type and group.
// Groups of a type share their edges.
func Edged(r *rand.Rand, requestType, group int) *observation.Observation {
	o := &observation.Observation{
		Trace:    trace.ID{0: byte(group), 1: byte(group >> 8)},
		Root:     trace.SpanID(r.Uint64()),
		Start:    trace.Nanos(r.Int64N(1e10)),
		Entry:    trace.Op(requestType + 1),
		Skeleton: analysis.Hash{Hi: 7, Lo: uint64(group)},
	}
	root := trace.Context(0).Child(o.Entry)
	for i := range benchEdges {
		ns := 50_000 + r.Int64N(50_000)
		ctx, parent := root, trace.Context(0)
		if i > 0 {
			parent, ctx = root, root.Child(trace.Op(i))
		}
		o.Contexts = append(o.Contexts, observation.ContextCount{
			Context:   ctx,
			Parent:    parent,
			Op:        trace.Op(i),
			Count:     1,
			Exclusive: ns,
			Self:      ns,
			Total:     ns,
		})
		o.Edges = append(o.Edges, observation.EdgeTime{Edge: trace.EdgeOf(ctx, 0, 0), Context: ctx, Nanos: ns})
		o.Duration += time.Duration(ns)
	}
	Sort(o)
	return o
}

// Sort sorts the contexts and edges of o, as [observation.Observer] does.
func Sort(o *observation.Observation) {
	slices.SortFunc(o.Contexts, func(a, b observation.ContextCount) int { return cmp.Compare(a.Context, b.Context) })
	slices.SortFunc(o.Edges, func(a, b observation.EdgeTime) int { return cmp.Compare(a.Edge, b.Edge) })
}

// Random returns n requests of two types with three groups each.
func Random(seed uint64, n int) (all []*observation.Observation) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range n {
		o := Edged(r, r.IntN(2), r.IntN(3))
		o.Trace = trace.ID{0: byte(i), 1: byte(i >> 8), 15: 1}
		all = append(all, o)
	}
	return all
}

// Attribute key and entry of the requests that [Sized] returns.
const (
	BodySize   = "http.response.body.size"
	SizedEntry = "shop GET"
)

// Sized returns request i, of a fixed type and group, with the size and latency of t.
func Sized(i int, start trace.Nanos, t transfergen.Transfer) *observation.Observation {
	entry := trace.OpOf(trace.SymbolOf([]byte("shop")), trace.SymbolOf([]byte("GET")), trace.Server)
	o := Plain(int(entry)-1, 1, start, t.Latency)
	o.Trace = trace.ID{0: byte(i), 1: byte(i >> 8), 2: byte(i >> 16), 15: 1}
	o.Variables = []observation.Variable{{
		Context: o.Contexts[0].Context,
		Key:     trace.SymbolOf([]byte(BodySize)),
		Number:  float64(t.Size),
		Numeric: true,
	}}
	return o
}

// Network returns the options of a network without delays and timeouts. Durations vary only because sizes do.
func Network() transfergen.Options {
	o := transfergen.Draw(1, 20)
	o.Delayed, o.TimedOut = 0, 0
	return o
}

// Builder generates observations of requests to a service shop, which calls the services db and cache.
type Builder struct {
	*rand.Rand
	Table    *trace.Table
	Get      trace.Context
	ops      [3]trace.Op // GET, db, cache
	Requests []*observation.Observation
}

// NewBuilder returns a builder without requests.
func NewBuilder() *Builder {
	b := &Builder{Rand: rand.New(rand.NewPCG(1, 1)), Table: &trace.Table{}}
	for i, service := range []string{"shop", "db", "cache"} {
		b.ops[i] = b.Table.Op(b.Table.Symbol(service), b.Table.Symbol([]string{"GET", "select", "read"}[i]),
			trace.Server)
	}
	b.Get = b.Table.Child(0, b.ops[0])
	return b
}

// Request adds a request that spends the given milliseconds in GET, db and cache. It does not call a service whose
// time is 0.
func (b *Builder) Request(ms ...float64) *observation.Observation {
	o := &observation.Observation{
		Root:  trace.SpanID(b.Uint64() | 1),
		Start: trace.Nanos(len(b.Requests)) * 1e8,
		Entry: b.ops[0],
	}
	for i, t := range ms {
		if t == 0 {
			continue
		}
		context, parent, nanos := b.Get, trace.Context(0), int64(t*1e6)
		if i > 0 {
			context, parent = b.Table.Child(b.Get, b.ops[i]), b.Get
		}
		o.Contexts = append(o.Contexts, observation.ContextCount{
			Context:   context,
			Parent:    parent,
			Op:        b.ops[i],
			Count:     1,
			Exclusive: nanos,
		})
		o.Edges = append(o.Edges,
			observation.EdgeTime{Edge: trace.EdgeOf(context, 0, 0), Context: context, Nanos: nanos})
		o.Duration += time.Duration(nanos)
	}
	Sort(o)
	o.Skeleton = analysis.HashOf(uint64(len(o.Contexts)))
	b.Requests = append(b.Requests, o)
	return o
}

// Text adds a text attribute to the entry of a request.
func (b *Builder) Text(o *observation.Observation, key, value string) {
	o.Variables = append(o.Variables,
		observation.Variable{Context: b.Get, Key: b.Table.Symbol(key), Text: b.Table.Symbol(value)})
}

// Heavy returns a log-normal factor with median 1.
func (b *Builder) Heavy(sigma float64) float64 { return math.Exp(sigma * b.NormFloat64()) }

// Shop returns a builder with requests of two tiers. A third of them call the cache.
func Shop() *Builder {
	b := NewBuilder()
	for i := range 240 {
		cache := 0.0
		if i%3 == 0 {
			cache = 30 * b.Heavy(0.1)
		}
		o := b.Request(5*b.Heavy(0.1), 10*b.Heavy(0.1), cache)
		o.Skeleton = analysis.Hash{Hi: 1, Lo: uint64(i % 3 / 2)}
		b.Text(o, "tier", []string{"free", "team"}[i%2])
	}
	return b
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
