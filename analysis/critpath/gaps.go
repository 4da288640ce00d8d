package critpath

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// CalleeMissing is the Callee of a CLIENT node that called a hop without spans, if spans from below the hop have
// arrived.
const CalleeMissing int32 = -3

// gaps finds the CLIENT spans that called the roots whose parent is missing.
type gaps struct {
	calls []int32 // scratch: unanswered baseline CLIENT nodes
	tops  []int32 // scratch: nodes of the roots whose parent is missing
}

// maxGapCalls is the maximum number of calls, the earliest ones, among which we look for the call of a missing hop, and
// the maximum number of roots that we check for being below each other. It bounds the time per root.
const maxGapCalls = 256

// find sets Root.Gap of the roots of l, and Node.Callee of the calls found.
//
// The call of a root is the shortest unanswered call whose interval contains the root, and the latest one if several
// are equally short. If another root whose parent is missing lies between the two, the call is unknown, because the
// missing span is then below that other root. If no call contains the root, because clocks differ, it is the only
// unanswered call that takes at least as long as the root. Calls below another missing span don't count in that case,
// because two such roots could each name the other.
func (g *gaps) find(l *layout) {
	roots := l.roots
	for i := range roots {
		roots[i].Gap = -1
	}
	if len(roots) < 2 || !slices.ContainsFunc(roots, func(r Root) bool { return r.Origin == BelowMissing }) {
		return
	}
	g.collect(l)
	g.tops = g.tops[:0]
	for i := range roots {
		if r := &roots[i]; r.Origin == BelowMissing && len(g.tops) < maxGapCalls {
			g.tops = append(g.tops, r.Node)
		}
	}
	for i := range roots {
		if r := &roots[i]; r.Origin == BelowMissing {
			r.Gap = g.call(l, int32(i))
		}
	}
	for i := range roots {
		if c := roots[i].Gap; c >= 0 {
			l.nodes[c].Callee = CalleeMissing
		}
	}
}

// collect fills g.calls with the unanswered baseline CLIENT nodes of l, at most the first maxGapCalls by start.
func (g *gaps) collect(l *layout) {
	g.calls = g.calls[:0]
	for i := range l.nodes {
		n := &l.nodes[i]
		if s := &l.spans[n.Span]; s.Kind == trace.Client && s.Tracepoint == 0 && n.Callee < 0 && n.Root >= 0 {
			g.calls = append(g.calls, int32(i))
		}
	}
	if len(g.calls) > maxGapCalls {
		slices.SortFunc(g.calls, func(i, k int32) int {
			a, b := &l.nodes[i], &l.nodes[k]
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID))
		})
		g.calls = g.calls[:maxGapCalls]
	}
}

// call returns the node of the call that led to root number root, or -1 if it is unknown.
func (g *gaps) call(l *layout, root int32) int32 {
	top := &l.nodes[l.roots[root].Node]
	best, only, others := int32(-1), int32(-1), 0
	for _, i := range g.calls {
		n := &l.nodes[i]
		if n.Root == root {
			continue
		}
		if l.roots[n.Root].Origin != BelowMissing && n.End-n.Start >= top.End-top.Start {
			only = i
			others++
		}
		if n.contains(top) && (best < 0 || tighter(n, &l.nodes[best])) {
			best = i
		}
	}
	switch {
	case best < 0 && others == 1:
		return only
	case best >= 0 && g.below(l, top, &l.nodes[best]):
		return -1
	}
	return best
}

// below reports whether top is inside another root whose parent is missing, and that root is inside call.
func (g *gaps) below(l *layout, top, call *Node) bool {
	return slices.ContainsFunc(g.tops, func(i int32) bool {
		n := &l.nodes[i]
		return n != top && n.Root != call.Root && call.contains(n) && n.contains(top) && tighter(top, n)
	})
}

// contains reports whether n runs from the start to the end of m.
func (n *Node) contains(m *Node) bool { return n.Start <= m.Start && m.End <= n.End }

// tighter reports whether a is shorter than b. If both are equally long, it reports whether a starts later; if they
// also start together, whether a has the smaller ID.
func tighter(a, b *Node) bool {
	return cmp.Or(cmp.Compare(a.End-a.Start, b.End-b.Start), cmp.Compare(b.Start, a.Start), cmp.Compare(a.ID, b.ID)) < 0
}

// Gap is a hop between two services that emits no spans.
type Gap struct {
	Caller trace.Op // operation of the CLIENT span that called the hop
	Hop    trace.Op // the hop as named by the attributes of that span; 0 if unknown
	Own    trace.Op // operation of the root below the hop
	// Time is the part of the call's time that the root does not cover, at least 0.
	Time time.Duration
}

// Gap returns the missing hop above root number root. It returns false if the call to the hop is unknown.
func (p *Path) Gap(root int) (g Gap, ok bool) {
	r := &p.Roots[root]
	if r.Gap < 0 {
		return Gap{}, false
	}
	call, s := &p.Nodes[r.Gap], p.Span(r.Gap)
	return Gap{s.Op, s.Peer, p.Span(r.Node).Op, max(0, call.End.Sub(call.Start)-p.Duration(r))}, true
}

// Entry returns the index of the root at which the call of node i entered another service through a hop without spans,
// or -1 if there is no such root. It is also -1 if there are several such roots, because then the call reached a
// service without spans that makes these calls. A CLIENT or PRODUCER root doesn't count: it is below a lost span of its
// own service and doesn't show which operation was called.
func (p *Path) Entry(i int32) int {
	entry := -1
	if p.Nodes[i].Callee != CalleeMissing {
		return entry
	}
	for k := range p.Roots {
		if p.Roots[k].Gap != i {
			continue
		}
		if kind := p.Span(p.Roots[k].Node).Kind; entry >= 0 || kind == trace.Client || kind == trace.Producer {
			return -1
		}
		entry = k
	}
	return entry
}

// Unanswered reports whether node i is a baseline CLIENT span that no span answers and that is not known to have called
// a missing hop.
func (p *Path) Unanswered(i int32) bool {
	s := p.Span(i)
	return s.Kind == trace.Client && s.Tracepoint == 0 && p.Nodes[i].Callee == -1
}
