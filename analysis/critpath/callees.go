package critpath

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/trace"
)

// callees finds the span that answers each CLIENT span: a child that is a SERVER or belongs to another service, because
// not all instrumentations set kinds. A CONSUMER answers nobody. Of several, for example of a call that was repeated,
// it is the earliest, then the one with the smallest ID.
//
// The callee of a baseline span depends on baseline spans only, so that tracepoints do not change the steps of a path.
type callees struct {
	spans  []trace.Span
	ids    *spanIDs
	forest *forest

	ofTracepoints map[int32]int32 // by tracepoint span: the callee among the baseline spans of which it is the parent
}

// find prepares for the spans of another trace. The baseline spans below a tracepoint span are children of their
// callers, not of that span: they are found here, the others by [callees.of].
func (c *callees) find(spans []trace.Span, ids *spanIDs, forest *forest, caller, parent []int32) {
	c.spans, c.ids, c.forest = spans, ids, forest
	clear(c.ofTracepoints)
	for i, p := range parent {
		if p < 0 || p == caller[i] || caller[i] == dropped || spans[p].Kind != trace.Client || spans[p].Tracepoint == 0 || !c.answers(p, int32(i)) {
			continue
		}
		if c.ofTracepoints == nil {
			c.ofTracepoints = make(map[int32]int32)
		}
		known, ok := c.ofTracepoints[p]
		if !ok {
			known = -1
		}
		c.ofTracepoints[p] = c.earlier(known, int32(i))
	}
}

// of returns the callee of a CLIENT span; -1 if it has none.
func (c *callees) of(caller int32) int32 {
	callee := int32(-1)
	for i := c.forest.firstChild[caller]; i >= 0; i = c.forest.nextChild[i] {
		if c.answers(caller, i) {
			callee = c.earlier(callee, i)
		}
	}
	if len(c.ofTracepoints) > 0 {
		if i, ok := c.ofTracepoints[caller]; ok {
			callee = c.earlier(callee, i)
		}
	}
	return callee
}

// answers reports whether a child of a CLIENT span may answer it.
func (c *callees) answers(caller, child int32) bool {
	up, s := &c.spans[caller], &c.spans[child]
	return (s.Kind == trace.Server || s.Kind != trace.Consumer && s.Service != up.Service) && (up.Tracepoint != 0 || s.Tracepoint == 0)
}

// earlier returns the earlier of two answers; known is -1 if there is one only.
func (c *callees) earlier(known, i int32) int32 {
	if known >= 0 && cmp.Or(cmp.Compare(c.spans[known].Start, c.spans[i].Start), cmp.Compare(c.ids.id(known), c.ids.id(i))) < 0 {
		return known
	}
	return i
}
