package critpath

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// callees finds the span that answers each CLIENT span: a child that is a SERVER or belongs to another service, because
// not all instrumentations set kinds. A CONSUMER answers nobody. Of several, for example of a call that was repeated,
// it is the earliest, then the one with the smallest ID.
//
// The callee of a baseline span depends on baseline spans only, so that tracepoints do not change the steps of a path.
type callees struct {
	of []int32 // by span: its callee; -1 if there is none

	spans []trace.Span
	ids   *spanIDs
}

func (c *callees) reset(spans []trace.Span, ids *spanIDs) {
	c.spans, c.ids = spans, ids
	c.of = scratch.Filled(c.of, len(spans), -1)
}

// add adds a child of a CLIENT span.
func (c *callees) add(caller, child int32) {
	up, s := &c.spans[caller], &c.spans[child]
	answers := s.Kind == trace.Server || s.Kind != trace.Consumer && s.Service != up.Service
	if !answers || up.Tracepoint == 0 && s.Tracepoint != 0 {
		return
	}
	if known := c.of[caller]; known >= 0 {
		k := &c.spans[known]
		if cmp.Or(cmp.Compare(k.Start, s.Start), cmp.Compare(c.ids.id(known), c.ids.id(child))) < 0 {
			return
		}
	}
	c.of[caller] = child
}

// addParents adds, for each tracepoint span, the baseline spans of which it is the parent. They are children of their
// callers, not of their parents.
func (c *callees) addParents(caller, parent []int32) {
	for i, p := range parent {
		if p >= 0 && p != caller[i] && caller[i] != dropped && c.spans[p].Kind == trace.Client && c.spans[p].Tracepoint != 0 {
			c.add(p, int32(i))
		}
	}
}
