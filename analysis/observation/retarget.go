package observation

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// PathSums are sums over the distinct baseline contexts on a critical path. The hash of the sums is the skeleton of the
// path. Sums make it possible to replace a single context.
type PathSums struct{ Hi, Lo, N uint64 }

func (s *PathSums) add(c trace.Context) {
	s.Hi += trace.Mix(uint64(c), 1) // sums don't depend on the order
	s.Lo += trace.Mix(skeletonLow, uint64(c))
	s.N++
}

func (s *PathSums) remove(c trace.Context) {
	s.Hi -= trace.Mix(uint64(c), 1)
	s.Lo -= trace.Mix(skeletonLow, uint64(c))
	s.N--
}

// Skeleton returns the skeleton of the path: the hash of its set of contexts.
func (s *PathSums) Skeleton() analysis.Hash { return analysis.HashOf(s.Hi, s.Lo, s.N) }

// Answered reports whether all calls in the context were answered by spans.
func (c *ContextCount) Answered() bool {
	return c.Target != 0 && c.Target != c.Peer && c.Unanswered == 0
}

// Retarget sets the target of the unanswered calls in o.Contexts[i], which still count as unanswered. It changes
// nothing and returns false if the context is the entry of the request, or if there are spans below the calls.
func (o *Observation) Retarget(i int, target trace.Op) bool {
	c := o.Contexts[i]
	isChild := func(below ContextCount) bool { return below.Parent == c.Context }
	if c.Parent == 0 || slices.ContainsFunc(o.Contexts, isChild) {
		return false
	}
	r := replacement{parent: c.Parent, old: c.Context, oldStep: c.Step()}
	c.Target = target
	r.step = c.Step()
	r.context = c.Parent.Child(r.step)
	onPath, known := o.onPath(r.old), o.onPath(r.context)
	c.Context = r.context
	o.Contexts = slices.Delete(o.Contexts, i, i+1)
	o.addCount(c)
	r.edges(o)
	for k := range o.Variables {
		if v := &o.Variables[k]; v.Context == r.old {
			v.Context = r.context
		}
	}
	slices.SortStableFunc(o.Variables, func(a, b Variable) int { return a.compare(&b) })
	o.Variables = slices.CompactFunc(o.Variables, func(a, b Variable) bool { return a.compare(&b) == 0 })
	if c.Parent == trace.Context(0).Child(o.Entry) {
		o.renameChild(r.oldStep, r.step)
	}
	if onPath && o.Path.N > 0 {
		o.Path.remove(r.old)
		if !known {
			o.Path.add(r.context)
		}
		o.Skeleton = o.Path.Skeleton()
	}
	o.Shape = o.ComputeShape()
	return true
}

// onPath reports whether c, which must have no children, is on the critical path.
func (o *Observation) onPath(c trace.Context) bool {
	return slices.ContainsFunc(o.Edges, func(e EdgeTime) bool { return e.Context == c })
}

// addCount adds c to o.Contexts. If the context is already there, it adds up the counts and times.
func (o *Observation) addCount(c ContextCount) {
	i, found := slices.BinarySearchFunc(o.Contexts, c.Context, func(a ContextCount, x trace.Context) int {
		return cmp.Compare(a.Context, x)
	})
	if !found {
		o.Contexts = slices.Insert(o.Contexts, i, c)
		return
	}
	o.Contexts[i].add(&c)
}

// renameChild replaces old with step among the children of the root. No other child has the step old, because the
// contexts below the root differ in their steps.
func (o *Observation) renameChild(old, step trace.Op) {
	if i, found := slices.BinarySearch(o.Children, old); found {
		o.Children[i] = step
		slices.Sort(o.Children)
		o.Children = slices.Compact(o.Children)
	}
}

// replacement replaces the context and the step of a call.
type replacement struct {
	parent, old, context trace.Context
	oldStep, step        trace.Op
}

// edges replaces the call in the edges of o.
func (r *replacement) edges(o *Observation) {
	within := make(map[trace.Edge]trace.Edge) // new edges, by old edge
	for i := range o.Edges {
		e := &o.Edges[i]
		was := e.Edge
		r.edge(e, e.Context == r.parent)
		if e.Edge != was {
			within[was] = e.Edge
		}
	}
	o.Edges = compactEdges(o.Edges)
	for i := range o.Refined {
		e := &o.Refined[i]
		now, found := within[e.Within]
		r.edge(e, found || e.Context == r.parent)
		if found {
			e.Within = now
		}
	}
	o.Refined = compactEdges(o.Refined)
}

// edge replaces the call in e. neighbour means that e may be next to the call.
func (r *replacement) edge(e *EdgeTime, neighbour bool) {
	if e.Context == r.old {
		e.Context = r.context
	} else if neighbour {
		if e.Before == r.oldStep {
			e.Before = r.step
		}
		if e.After == r.oldStep {
			e.After = r.step
		}
	}
	e.Edge = trace.EdgeOf(e.Context, e.Before, e.After)
}
