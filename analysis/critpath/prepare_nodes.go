package critpath

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// child is a span that is about to become a node below its parent.
type child struct {
	end, start trace.Nanos // shifted and clamped
	id         trace.SpanID
	span       int32
	class      class
}

// class is what a child is to the walks of its parent. Families are in this order.
type class uint8

const (
	asynchronous class = iota // left off the path by Options.IgnoreAsync; they all end with their parent
	candidate                 // may be on the critical path
	switchedOn                // may be on the refined path
	outside                   // dropped, with all below it
)

// grow lays the trees out as nodes, each breadth first, so that families are together.
func (x *Extractor) grow() {
	p := &x.path
	x.emptyNodes()
	for _, h := range x.heads {
		first := int32(len(p.Nodes))
		baseline := x.trace.Spans[h.span].Tracepoint == 0
		end := x.addHead(&h, baseline)
		tail := end
		for i := first; i < int32(len(p.Nodes)); i++ {
			tail = max(tail, x.addFamily(i))
		}
		if baseline {
			p.Roots = append(p.Roots, Root{Node: first, First: first, Last: int32(len(p.Nodes)), AsyncTail: tail.Sub(end)})
		}
	}
}

func (x *Extractor) emptyNodes() {
	p := &x.path
	n := len(x.trace.Spans)
	if cap(p.Nodes) < n {
		p.Nodes = make([]Node, 0, n+n/4)
		p.families = make([]family, 0, n+n/4)
	}
	p.Nodes, p.families = p.Nodes[:0], p.families[:0]
	p.Roots = slices.Grow(p.Roots[:0], len(x.heads))
	c := &p.Counts
	c.Clamped, c.Outside, c.Negative, c.ZeroLength = 0, 0, 0, 0
	x.offset, x.chains = x.offset[:0], x.chains[:0]
}

// addHead adds the node of a span without a parent and returns its end.
func (x *Extractor) addHead(h *head, baseline bool) trace.Nanos {
	s := &x.trace.Spans[h.span]
	i, n := x.add()
	n.ID, n.Span, n.Parent, n.up = h.id, h.span, -1, -1
	n.Start, n.End = h.start, h.end
	n.Full, n.depth = trace.Context(0).Child(s.Op), 0
	if baseline {
		n.Anchor, n.Root, n.Context = i, int32(len(x.path.Roots)), n.Full
	} else {
		n.Anchor, n.Root, n.Context = -1, -1, 0
	}
	x.countLength(s)
	x.added(i, n, 0)
	return n.End
}

// add adds a node, of which it sets nothing but that no callee is known. There is room for one of each span.
func (x *Extractor) add() (int32, *Node) {
	i := len(x.path.Nodes)
	x.path.Nodes = x.path.Nodes[:i+1]
	n := &x.path.Nodes[i]
	n.Callee = -1
	return int32(i), n
}

// added notes what depends on node i, which was shifted by offset.
func (x *Extractor) added(i int32, n *Node, offset int64) {
	if x.shifting {
		x.offset = append(x.offset, offset)
	}
	if x.switched {
		x.addChain(i, n)
	}
}

func (x *Extractor) countLength(s *trace.Span) {
	switch {
	case s.End < s.Start:
		x.path.Counts.Negative++
	case s.End == s.Start:
		x.path.Counts.ZeroLength++
	}
}

// addFamily adds the children of node i and returns the latest end, before clamping, of those that are baseline.
func (x *Extractor) addFamily(i int32) trace.Nanos {
	p := &x.path
	parent := &p.Nodes[i]
	c := x.firstChild[parent.Span]
	first := int32(len(p.Nodes))
	if c < 0 {
		p.families = append(p.families, family{first, first, first, first})
		return 0
	}
	x.children = x.children[:0]
	tail := trace.Nanos(0)
	for ; c >= 0; c = x.nextChild[c] {
		end := x.place(i, parent, c)
		if x.trace.Spans[c].Tracepoint == 0 {
			tail = max(tail, end)
		}
	}
	x.sortChildren()
	var of [outside + 1]int32
	for k := range x.children {
		of[x.children[k].class]++
		x.addChild(i, &x.children[k])
	}
	f := family{first: first, candidates: first + of[asynchronous]}
	f.switched = f.candidates + of[candidate]
	f.outside = f.switched + of[switchedOn]
	p.families = append(p.families, f)
	return tail
}

// place appends span to x.children, shifted and clamped to node i, its parent. It returns the span's end before clamping.
func (x *Extractor) place(i int32, parent *Node, span int32) trace.Nanos {
	s := &x.trace.Spans[span]
	start, end := s.Start, s.End
	if end <= start {
		x.countLength(s)
		end = start
	}
	if x.shifting {
		o := trace.Nanos(x.offsetBelow(i, span))
		start, end = start+o, end+o
	}
	class := candidate
	if s.Tracepoint != 0 {
		class = switchedOn
	}
	x.children = slices.Grow(x.children, 1)
	x.children = x.children[:len(x.children)+1]
	c := &x.children[len(x.children)-1]
	c.end, c.start, c.id, c.span, c.class = min(end, parent.End), max(start, parent.Start), x.id(span), span, class
	switch {
	case parent.Root < 0, c.end < c.start, c.end == c.start && start < end && (end <= parent.Start || start >= parent.End):
		c.class = outside
		c.start, c.end = start, end
		if parent.Root >= 0 || parent.Anchor >= 0 {
			x.path.Counts.Outside++
		}
	case x.options.IgnoreAsync && end > parent.End:
		c.class = asynchronous
		x.path.Counts.Clamped++
	case c.start != start || c.end != end:
		x.path.Counts.Clamped++
	}
	return end
}

// offsetBelow returns by how much span is shifted in all: as much as its parent, node i, and against it.
func (x *Extractor) offsetBelow(i, span int32) int64 {
	return min(max(x.offset[i]+x.shifts[span], -maxOffset), maxOffset)
}

// fewChildren is the number up to which insertion is the fastest way to sort.
const fewChildren = 12

func (x *Extractor) sortChildren() {
	c := x.children
	latest := x.options.LatestStart
	if len(c) > fewChildren {
		if latest {
			slices.SortFunc(c, compareLatest)
		} else {
			slices.SortFunc(c, compareChildren)
		}
		return
	}
	for i := 1; i < len(c); i++ {
		for j := i; j > 0 && before(&c[j], &c[j-1], latest); j-- {
			c[j], c[j-1] = c[j-1], c[j]
		}
	}
}

// before reports whether a walk prefers a to b.
func before(a, b *child, latest bool) bool {
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

func compareChildren(a, b child) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.end, a.end), cmp.Compare(a.start, b.start), cmp.Compare(a.id, b.id))
}

func compareLatest(a, b child) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(b.end, a.end), cmp.Compare(b.start, a.start), cmp.Compare(a.id, b.id))
}

// addChild adds c below node up.
func (x *Extractor) addChild(up int32, c *child) {
	s := &x.trace.Spans[c.span]
	i, n := x.add()
	parent := &x.path.Nodes[up]
	n.ID, n.Span, n.Parent, n.up = c.id, c.span, up, up
	n.Start, n.End = c.start, c.end
	n.Root = parent.Root
	if c.class == outside {
		n.Root = -1
	}
	n.Full, n.depth = parent.Full, parent.depth
	if n.depth+1 < MaxDepth {
		n.Full, n.depth = parent.Full.Child(s.Op), n.depth+1
	}
	if s.Tracepoint != 0 {
		n.Anchor, n.Context = parent.Anchor, parent.Context
	} else {
		n.Anchor, n.Context = i, n.Full
		if s.Kind == trace.Server && n.Root >= 0 && x.trace.Spans[parent.Span].Kind == trace.Client {
			x.addCallee(parent, i, n)
		}
	}
	offset := int64(0)
	if x.shifting {
		offset = x.offsetBelow(up, c.span)
	}
	x.added(i, n, offset)
}

// addCallee makes n, which is node i, the callee of client, unless that has a better one.
func (x *Extractor) addCallee(client *Node, i int32, n *Node) {
	if client.Callee >= 0 {
		c := &x.path.Nodes[client.Callee]
		if cmp.Or(cmp.Compare(c.Start, n.Start), cmp.Compare(c.ID, n.ID)) < 0 {
			return
		}
	}
	client.Callee = i
}
