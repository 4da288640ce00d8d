package observation

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// Observation is what one request (one root of one complete trace) contributes to the statistics. It carries the
// definitions of the contexts and edges it names, so that whoever receives it needs no dictionary but that of operations.
type Observation struct {
	Trace    trace.ID
	Root     trace.SpanID
	Start    trace.Nanos
	Duration time.Duration // in (0, trace.MaxDuration)
	Entry    trace.Op      // operation of the root
	Failed   bool          // the root's status is an error

	Plan int64        // version of the plan that applied to the request; 0: none, -1: not said
	Arm  trace.Symbol // arm of that plan

	// Children holds the distinct operations of the root's baseline children, critical or not, in ascending order.
	Children []trace.Op
	// Contexts holds every calling context that the request executed, critical or not, ascending by Context. Switched-on
	// spans are in it under their full context. The Parent of each is in it too, except above the root and above a span of
	// another root that was joined (it is in that root's observation).
	Contexts []ContextCount
	// Edges holds the baseline edges with their times, ascending by Edge. The times are above 0 and add up to Duration.
	Edges []EdgeTime
	// Refined holds the parts of the edges that switched-on spans refine, ascending by (Within, Edge). The parts of an edge
	// add up to its time. Empty where nothing was switched on.
	Refined []EdgeTime
	// Variables holds the attributes that were asked for of the spans on the critical path (switched-on ones under their
	// full context), ascending by (Context, Key).
	Variables []Variable
	// Skeleton is the 128-bit hash of the set of distinct baseline contexts on the critical path.
	Skeleton analysis.Hash
	// Shape is a hash of the contexts and edges with their callees, made while these are in the processor's caches. 0: not made.
	Shape uint64
}

// ComputeShape returns the value of Shape.
func (o *Observation) ComputeShape() uint64 {
	const odd = 0x9e3779b97f4a7c15
	contexts, edges := uint64(len(o.Contexts)), uint64(len(o.Edges))
	for i := range o.Contexts {
		contexts = contexts*odd + uint64(o.Contexts[i].Context)
	}
	for i := range o.Edges {
		edges = edges*odd + (uint64(o.Edges[i].Edge) ^ uint64(o.Edges[i].Callee))
	}
	return trace.Mix(contexts, edges)
}

// ContextCount says how often a request executed a calling context, and how that went.
type ContextCount struct {
	Context, Parent trace.Context
	Op              trace.Op
	Tracepoint      trace.Symbol // 0: baseline
	Count           int32        // spans
	Errors          int32        // spans with status error
	// Exclusive is ns on the critical path: for baseline spans on that over baseline spans only, so that those of all
	// baseline contexts add up to the request's duration; for switched-on spans on the refined one.
	Exclusive int64
	// Self is ns not covered by children, on the critical path or not, summed over the spans. Only baseline children count
	// for a baseline span.
	Self  int64
	Total int64 // ns from start to end, summed over the spans
}

// EdgeTime is the time that a request spent in one edge of its critical path.
type EdgeTime struct {
	Edge          trace.Edge
	Context       trace.Context
	Before, After trace.Op
	// Callee is, for an edge of a CLIENT span whose SERVER child is known, the operation of that child: the edge is time on the
	// wire or in the callee's queue, named caller → callee. Else 0.
	Callee trace.Op
	Within trace.Edge // for a refined edge the baseline edge that it is a part of
	Nanos  int64
}

// compare orders by (Within, Edge).
func (e *EdgeTime) compare(o *EdgeTime) int {
	return cmp.Or(cmp.Compare(e.Within, o.Within), cmp.Compare(e.Edge, o.Edge))
}

// Variable is the value of an attribute at a place: of the earliest span with that calling context on the critical path.
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

// Context returns what o says of a calling context; nil if it did not execute it.
func (o *Observation) Context(context trace.Context) *ContextCount {
	i, found := slices.BinarySearchFunc(o.Contexts, context, func(c ContextCount, x trace.Context) int { return cmp.Compare(c.Context, x) })
	if !found {
		return nil
	}
	return &o.Contexts[i]
}

// Variable returns the value of an attribute at a place; nil if it has none there.
func (o *Observation) Variable(context trace.Context, key trace.Symbol) *Variable {
	i, found := slices.BinarySearchFunc(o.Variables, context, func(v Variable, x trace.Context) int {
		return cmp.Or(cmp.Compare(v.Context, x), cmp.Compare(v.Key, key))
	})
	if !found {
		return nil
	}
	return &o.Variables[i]
}

// Key identifies the request in samples: well-mixed bits of its trace and root.
func (o *Observation) Key() uint64 { return trace.Mix(o.Trace.Hash(), uint64(o.Root)) }

// EachVariable calls f with the values of the attributes with the given keys, ascending, at the baseline places of o's path.
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
