package observation

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// Observation holds the contribution of one request, a usable root of a trace, to the statistics. It defines the
// contexts and edges that it names, so that a receiver needs only the dictionary of operations.
type Observation struct {
	Trace    trace.ID
	Root     trace.SpanID
	Start    trace.Nanos
	Duration time.Duration // in (0, trace.MaxDuration)
	Entry    trace.Op      // step of the root
	Failed   bool          // the root's status is an error

	Plan int64        // version of the plan that applied to the request; 0 means no plan, -1 unknown
	Arm  trace.Symbol // arm of that plan
	// Behind holds the services that had not yet applied that plan when the request reached them, so that their
	// tracepoints were off. It is ascending, and empty if there is no arm.
	Behind []trace.Symbol

	// Children holds the distinct steps of the root's baseline children, critical or not, ascending.
	Children []trace.Op
	// Contexts holds every calling context that the request executed, critical or not, ascending by Context.
	// Switched-on spans appear under their full context. The Parent of each context appears, too, unless it is above
	// the root, or above a joined span of another root, in which case it is in the observation of that root.
	Contexts []ContextCount
	// Edges holds the baseline edges with their times, ascending by Edge. The times are positive and add up to
	// Duration.
	Edges []EdgeTime
	// Refined holds the parts of the edges that switched-on spans refine, ascending by (Within, Edge). The parts of an
	// edge add up to its time. Refined is empty if no tracepoint was switched on.
	Refined []EdgeTime
	// Variables holds the requested attributes of the spans on the critical path, ascending by (Context, Key).
	// Attributes of switched-on spans appear under their full context.
	Variables []Variable
	// Skeleton is the 128-bit hash of the set of distinct baseline contexts on the critical path.
	Skeleton analysis.Hash
	Path     PathSums // sums whose hash is Skeleton; zero if unknown, as in saved samples
	// Shape is the result of [Observation.ComputeShape], or 0 if not computed. It is computed early, while contexts and
	// edges are in the processor's caches.
	Shape uint64
	// Records holds the numbers of the journal records that contain the spans of the trace, or nil if there is no
	// journal. Observe doesn't change it. Clones and saved observations lack it.
	Records []uint64
}

// ComputeShape returns a hash of the contexts and edges of o, without their counts and times.
func (o *Observation) ComputeShape() uint64 {
	const odd = 0x9e3779b97f4a7c15
	contexts, edges := uint64(len(o.Contexts)), uint64(len(o.Edges))
	for i := range o.Contexts {
		contexts = contexts*odd + uint64(o.Contexts[i].Context)
	}
	for i := range o.Edges {
		edges = edges*odd + uint64(o.Edges[i].Edge)
	}
	return trace.Mix(contexts, edges)
}

// ContextCount counts the executions of a calling context by a request, with their errors and times.
type ContextCount struct {
	Context, Parent trace.Context
	Op              trace.Op     // operation of the spans
	Target          trace.Op     // operation that they call (see [critpath.Path.Target]); 0 if unknown
	Peer            trace.Op     // the callee named by attributes, the largest if there are several; 0 if unknown
	Tracepoint      trace.Symbol // 0 for the baseline
	Count           int32        // spans
	Errors          int32        // spans with status error
	// Unanswered counts the baseline CLIENT spans that no span answers. Package group sets it to 0 if their callee
	// emits no spans.
	Unanswered int32
	// Exclusive is the time on the critical path in ns. For baseline spans, it is the time on the path over baseline
	// spans only, so that the times of all baseline contexts add up to the duration of the request. For switched-on
	// spans, it is the time on the refined path.
	Exclusive int64
	// Self is the time in ns that children do not cover, whether or not it is on the critical path, summed over the
	// spans. For a baseline span, only baseline children count.
	Self  int64
	Total int64 // ns from start to end, summed over the spans
}

// Step returns the last step of the context: its operation, with its target.
func (c *ContextCount) Step() trace.Op { return c.Op.To(c.Target) }

// EdgeTime is the time that a request spent in one edge of its critical path.
type EdgeTime struct {
	Edge          trace.Edge
	Context       trace.Context
	Before, After trace.Op   // steps
	Within        trace.Edge // for a refined edge, the baseline edge that contains it
	Nanos         int64
}

// compare orders by (Within, Edge).
func (e *EdgeTime) compare(o *EdgeTime) int {
	return cmp.Or(cmp.Compare(e.Within, o.Within), cmp.Compare(e.Edge, o.Edge))
}

// Variable is the value of an attribute in a calling context. It comes from the earliest span with this context on the
// critical path.
type Variable struct {
	Context trace.Context
	Key     trace.Symbol
	Text    trace.Symbol
	Number  float64
	Numeric bool
}

// compare orders by (Context, Key).
func (v *Variable) compare(o *Variable) int {
	return cmp.Or(cmp.Compare(v.Context, o.Context), cmp.Compare(v.Key, o.Key))
}

// Context returns the counts of context, or nil if o did not execute it.
func (o *Observation) Context(context trace.Context) *ContextCount {
	i, found := slices.BinarySearchFunc(o.Contexts, context, func(c ContextCount, x trace.Context) int {
		return cmp.Compare(c.Context, x)
	})
	if !found {
		return nil
	}
	return &o.Contexts[i]
}

// Edge returns the time of edge, or nil if it is not on o's critical path.
func (o *Observation) Edge(edge trace.Edge) *EdgeTime {
	i, found := slices.BinarySearchFunc(o.Edges, edge,
		func(x EdgeTime, e trace.Edge) int { return cmp.Compare(x.Edge, e) })
	if !found {
		return nil
	}
	return &o.Edges[i]
}

// Variable returns the variable of o with the given context and key, or nil if there is no such variable.
func (o *Observation) Variable(context trace.Context, key trace.Symbol) *Variable {
	i, found := slices.BinarySearchFunc(o.Variables, context, func(v Variable, x trace.Context) int {
		return cmp.Or(cmp.Compare(v.Context, x), cmp.Compare(v.Key, key))
	})
	if !found {
		return nil
	}
	return &o.Variables[i]
}

// Key returns a hash of the trace and the root of o. It identifies the request in samples.
func (o *Observation) Key() uint64 { return trace.Mix(o.Trace.Hash(), uint64(o.Root)) }

// EachVariable calls f for each variable of o whose key is in keys and whose context is baseline. keys must be
// ascending.
func (o *Observation) EachVariable(keys []trace.Symbol, f func(v *Variable)) {
	if len(keys) == 0 {
		return
	}
	for i := range o.Variables {
		v := &o.Variables[i]
		if _, ok := slices.BinarySearch(keys, v.Key); !ok {
			continue
		}
		if c := o.Context(v.Context); c != nil && c.Tracepoint == 0 {
			f(v)
		}
	}
}
