package critpath

import (
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// callees finds the span that answers each CLIENT span: a child that is a SERVER span or, because not all
// instrumentations set kinds, belongs to another service. A CONSUMER span never answers. If there are several
// candidates, as for a retried call, the earliest one answers, or the one with the smallest ID if several start at the
// same time.
//
// Spans of services to see through, such as sidecars, never answer. The spans below them are candidates in their place.
//
// The callee of a baseline span depends only on baseline spans, so that tracepoints don't change the steps of a path.
type callees struct {
	spans  []trace.Span
	ids    *spanIDs
	forest *forest

	seeThrough []trace.Symbol // from Options

	// elsewhere holds, by CLIENT span, the callees that are not below their caller in the forest: baseline spans whose
	// parent is a tracepoint span, and spans that were moved or detached.
	elsewhere map[int32]int32
}

// find resets c for the spans of another trace, and finds the callees of CLIENT spans that are tracepoints. These need
// special treatment, because in the forest, baseline spans below a tracepoint span are children of its nearest baseline
// ancestor. [layout.addChildren] finds the other callees.
func (c *callees) find(spans []trace.Span, ids *spanIDs, forest *forest, caller, parent []int32) {
	c.spans, c.ids, c.forest = spans, ids, forest
	clear(c.elsewhere)
	for i, p := range parent {
		if p < 0 || p == caller[i] || caller[i] == dropped || spans[p].Kind != trace.Client ||
			spans[p].Tracepoint == 0 {
			continue
		}
		if a := c.answer(p, int32(i)); a >= 0 {
			c.addAnswer(answer{p, a})
		}
	}
}

// answer is a CLIENT span and a span that answers it.
type answer struct{ client, callee int32 }

// add adds answers that are not below their caller in the forest. find must be called first.
func (c *callees) add(answers []answer) {
	for _, a := range answers {
		c.addAnswer(a)
	}
}

func (c *callees) addAnswer(a answer) {
	if c.elsewhere == nil {
		c.elsewhere = make(map[int32]int32)
	}
	if known, ok := c.elsewhere[a.client]; !ok || c.before(a.callee, known) {
		c.elsewhere[a.client] = a.callee
	}
}

// answers reports whether s, a child of the CLIENT span caller, may answer it.
func (c *callees) answers(caller int32, s *trace.Span) bool {
	up := &c.spans[caller]
	return (s.Kind == trace.Server || s.Kind != trace.Consumer && s.Service != up.Service) &&
		(up.Tracepoint != 0 || s.Tracepoint == 0)
}

// answer returns the span that answers the CLIENT span caller: its child i, or a span behind that child. It returns -1
// if neither answers.
func (c *callees) answer(caller, i int32) int32 {
	if len(c.seeThrough) > 0 {
		return c.behind(caller, i, maxProxies)
	}
	if c.answers(caller, &c.spans[i]) {
		return i
	}
	return -1
}

// maxProxies is the maximum number of proxy spans between a call and its answer. It bounds the time spent on chains of
// such spans.
const maxProxies = 16

// behind is like answer, but looks behind the spans of services in seeThrough. proxies is the maximum length of a chain
// of such spans.
func (c *callees) behind(caller, i int32, proxies int) int32 {
	s := &c.spans[i]
	if !slices.Contains(c.seeThrough, s.Service) {
		if c.answers(caller, s) {
			return i
		}
		return -1
	}
	callee := int32(-1)
	if proxies == 0 {
		return callee
	}
	for k := c.forest.firstChild[i]; k >= 0; k = c.forest.nextChild[k] {
		if answer := c.behind(caller, k, proxies-1); answer >= 0 && (callee < 0 || c.before(answer, callee)) {
			callee = answer
		}
	}
	return callee
}

// before reports whether span i is preferred to span k as an answer: it starts earlier or, at the same time, has the
// smaller ID.
func (c *callees) before(i, k int32) bool {
	if a, b := c.spans[i].Start, c.spans[k].Start; a != b {
		return a < b
	}
	return c.ids.id(i) < c.ids.id(k)
}

// target returns the operation that span i calls: the operation of callee or, if callee is negative, the peer that the
// attributes of span i name, or 0 if they name no peer. The callee takes precedence, because addresses often belong to
// proxies or single replicas.
func target(spans []trace.Span, i, callee int32) trace.Op {
	if callee >= 0 {
		return spans[callee].Op
	}
	return spans[i].Peer
}
