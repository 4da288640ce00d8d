package critpath

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// layout turns trees of spans into nodes. It lays out each tree breadth-first, so that the children of a node are
// adjacent. It shifts spans by the clock skew, clamps them to their callers, and sorts siblings in the order that a
// walk considers them.
type layout struct {
	ignoreAsync, latestStart bool // from Options

	nodes    []Node
	children []children // by node
	roots    []Root     // in the order of the trees with a baseline top span
	counts   Counts     // only Clamped, Outside, Negative and ZeroLength

	unsettled bool // whether a baseline span is outside its parent

	spans   []trace.Span
	ids     *spanIDs
	forest  *forest
	callees *callees
	shifts  []int64 // by span; empty if no span is shifted

	siblings []child // scratch: the children of one node
	offsets  []int64 // scratch, by node: its total shift in ns; filled if spans are shifted
	sorted   []int64 // scratch: the offsets of one tree
	nodeOf   []int32 // by span; see spanNodes
}

// children locates the children of a node in Path.Nodes:
//
//	[first, candidates)       baseline spans that Options.IgnoreAsync excludes
//	[candidates, tracepoints) baseline spans that can be critical
//	[tracepoints, outside)    tracepoint spans
//	[outside, next family)    spans outside the node, which are dropped
//
// Each part is in order of preference. A baseline span is a child of its nearest baseline ancestor.
type children struct{ first, candidates, tracepoints, outside int32 }

// class is the part of [children] that a child belongs to.
type class uint8

const (
	asynchronous class = iota
	candidate
	tracepoint
	outside
)

// preference orders the children of a node: by class, then in the order that a walk considers them.
type preference struct {
	class      class
	end, start trace.Nanos
	id         trace.SpanID
}

// before reports whether a comes before b. The lower class comes first, then the later end, then the earlier start (or
// the later start if latest is true), then the smaller ID.
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

// compare returns -1 if a comes before b, +1 if b comes before a, and 0 if they are equal.
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
		tail, depth, deeper := end, 0, first+1
		for i := first; i < int32(len(l.nodes)); i++ {
			if i == deeper { // first node of the next level
				depth, deeper = depth+1, int32(len(l.nodes))
			}
			tail = max(tail, l.addChildren(i, depth))
		}
		if len(l.shifts) > 0 {
			l.keepClock(first)
		}
		if baseline {
			l.roots = append(l.roots, Root{
				Node:      first,
				First:     first,
				Last:      int32(len(l.nodes)),
				From:      t.from,
				Origin:    t.origin,
				AsyncTail: tail.Sub(end),
			})
		}
	}
}

func (l *layout) reset() {
	if n := len(l.spans); cap(l.nodes) < n {
		l.nodes = make([]Node, 0, n+n/4)
		l.children = make([]children, 0, n+n/4)
	}
	l.nodes, l.children, l.nodeOf, l.offsets = l.nodes[:0], l.children[:len(l.spans)], l.nodeOf[:0], l.offsets[:0]
	l.roots = slices.Grow(l.roots[:0], len(l.forest.trees))
	l.counts, l.unsettled = Counts{}, false
}

// undecided is the Callee of a CLIENT node until its children, which determine its step and its contexts, are laid out.
const undecided = -2

// farther returns the shift that is farther from 0, or b if both are equally far.
func farther(a, b int64) int64 {
	if max(a, -a) > max(b, -b) {
		return a
	}
	return b
}

// add appends a node and returns its index. The caller must set all fields. l.nodes has room for one node per span.
func (l *layout) add() (int32, *Node) {
	i := len(l.nodes)
	l.nodes = l.nodes[:i+1]
	return int32(i), &l.nodes[i]
}

// addTop adds the node of the top span of t and returns its end. If baseline is set, the top span is a baseline span.
func (l *layout) addTop(t *tree, baseline bool) trace.Nanos {
	s := &l.spans[t.top]
	i, n := l.add()
	n.ID, n.Span, n.Parent, n.caller, n.Callee = t.id, t.top, -1, -1, -1
	n.Start, n.End = t.start, t.end
	n.Anchor, n.Root = -1, -1
	if baseline {
		n.Anchor, n.Root = i, int32(len(l.roots))
	}
	if l.mayBeAnswered(s, t.top) {
		n.Callee = undecided
	}
	n.Step = s.Op.To(s.Peer)
	n.setContexts(i, extend(0, n.Step, 0), 0)
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

// addChildren adds the children of node i, which is depth levels below the top, and decides the step of node i. It
// returns the latest end of the baseline children before clamping, or 0 if there are no baseline children.
func (l *layout) addChildren(i int32, depth int) trace.Nanos {
	parent := &l.nodes[i]
	c := l.forest.firstChild[parent.Span]
	first := int32(len(l.nodes))
	calls, callee := parent.Callee == undecided, int32(-1)
	if c < 0 && !calls {
		l.children[i] = children{first, first, first, first}
		return 0
	}
	tail := trace.Nanos(0)
	siblings := l.siblings[:0]
	for ; c >= 0; c = l.forest.nextChild[c] {
		s := &l.spans[c]
		siblings = append(siblings, child{span: c})
		end := l.place(i, parent, s, &siblings[len(siblings)-1])
		if s.Tracepoint == 0 {
			tail = max(tail, end)
		}
		if calls && len(l.callees.seeThrough) > 0 {
			if answer := l.callees.behind(parent.Span, c, maxProxies); answer >= 0 &&
				(callee < 0 || l.callees.before(answer, callee)) {
				callee = answer
			}
		} else if calls && l.callees.answers(parent.Span, s) && (callee < 0 || l.callees.before(c, callee)) {
			callee = c
		}
	}
	if calls {
		l.decideStep(i, parent, callee, depth)
	}
	l.siblings = siblings
	if len(siblings) > 1 {
		sortChildren(siblings, l.latestStart)
	}
	var n [outside + 1]int32
	for k := range siblings {
		c := &siblings[k]
		n[c.class]++
		l.addChild(i, parent, c, depth+1)
	}
	r := children{first: first, candidates: first + n[asynchronous]}
	r.tracepoints = r.candidates + n[candidate]
	r.outside = r.tracepoints + n[tracepoint]
	l.children[i] = r
	return tail
}

// place sets the times and the class of c, the child of node i for span s, shifted and clamped. It returns the end of
// the child before clamping.
func (l *layout) place(i int32, parent *Node, s *trace.Span, c *child) trace.Nanos {
	start, end := s.Start, s.End
	if end <= start {
		l.countLength(s)
		end = start
	}
	if len(l.shifts) > 0 {
		o := trace.Nanos(l.offset(i, s, c.span))
		start, end = start+o, end+o
	}
	c.class = candidate
	if s.Tracepoint != 0 {
		c.class = tracepoint
	}
	c.end, c.start, c.id = min(end, parent.End), max(start, parent.Start), l.ids.id(c.span)
	switch {
	case parent.Root < 0, apart(start, end, parent.Start, parent.End):
		c.class = outside
		c.start, c.end = start, end
		l.unsettled = l.unsettled || s.Tracepoint == 0
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

// offset returns the total shift, in ns, of s, which is span number span, as a child of node i: its own shift plus the
// shift of its ancestors, limited so that shifted times stay in [0, [trace.MaxNanos]].
func (l *layout) offset(i int32, s *trace.Span, span int32) int64 {
	least, most := shiftLimits(s)
	above, own := l.offsets[i], l.shifts[span]
	if own > 0 && above > most-own {
		return most
	}
	if own < 0 && above < least-own {
		return least
	}
	return min(max(above+own, least), most)
}

// keepClock moves the tree that starts at node first to the median clock of its baseline spans. If a phone calls
// servers, this is the clock of the servers. If there are two middle clocks, keepClock takes the clock that differs
// more from the root's clock. Tracepoint spans don't count, because enabling them must not move anything.
func (l *layout) keepClock(first int32) {
	nodes := l.nodes[first:]
	l.sorted = l.sorted[:0]
	for i := range nodes {
		if l.spans[nodes[i].Span].Tracepoint == 0 {
			l.sorted = append(l.sorted, l.offsets[int(first)+i])
		}
	}
	slices.Sort(l.sorted)
	n := len(l.sorted)
	if n == 0 {
		return
	}
	ahead := farther(l.sorted[(n-1)/2], l.sorted[n/2])
	if ahead == 0 {
		return
	}
	least, most := nodes[0].Start, nodes[0].End
	for i := range nodes {
		least, most = min(least, nodes[i].Start), max(most, nodes[i].End)
	}
	o := min(max(trace.Nanos(ahead), most-trace.MaxNanos), least)
	for i := range nodes {
		nodes[i].Start, nodes[i].End = nodes[i].Start-o, nodes[i].End-o
	}
}

// sortChildren sorts siblings. Most families are small, and insertion sort is faster for them than slices.SortFunc,
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

// addChild adds the node of c below node caller, depth levels below the top.
func (l *layout) addChild(caller int32, parent *Node, c *child, depth int) {
	s := &l.spans[c.span]
	i, n := l.add()
	n.ID, n.Span, n.Parent, n.caller, n.Callee, n.Step = c.id, c.span, caller, caller, -1, s.Op
	n.Start, n.End = c.start, c.end
	n.Root = parent.Root
	if c.class == outside {
		n.Root = -1
	}
	n.Anchor = i
	if s.Tracepoint != 0 {
		n.Anchor = parent.Anchor
	}
	if l.mayBeAnswered(s, c.span) {
		n.Callee = undecided
	} else {
		if s.Peer != 0 {
			n.Step = s.Op.To(s.Peer)
		}
		n.setContexts(i, extend(parent.Full, n.Step, depth), parent.Context)
	}
	if len(l.shifts) > 0 {
		l.offsets = append(l.offsets, l.offset(caller, s, c.span))
	}
}

// mayBeAnswered reports whether s, which is span i, may have a callee.
func (l *layout) mayBeAnswered(s *trace.Span, i int32) bool {
	return s.Kind == trace.Client && (l.forest.firstChild[i] >= 0 || len(l.callees.elsewhere) > 0)
}

// decideStep sets the callee of n, which is node i, to callee or to a callee elsewhere that is preferred. It also sets
// the fields that depend on the callee.
func (l *layout) decideStep(i int32, n *Node, callee int32, depth int) {
	if len(l.callees.elsewhere) > 0 {
		if below, ok := l.callees.elsewhere[n.Span]; ok && (callee < 0 || l.callees.before(below, callee)) {
			callee = below
		}
	}
	n.Callee = callee
	n.Step = l.spans[n.Span].Op.To(target(l.spans, n.Span, callee))
	full, context := trace.Context(0), trace.Context(0)
	if n.caller >= 0 {
		full, context = l.nodes[n.caller].Full, l.nodes[n.caller].Context
	}
	n.setContexts(i, extend(full, n.Step, depth), context)
}

// extend returns c extended by step, or c itself if depth, the depth of step, is MaxDepth or more.
func extend(c trace.Context, step trace.Op, depth int) trace.Context {
	if depth < MaxDepth {
		return c.Child(step)
	}
	return c
}

// setContexts sets the contexts of n, which is node i. above is the Context of its caller.
func (n *Node) setContexts(i int32, full, above trace.Context) {
	n.Full, n.Context = full, above
	if n.Anchor == i {
		n.Context = full
	}
}

// spanNodes returns the node of each span, or -1 for spans without a node.
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
