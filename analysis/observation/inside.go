package observation

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Inside stores in out the part of o that was spent in the baseline steps in operations, whatever called them: their
// own time, and the switched-on spans inside. Contexts start at these steps, so that requests of different types share
// them, and all own time of a step is one edge. Inside reports whether o spent time in any of these steps; if not, out
// is undefined. out shares no memory with o.
func (o *Observation) Inside(operations map[trace.Op]bool, out *Observation) bool {
	*out = Observation{
		Trace:    o.Trace,
		Root:     o.Root,
		Start:    o.Start,
		Failed:   o.Failed,
		Plan:     o.Plan,
		Arm:      o.Arm,
		Behind:   append(out.Behind[:0], o.Behind...),
		Contexts: out.Contexts[:0],
		Edges:    out.Edges[:0],
		Refined:  out.Refined[:0],
	}
	within := make(map[trace.Edge]trace.Edge) // edges of out by baseline edge of o; filled only if edges are refined
	for i := range o.Edges {
		e := &o.Edges[i]
		if at := o.inside(e.Context, operations); at != 0 {
			edge := trace.ContextEdge(at)
			if len(o.Refined) > 0 {
				within[e.Edge] = edge
			}
			out.Edges = append(out.Edges, EdgeTime{Edge: edge, Context: at, Nanos: e.Nanos})
			out.Duration += time.Duration(e.Nanos)
		}
	}
	if len(out.Edges) == 0 {
		return false
	}
	for i := range o.Refined {
		e := &o.Refined[i]
		if edge, in := within[e.Within]; in {
			if at := o.inside(e.Context, operations); at != 0 {
				out.Refined = append(out.Refined,
					EdgeTime{Edge: trace.ContextEdge(at), Context: at, Within: edge, Nanos: e.Nanos})
			}
		}
	}
	for i := range o.Contexts {
		if at := o.inside(o.Contexts[i].Context, operations); at != 0 {
			c := o.Contexts[i]
			parent := trace.Context(0)
			if c.Tracepoint != 0 {
				parent = o.inside(c.Parent, operations)
			}
			c.Context, c.Parent = at, parent
			out.Contexts = append(out.Contexts, c)
		}
	}
	out.join()
	return true
}

// inside returns the part of context that starts at the nearest baseline step, at or above its end. It returns 0 if o
// doesn't contain context, or if that step is not in operations.
func (o *Observation) inside(context trace.Context, operations map[trace.Op]bool) trace.Context {
	c := o.Context(context)
	switch {
	case c == nil:
		return 0
	case c.Tracepoint == 0:
		if operations[c.Step()] {
			return trace.Context(0).Child(c.Step())
		}
		return 0
	}
	above := o.inside(c.Parent, operations)
	if above == 0 {
		return 0
	}
	return above.Child(c.Step())
}

// join sorts the contexts and edges of o, and merges equal ones.
func (o *Observation) join() {
	slices.SortFunc(o.Contexts, func(a, b ContextCount) int { return cmp.Compare(a.Context, b.Context) })
	contexts := o.Contexts[:0]
	for _, c := range o.Contexts {
		if n := len(contexts); n > 0 && contexts[n-1].Context == c.Context {
			contexts[n-1].add(&c)
		} else {
			contexts = append(contexts, c)
		}
	}
	o.Contexts, o.Edges, o.Refined = contexts, compactEdges(o.Edges), compactEdges(o.Refined)
}

// add adds the counts and times of x to c.
func (c *ContextCount) add(x *ContextCount) {
	c.Count += x.Count
	c.Errors += x.Errors
	c.Unanswered += x.Unanswered
	c.Exclusive += x.Exclusive
	c.Self = saturated(c.Self, x.Self)
	c.Total = saturated(c.Total, x.Total)
}
