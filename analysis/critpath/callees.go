package critpath

import "github.com/sibyl-trace/sibyl/trace"

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
// callers, not of that span: they are found here, the others by [layout.addChildren].
func (c *callees) find(spans []trace.Span, ids *spanIDs, forest *forest, caller, parent []int32) {
	c.spans, c.ids, c.forest = spans, ids, forest
	clear(c.ofTracepoints)
	for i, p := range parent {
		if p < 0 || p == caller[i] || caller[i] == dropped || spans[p].Kind != trace.Client || spans[p].Tracepoint == 0 || !c.answers(p, &spans[i]) {
			continue
		}
		if c.ofTracepoints == nil {
			c.ofTracepoints = make(map[int32]int32)
		}
		if known, ok := c.ofTracepoints[p]; !ok || c.before(int32(i), known) {
			c.ofTracepoints[p] = int32(i)
		}
	}
}

// answers reports whether s, a child of the CLIENT span caller, may answer it.
func (c *callees) answers(caller int32, s *trace.Span) bool {
	up := &c.spans[caller]
	return (s.Kind == trace.Server || s.Kind != trace.Consumer && s.Service != up.Service) && (up.Tracepoint != 0 || s.Tracepoint == 0)
}

// before reports whether span i answers before span k.
func (c *callees) before(i, k int32) bool {
	if a, b := c.spans[i].Start, c.spans[k].Start; a != b {
		return a < b
	}
	return c.ids.id(i) < c.ids.id(k)
}

// target returns the operation that span i calls: that of its callee or, without an answer, the one that its attributes
// name. The callee comes first, because addresses are often those of proxies or of single replicas.
func target(spans []trace.Span, i, callee int32) trace.Op {
	if callee >= 0 {
		return spans[callee].Op
	}
	return spans[i].Peer
}
