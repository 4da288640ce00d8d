package critpath

import (
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// Extractor finds the critical paths of traces. It keeps its buffers from trace to trace: once they have grown, it
// allocates nothing. It belongs to one goroutine.
type Extractor struct {
	options Options
	trace   *trace.Trace
	path    Path

	index  spanIndex
	copies []int32 // spans whose ID an earlier span has; see resolveCopies
	group  []spanCopy
	extra  []uint64 // of each span, the hash of its attributes and joins; filled only if there are copies
	gone   []bool   // spans that were dropped as copies; empty if there are none
	shared bool
	server []int32        // of the client half of a shared ID the server half, else -1; filled only if shared
	alias  []trace.SpanID // of the server half of a shared ID its new ID, else 0; filled only if shared

	switched   bool    // whether there are switched-on spans
	above      []int32 // of each span the parent span, or one of the values below; filled only if switched
	up         []int32 // of each span the span that it is a child of in the walks, or one of the values below
	anchors    []int32 // of each switched-on span the nearest baseline span above; see anchor
	climbed    []int32
	orphan     int32 // the last orphan found
	tops       int   // baseline spans without a baseline ancestor, before messaging is cut off
	top        int32 // the last of them
	rootless   bool  // no baseline span is without a parent
	firstChild []int32
	nextChild  []int32
	heads      []head  // spans without a parent
	mark       []int32 // see breakCycles

	pairs  []pair
	shifts []int64 // of each span by how much it is shifted against its parent; filled only if shifting
	offset []int64 // of each node by how much it was shifted in all; filled only if shifting

	shifting bool

	children []child // of the node whose family is being added
	nodeOf   []int32 // of each span its node; filled only if switched or if there are joins
	chains   []chain // of each node; filled only if switched

	found    []join // in the order of the trace
	joins    []join
	joinAt   []int32 // joins of node i: joins[joinAt[i]:joinAt[i+1]]; filled only if there are joins
	visited  []visit // filled only if there are joins
	stack    []frame
	sections []Section // of all roots; their slices are cut from it at the end
	refined  []Section
	critical []int32
	overlaps []Overlap
	passed   []passed // of each node how far the refining walk is; filled only if switched
	bounds   []bounds
}

// What stands in the place of a parent where there is none.
const (
	noParent int32 = -1 - iota // sent without one
	missing                    // it did not arrive
	cut                        // of another request: messaging
	broken                     // it was on a cycle of parents
	dropped                    // the span itself is a copy and was dropped
)

// maxKept is the number of spans up to which buffers are kept for the next trace. Rarely a trace is so large; its buffers,
// some 300 bytes a span, would stay for ever.
const maxKept = 1 << 18

// NewExtractor returns an extractor with options o.
func NewExtractor(o Options) *Extractor { return &Extractor{options: o} }

// Extract returns the critical paths of t. They are valid until the next call, and while t is not changed. Any order of t's
// spans, attributes and joins gives the same result but for the order of [Path.Nodes]. It takes time O(n log n) in their
// number.
//
//  1. Copies: of several spans with one ID one is kept, or a CLIENT and a SERVER.
//  2. Parents: each span finds its parent, and the span whose child it is in the walks: for a baseline span the nearest
//     baseline ancestor.
//  3. Forest: messaging is cut off; the rest is linked into trees, and these are put in the order of their roots.
//  4. Skew: pairs of CLIENT and SERVER spans tell how clocks of hosts differ.
//  5. Nodes: trees are laid out top-down, shifted and clamped, each family in the order in which a walk wants it.
//  6. Spans that no tree reached are on or below cycles: these are broken, and 3–5 repeated.
//  7. Roots are walked: over baseline spans, then refined by the switched-on ones.
func (x *Extractor) Extract(t *trace.Trace) *Path {
	x.reset(t)
	x.resolveCopies()
	x.findParents()
	x.layOut()
	if len(x.path.Nodes) < len(t.Spans)-x.path.Counts.Duplicates-x.path.Counts.Conflicts {
		x.breakCycles()
		x.layOut()
	}
	x.connect()
	x.judge()
	x.indexAttrs()
	x.walkRoots()
	x.path.switched = x.switched
	return &x.path
}

func (x *Extractor) reset(t *trace.Trace) {
	if cap(x.up) > maxKept && len(t.Spans) <= maxKept {
		*x = Extractor{options: x.options}
	}
	p := &x.path
	p.Trace, p.Flags, p.Counts = t, 0, Counts{}
	x.trace, x.orphan, x.shared = t, -1, false
	n := len(t.Spans)
	x.up = sized(x.up, n)
	x.firstChild = sized(x.firstChild, n)
	x.nextChild = sized(x.nextChild, n)
}

// sized returns a slice of n elements, whatever they are, in s's memory if it suffices.
func sized[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]T, n, n+n/4)
}

// filled returns a slice of n elements v, in s's memory if it suffices.
func filled[T any](s []T, n int, v T) []T {
	s = sized(s, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// layOut links the spans into trees and lays them out as nodes. It may be repeated.
func (x *Extractor) layOut() {
	x.link()
	x.sortHeads()
	x.findShifts()
	x.grow()
}

// connect fills what needs every node to exist: parents in traces with switched-on spans, and joins.
func (x *Extractor) connect() {
	x.joins = x.joins[:0]
	if !x.switched && len(x.trace.Joins) == 0 {
		return
	}
	nodes := x.path.Nodes
	x.nodeOf = filled(x.nodeOf, len(x.trace.Spans), -1)
	for i := range nodes {
		x.nodeOf[nodes[i].Span] = int32(i)
	}
	if x.switched {
		for i := range nodes {
			if n := &nodes[i]; n.Parent >= 0 {
				n.Parent = x.nodeOf[x.above[n.Span]]
			}
		}
	}
	x.resolveJoins()
}

// judge sets the flags that depend on the whole trace.
func (x *Extractor) judge() {
	p := &x.path
	if p.Counts.Orphans > 0 {
		if x.callerNotCollected() {
			p.Flags |= FlagRemoteParent
		} else {
			p.Flags |= FlagIncomplete
		}
	}
	if len(p.Roots) == 0 || x.rootless && p.Flags&FlagRemoteParent == 0 {
		p.Flags |= FlagNoRoot
	}
	if len(p.Roots) > 1 {
		p.Flags |= FlagSeveralRoots
	}
	for i := range p.Roots {
		r := &p.Roots[i]
		if r.AsyncTail > 0 {
			p.Flags |= FlagAsyncTail
		}
		if p.Duration(r) >= trace.MaxDuration {
			p.Flags |= FlagTooLong
		}
	}
	c := &p.Counts
	for _, e := range [...]struct {
		n    int
		flag Flags
	}{
		{c.Duplicates, FlagDuplicates},
		{c.Conflicts, FlagConflicts},
		{c.Cycles, FlagCycle},
		{c.Clamped, FlagClamped},
		{c.Outside, FlagOutside},
		{c.Negative, FlagNegative},
	} {
		if e.n > 0 {
			p.Flags |= e.flag
		}
	}
}

// callerNotCollected reports whether the only orphan of the trace heads its only component in the way a request does whose
// caller is not collected.
func (x *Extractor) callerNotCollected() bool {
	if x.path.Counts.Orphans != 1 || x.tops != 1 || x.up[x.top] != missing {
		return false
	}
	top, orphan := &x.trace.Spans[x.top], &x.trace.Spans[x.orphan]
	return top.Kind == trace.Server || top.Kind == trace.Consumer || (top.Flags|orphan.Flags)&trace.RemoteParent != 0
}

// indexAttrs groups the attributes by span.
func (x *Extractor) indexAttrs() {
	p, attrs := &x.path, x.trace.Attrs
	p.attrAt, p.attrs = p.attrAt[:0], p.attrs[:0]
	if len(attrs) == 0 {
		return
	}
	n := len(x.trace.Spans)
	at := filled(p.attrAt, n+1, 0)
	p.attrs = sized(p.attrs, len(attrs))
	for i := range attrs {
		at[attrs[i].Span]++
	}
	sum := int32(0)
	for i := range at {
		sum += at[i]
		at[i] = sum
	}
	for i := range slices.Backward(attrs) { // at[i] goes from the end of its part to the start
		s := attrs[i].Span
		at[s]--
		p.attrs[at[s]] = int32(i)
	}
	p.attrAt = at
}
