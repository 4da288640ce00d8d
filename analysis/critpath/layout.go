package critpath

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// layout turns trees of spans into nodes. It lays out each tree breadth-first, so that the children of a node are
// adjacent, shifts spans by the clock skew, clamps them to their callers, and sorts siblings in the order in which a
// walk considers them.
type layout struct {
	ignoreAsync, latestStart bool // Options

	nodes    []Node
	children []children // by node
	roots    []Root     // in the order of the trees with a baseline top span
	counts   Counts     // Clamped, Outside, Negative, ZeroLength

	spans   []trace.Span
	ids     *spanIDs
	forest  *forest
	callees *callees
	shifts  []int64 // by span; empty if no span is shifted

	siblings []child // scratch: the children of one node
	offsets  []int64 // scratch, by node: its total shift in ns; filled if spans are shifted
	nodeOf   []int32 // by span; see spanNodes
}

// children locates the children of a node in Path.Nodes:
//
//	[first, candidates)       baseline spans that Options.IgnoreAsync excludes
//	[candidates, tracepoints) baseline spans that can be critical
//	[tracepoints, outside)    tracepoint spans
//	[outside, next family)    spans outside the node, which are dropped
//
// Each part is in the order of preference. Baseline spans are children of their nearest baseline ancestor.
type children struct{ first, candidates, tracepoints, outside int32 }

// class is the part of [children] that a child belongs to.
type class uint8

const (
	asynchronous class = iota
	candidate
	tracepoint
	outside
)

// preference orders the children of a node: by class, then in the order in which a walk considers them.
type preference struct {
	class      class
	end, start trace.Nanos
	id         trace.SpanID
}

// before prefers the latest end, then the earliest start, or the latest if latest is set, then the smallest ID.
func (a *preference) before(b *preference, latest bool) bool {
	switch {
	case a.class != b.class:
		return a.class < b.class
	case a.end != b.end:
		return a.end > b.end
	case a.start != b.start:
		return (a.start < b.start) != latest
	}
	return a.id < b.id
}

// compare returns -1 if a comes before b, and +1 if b comes before a.
func (a *preference) compare(b *preference, latest bool) int {
	switch {
	case a.before(b, latest):
		return -1
	case b.before(a, latest):
		return 1
	}
	return 0
}

// child is a span about to become a node below its caller.
type child struct {
	preference // times are shifted and clamped
	span       int32
}

// run lays out the trees of forest.
func (l *layout) run(spans []trace.Span, ids *spanIDs, forest *forest, callees *callees, shifts []int64) {
	l.spans, l.ids, l.forest, l.callees, l.shifts = spans, ids, forest, callees, shifts
	l.reset()
	for i := range forest.trees {
		t := &forest.trees[i]
		first := int32(len(l.nodes))
		baseline := spans[t.top].Tracepoint == 0
		end := l.addTop(t, baseline)
		tail := end
		for i := first; i < int32(len(l.nodes)); i++ {
			tail = max(tail, l.addChildren(i))
		}
		if baseline {
			l.roots = append(l.roots, Root{Node: first, First: first, Last: int32(len(l.nodes)), AsyncTail: tail.Sub(end)})
		}
	}
}

func (l *layout) reset() {
	if n := len(l.spans); cap(l.nodes) < n {
		l.nodes = make([]Node, 0, n+n/4)
		l.children = make([]children, 0, n+n/4)
	}
	l.nodes, l.children, l.nodeOf, l.offsets = l.nodes[:0], l.children[:0], l.nodeOf[:0], l.offsets[:0]
	l.roots = slices.Grow(l.roots[:0], len(l.forest.trees))
	l.counts = Counts{}
}

// add appends the node of a span and returns its index. The caller sets the fields that depend on the place of the
// node. There is room for a node of each span.
func (l *layout) add(span int32) (int32, *Node) {
	i := len(l.nodes)
	l.nodes = l.nodes[:i+1]
	n := &l.nodes[i]
	s := &l.spans[span]
	n.Span, n.Callee, n.Step = span, -1, s.Op
	if s.Kind == trace.Client {
		if n.Callee = l.callees.of(span); n.Callee >= 0 {
			n.Step = s.Op.To(l.spans[n.Callee].Op)
		}
	}
	return int32(i), n
}

// addTop adds the node of the top span of t and returns its end.
func (l *layout) addTop(t *tree, baseline bool) trace.Nanos {
	s := &l.spans[t.top]
	i, n := l.add(t.top)
	n.ID, n.Parent, n.caller = t.id, -1, -1
	n.Start, n.End = t.start, t.end
	n.Full, n.depth = trace.Context(0).Child(n.Step), 0
	if baseline {
		n.Anchor, n.Root, n.Context = i, int32(len(l.roots)), n.Full
	} else {
		n.Anchor, n.Root, n.Context = -1, -1, 0
	}
	l.countLength(s)
	if len(l.shifts) > 0 {
		l.offsets = append(l.offsets, 0)
	}
	return n.End
}

func (l *layout) countLength(s *trace.Span) {
	switch {
	case s.End < s.Start:
		l.counts.Negative++
	case s.End == s.Start:
		l.counts.ZeroLength++
	}
}

// addChildren adds the children of node i. It returns the latest end of the baseline ones, before clamping; 0 if there
// are none.
func (l *layout) addChildren(i int32) trace.Nanos {
	parent := &l.nodes[i]
	c := l.forest.firstChild[parent.Span]
	first := int32(len(l.nodes))
	if c < 0 {
		l.children = append(l.children, children{first, first, first, first})
		return 0
	}
	l.siblings = l.siblings[:0]
	tail := trace.Nanos(0)
	for ; c >= 0; c = l.forest.nextChild[c] {
		end := l.place(i, parent, c)
		if l.spans[c].Tracepoint == 0 {
			tail = max(tail, end)
		}
	}
	sortChildren(l.siblings, l.latestStart)
	var n [outside + 1]int32
	for k := range l.siblings {
		n[l.siblings[k].class]++
		l.addChild(i, &l.siblings[k])
	}
	r := children{first: first, candidates: first + n[asynchronous]}
	r.tracepoints = r.candidates + n[candidate]
	r.outside = r.tracepoints + n[tracepoint]
	l.children = append(l.children, r)
	return tail
}

// place appends a child of node i to l.siblings, shifted and clamped. It returns the end of the child before clamping.
func (l *layout) place(i int32, parent *Node, span int32) trace.Nanos {
	s := &l.spans[span]
	start, end := s.Start, s.End
	if end <= start {
		l.countLength(s)
		end = start
	}
	if len(l.shifts) > 0 {
		o := trace.Nanos(l.offset(i, span))
		start, end = start+o, end+o
	}
	class := candidate
	if s.Tracepoint != 0 {
		class = tracepoint
	}
	l.siblings = slices.Grow(l.siblings, 1)
	l.siblings = l.siblings[:len(l.siblings)+1]
	c := &l.siblings[len(l.siblings)-1]
	c.end, c.start, c.id, c.span, c.class = min(end, parent.End), max(start, parent.Start), l.ids.id(span), span, class
	switch {
	case parent.Root < 0, c.end < c.start, c.end == c.start && start < end && (end <= parent.Start || start >= parent.End):
		c.class = outside
		c.start, c.end = start, end
		if parent.Root >= 0 || parent.Anchor >= 0 {
			l.counts.Outside++
		}
	case l.ignoreAsync && end > parent.End:
		c.class = asynchronous
		l.counts.Clamped++
	case c.start != start || c.end != end:
		l.counts.Clamped++
	}
	return end
}

// offset returns the total shift of a child of node i: its own and that of its ancestors.
func (l *layout) offset(i, span int32) int64 {
	return min(max(l.offsets[i]+l.shifts[span], -maxOffset), maxOffset)
}

// sortChildren sorts siblings. Most families are small: insertion in place is faster for them than slices.SortFunc,
// which copies both children for each comparison.
func sortChildren(c []child, latest bool) {
	const small = 12
	if len(c) > small {
		slices.SortFunc(c, func(a, b child) int { return a.compare(&b.preference, latest) })
		return
	}
	for i := 1; i < len(c); i++ {
		for j := i; j > 0 && c[j].before(&c[j-1].preference, latest); j-- {
			c[j], c[j-1] = c[j-1], c[j]
		}
	}
}

// addChild adds the node of c below node caller.
func (l *layout) addChild(caller int32, c *child) {
	s := &l.spans[c.span]
	i, n := l.add(c.span)
	parent := &l.nodes[caller]
	n.ID, n.Parent, n.caller = c.id, caller, caller
	n.Start, n.End = c.start, c.end
	n.Root = parent.Root
	if c.class == outside {
		n.Root = -1
	}
	n.Full, n.depth = parent.Full, parent.depth
	if n.depth+1 < MaxDepth {
		n.Full, n.depth = parent.Full.Child(n.Step), n.depth+1
	}
	if s.Tracepoint != 0 {
		n.Anchor, n.Context = parent.Anchor, parent.Context
	} else {
		n.Anchor, n.Context = i, n.Full
	}
	if len(l.shifts) > 0 {
		l.offsets = append(l.offsets, l.offset(caller, c.span))
	}
}

// spanNodes returns the node of each span; -1 if it has none.
func (l *layout) spanNodes() []int32 {
	if len(l.nodeOf) == 0 {
		l.nodeOf = scratch.Filled(l.nodeOf, len(l.spans), -1)
		for i := range l.nodes {
			l.nodeOf[l.nodes[i].Span] = int32(i)
		}
	}
	return l.nodeOf
}

// setParents sets Node.Parent where it differs from the caller. parent holds the parent of each span.
func (l *layout) setParents(parent []int32) {
	nodeOf := l.spanNodes()
	for i := range l.nodes {
		if n := &l.nodes[i]; n.Parent >= 0 {
			n.Parent = nodeOf[parent[n.Span]]
		}
	}
}
