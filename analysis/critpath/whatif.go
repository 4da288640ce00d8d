package critpath

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// WhatIf returns the duration of root number root of p if its edges had taken other times. For each edge on the
// critical path, change receives the time in ns that the edge took in this request, and returns another time, at least
// 0. If coarse is set, the edges are those of [trace.WholeEdge], as in a request type.
//
// WhatIf replays the walk forwards. The own work of a span is the gaps between its children. A child starts after the
// end of all children that had ended before it started, plus the gap that was between them; a span ends likewise. The
// gaps of an edge change in proportion to its time, off the critical path too. So everything later moves, and another
// branch may become critical.
//
// If no time changes, neither does the duration. Shortened edges save at most the time by which they are shortened on
// the path, and less if another branch ends soon after. WhatIf underestimates the savings if a child did not depend on
// all the children that had ended before it. It does not change the own time of spans that joined others.
//
// Paths are replayed as [DefaultOptions] extract them. WhatIf takes time O(n log n) in the number of nodes of the root.
func WhatIf(p *Path, root int, coarse bool, change func(edge trace.Edge, nanos int64) int64) time.Duration {
	r := replay{path: p, root: &p.Roots[root], coarse: coarse, scales: make(map[trace.Edge]scale)}
	r.measure(change)
	return r.run()
}

// scale is a fraction by which gaps are multiplied.
type scale struct{ to, from int64 }

// of returns nanos·to/from, rounded up, so that the gaps of an edge never save more than the edge. It returns at most
// trace.MaxDuration.
func (s scale) of(nanos int64) int64 {
	hi, lo := bits.Mul64(uint64(nanos), uint64(s.to))
	lo, carry := bits.Add64(lo, uint64(s.from)-1, 0)
	if hi += carry; hi >= uint64(s.from) {
		return int64(trace.MaxDuration)
	}
	q, _ := bits.Div64(hi, lo, uint64(s.from))
	return int64(min(q, uint64(trace.MaxDuration)))
}

// replay is one run of [WhatIf].
type replay struct {
	path   *Path
	root   *Root
	coarse bool
	scales map[trace.Edge]scale // of the edges whose time changes
	joined map[int32]bool       // spans of the trace that joined others
	nanos  []int64              // by node of the root, from First: its new duration

	byStart, byEnd []int32 // scratch: children of a node by start; by end, the latest first
	ends           []int64 // scratch: by child, from the first candidate: its new end, after the start of its parent
}

// measure finds the edges whose time changes.
func (r *replay) measure(change func(edge trace.Edge, nanos int64) int64) {
	totals := make(map[trace.Edge]int64)
	var edges []trace.Edge // in the order of the path
	for i := range r.root.Sections {
		s := &r.root.Sections[i]
		e := r.edge(s.Node, s.Before, s.After)
		if _, ok := totals[e]; !ok {
			edges = append(edges, e)
		}
		totals[e] += int64(s.End - s.Start)
	}
	for _, e := range edges {
		if to := max(0, change(e, totals[e])); to != totals[e] {
			r.scales[e] = scale{to, totals[e]}
		}
	}
	if len(r.path.Trace.Joins) > 0 {
		r.joined = make(map[int32]bool)
		for _, j := range r.path.Trace.Joins {
			r.joined[j.Span] = true
		}
	}
}

// edge returns the edge of the own time of a node between two of its children.
func (r *replay) edge(node, before, after int32) trace.Edge {
	context := r.path.Nodes[node].Full
	if r.coarse {
		return trace.WholeEdge(context)
	}
	return trace.EdgeOf(context, r.op(before), r.op(after))
}

// op returns the operation of a node; 0 for node -1.
func (r *replay) op(node int32) trace.Op {
	if node < 0 {
		return 0
	}
	return r.path.Span(node).Op
}

// run returns the new duration of the root. A node comes before its children in Path.Nodes, so the loop runs backwards.
func (r *replay) run() time.Duration {
	r.nanos = make([]int64, r.root.Last-r.root.First)
	for i := r.root.Last - 1; i >= r.root.First; i-- {
		if n := &r.path.Nodes[i]; n.Anchor == i && n.Root >= 0 {
			r.nanos[i-r.root.First] = r.span(i)
		}
	}
	return time.Duration(r.nanos[r.root.Node-r.root.First])
}

// span returns the new duration of node i, whose children are known.
//
//  1. Take the children by start.
//  2. Wait for the children that had ended by the start of the next one. All of them were taken before it.
//  3. The next child starts after the latest new end of those, plus the new gap.
//  4. The end of the node follows its children likewise.
func (r *replay) span(i int32) int64 {
	nodes, c := r.path.Nodes, r.path.children[i]
	n := &nodes[i]
	r.byEnd = r.byEnd[:0]
	for k := c.candidates; k < c.tracepoints; k++ {
		if nodes[k].Start < nodes[k].End {
			r.byEnd = append(r.byEnd, k)
		}
	}
	r.byStart = append(r.byStart[:0], r.byEnd...)
	slices.SortStableFunc(r.byStart, func(a, b int32) int { return cmp.Compare(nodes[a].Start, nodes[b].Start) })
	r.ends = sized(r.ends, int(c.tracepoints-c.candidates))

	running := r.byEnd                                 // children that have not ended
	ended, end, newEnd := int32(-1), n.Start, int64(0) // the last child that ended; its end; the latest new end so far
	wait := func(until trace.Nanos) {
		for k := len(running) - 1; k >= 0 && nodes[running[k]].End <= until; k-- {
			ended, running = running[k], running[:k]
			end, newEnd = nodes[ended].End, max(newEnd, r.ends[ended-c.candidates])
		}
	}
	for _, next := range r.byStart {
		wait(nodes[next].Start)
		start := newEnd + r.gap(i, ended, next, int64(nodes[next].Start-end))
		r.ends[next-c.candidates] = start + r.nanos[next-r.root.First]
	}
	wait(n.End)
	return newEnd + r.gap(i, ended, -1, int64(n.End-end))
}

// gap returns the new length of a gap between two children of a node.
func (r *replay) gap(node, before, after int32, nanos int64) int64 {
	if len(r.scales) == 0 || nanos == 0 || r.joined[r.path.Nodes[node].Span] {
		return nanos
	}
	if s, ok := r.scales[r.edge(node, before, after)]; ok {
		return s.of(nanos)
	}
	return nanos
}
