package analysis

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// world makes observations of requests GET → db, cache.
type world struct {
	*rand.Rand
	table    *trace.Table
	get      trace.Context
	ops      [3]trace.Op // GET, db, cache
	requests []*Observation
}

func newWorld() *world {
	w := &world{Rand: rand.New(rand.NewPCG(1, 1)), table: &trace.Table{}}
	for i, service := range []string{"shop", "db", "cache"} {
		w.ops[i] = w.table.Op(w.table.Symbol(service), w.table.Symbol([]string{"GET", "select", "read"}[i]), trace.Server)
	}
	w.get = w.table.Child(0, w.ops[0])
	return w
}

// request adds a request that spends the given times (ms) in GET, db and cache; 0: not executed.
func (w *world) request(ms ...float64) *Observation {
	o := &Observation{Root: trace.SpanID(w.Uint64() | 1), Start: trace.Nanos(len(w.requests)) * 1e8, Entry: w.ops[0]}
	for i, t := range ms {
		if t == 0 {
			continue
		}
		context, parent, nanos := w.get, trace.Context(0), int64(t*1e6)
		if i > 0 {
			context, parent = w.table.Child(w.get, w.ops[i]), w.get
		}
		o.Contexts = append(o.Contexts, ContextCount{Context: context, Parent: parent, Op: w.ops[i], Count: 1, Exclusive: nanos})
		o.Edges = append(o.Edges, EdgeTime{Edge: trace.EdgeOf(context, 0, 0), Context: context, Nanos: nanos})
		o.Duration += time.Duration(nanos)
	}
	slices.SortFunc(o.Contexts, func(a, b ContextCount) int { return cmp.Compare(a.Context, b.Context) })
	slices.SortFunc(o.Edges, func(a, b EdgeTime) int { return cmp.Compare(a.Edge, b.Edge) })
	o.Skeleton = HashOf(uint64(len(o.Contexts)))
	w.requests = append(w.requests, o)
	return o
}

func (w *world) text(o *Observation, key, value string) {
	o.Variables = append(o.Variables, Variable{Context: w.get, Key: w.table.Symbol(key), Text: w.table.Symbol(value)})
}

// heavy returns a heavy-tailed factor with median 1.
func (w *world) heavy(sigma float64) float64 { return math.Exp(sigma * w.NormFloat64()) }
