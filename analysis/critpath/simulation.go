package critpath

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// Simulation holds the data of a path that [Simulation.WhatIf] needs to compute how long the request would take with a
// faster edge. It is much smaller than the path and shares no memory with it. The zero Simulation is empty.
type Simulation struct {
	spans []simulated // a span comes before its children; the first is the root
	ids   []int32     // scratch of Capture
}

// simulated is a baseline span.
type simulated struct {
	start, end  trace.Nanos // start <= end
	context     trace.Context
	step        trace.Op
	first, last int32 // children: spans[first:last], by descending end
	joined      bool  // whether it joined other spans
}

// Len returns the number of spans.
func (s *Simulation) Len() int { return len(s.spans) }

// Clone returns a copy of s that shares no memory with it.
func (s *Simulation) Clone() *Simulation { return &Simulation{spans: slices.Clone(s.spans)} }

// Capture replaces the contents of s with the data of root number root of p, reusing the memory of s. It takes time
// O(n) in the number of nodes of the root.
func (s *Simulation) Capture(p *Path, root int) {
	r := &p.Roots[root]
	n := int(r.Last - r.First)
	s.ids = scratch.Sized(s.ids, n+1)
	s.spans = slices.Grow(s.spans[:0], n)
	for i := r.First; i < r.Last; i++ {
		s.ids[i-r.First] = int32(len(s.spans))
		if node := &p.Nodes[i]; isSimulated(r, i, node) {
			s.spans = s.spans[:len(s.spans)+1]
			x, c := &s.spans[len(s.spans)-1], &p.children[i]
			x.start, x.end, x.context, x.step = node.Start, node.End, node.Full, node.Step
			x.first, x.last = c.candidates-r.First, c.tracepoints-r.First // nodes; below, spans replace them
			x.joined = false
		}
	}
	s.ids[n] = int32(len(s.spans))
	for i := range s.spans {
		x := &s.spans[i]
		x.first, x.last = s.ids[x.first], s.ids[x.last]
	}
	if len(p.Trace.Joins) > 0 {
		s.setJoined(p, r)
	}
}

// isSimulated reports whether n, which is node i of r, can be critical: it is a baseline node, was not dropped, and is
// not empty unless it is the root.
func isSimulated(r *Root, i int32, n *Node) bool {
	return n.Anchor == i && n.Root >= 0 && (n.Start < n.End || i == r.Node)
}

// setJoined marks the spans of s, captured from r, that joined other spans.
func (s *Simulation) setJoined(p *Path, r *Root) {
	joined := make(map[int32]bool)
	for _, j := range p.Trace.Joins {
		joined[j.Span] = joined[j.Span] || !j.Message
	}
	for i := r.First; i < r.Last; i++ {
		if n := &p.Nodes[i]; isSimulated(r, i, n) {
			s.spans[s.ids[i-r.First]].joined = joined[n.Span]
		}
	}
}

// WhatIf returns the duration that the request would have had if edge, which took `from` ns of the critical path, had
// taken `to` ns. If coarse is true, edge is a [trace.ContextEdge], as in a request type.
//
// WhatIf repeats the walk forwards. The own work of a span consists of the gaps between its children. A child starts
// after all children have ended that had ended before it started, plus the gap that was between them and the child; the
// end of the span follows in the same way. The gaps of an edge change in proportion to its time, even off the critical
// path. So everything later moves, and another branch may become critical.
//
// If `from` equals `to`, or is not positive, WhatIf returns the duration unchanged. A faster edge saves at most the
// reduction of its time on the path, and less if another branch ends soon after it. WhatIf underestimates the savings
// if a child did not depend on all the children that had ended before it. It does not change the own time of spans that
// joined others.
//
// The path must have been extracted with [DefaultOptions]. WhatIf takes time O(n log n) in the number of spans.
func (s *Simulation) WhatIf(coarse bool, edge trace.Edge, from, to int64) time.Duration {
	if from == to || from <= 0 {
		return s.run(coarse, nil)
	}
	return s.run(coarse, map[trace.Edge]scale{edge: {to, from}})
}

// run returns the duration of the root with the times of edges scaled by scales, or 0 if s is empty.
func (s *Simulation) run(coarse bool, scales map[trace.Edge]scale) time.Duration {
	r := simulationRun{spans: s.spans, coarse: coarse, scales: scales, nanos: make([]int64, len(s.spans))}
	for i := range slices.Backward(s.spans) { // children before their parents
		r.nanos[i] = r.span(int32(i))
	}
	if len(r.nanos) == 0 {
		return 0
	}
	return time.Duration(r.nanos[0])
}

// simulationRun is the state of one run.
type simulationRun struct {
	spans  []simulated
	coarse bool
	scales map[trace.Edge]scale // of the edges whose time changes
	nanos  []int64              // by span: its new duration

	byStart []int32 // scratch: children of a span by start
	ends    []int64 // scratch, by child: its new end, in ns after the start of its parent
}

// span returns the new duration of span i. The durations of its children must be known.
//
//  1. Take the children in order of their starts.
//  2. Wait for the children that had ended by the start of the next child. All of them were taken before it.
//  3. The next child starts at the latest new end of these children, plus the new gap.
//  4. The end of the span follows in the same way.
func (r *simulationRun) span(i int32) int64 {
	n := &r.spans[i]
	children := r.spans[n.first:n.last]
	r.byStart, r.ends = r.byStart[:0], scratch.Sized(r.ends, len(children))
	for c := range children {
		r.byStart = append(r.byStart, int32(c))
	}
	slices.SortStableFunc(r.byStart, func(a, b int32) int { return cmp.Compare(children[a].start, children[b].start) })

	running := len(children) // children[:running] have not ended
	// The last child that ended, its end, and the latest new end so far.
	ended, end, newEnd := int32(-1), n.start, int64(0)
	wait := func(until trace.Nanos) {
		for running > 0 && children[running-1].end <= until {
			running--
			ended, end, newEnd = int32(running), children[running].end, max(newEnd, r.ends[running])
		}
	}
	op := func(child int32) trace.Op {
		if child < 0 {
			return 0
		}
		return children[child].step
	}
	for _, next := range r.byStart {
		wait(children[next].start)
		start := newEnd + r.gap(n, op(ended), op(next), int64(children[next].start-end))
		r.ends[next] = start + r.nanos[n.first+next]
	}
	wait(n.end)
	return newEnd + r.gap(n, op(ended), 0, int64(n.end-end))
}

// edgeOf returns the edge of the own time that a span in context spends between the steps before and after or, if
// coarse is true, the single edge of all its own time.
func edgeOf(coarse bool, context trace.Context, before, after trace.Op) trace.Edge {
	if coarse {
		return trace.ContextEdge(context)
	}
	return trace.EdgeOf(context, before, after)
}

// scale is the fraction to/from that multiplies gaps.
type scale struct{ to, from int64 }

// of returns nanos·to/from, rounded up so that the gaps of an edge never save more than the edge. It returns at most
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

// gap returns the new length of a gap of n that took nanos. before and after are the steps of the children around the
// gap, or 0 at the start and the end of n.
func (r *simulationRun) gap(n *simulated, before, after trace.Op, nanos int64) int64 {
	if len(r.scales) == 0 || nanos == 0 || n.joined {
		return nanos
	}
	if x, ok := r.scales[edgeOf(r.coarse, n.context, before, after)]; ok {
		return x.of(nanos)
	}
	return nanos
}

const simulationVersion = 1

// AppendBinary appends s to b.
func (s *Simulation) AppendBinary(b []byte) []byte {
	b = codec.AppendUvarints(append(b, simulationVersion), uint64(len(s.spans)))
	if len(s.spans) > 0 {
		b = codec.AppendWords(b, uint64(s.spans[0].start))
	}
	for i := range s.spans {
		n := &s.spans[i]
		b = codec.AppendUvarints(b, uint64(n.start-s.spans[0].start), uint64(n.end-n.start), uint64(n.last-n.first))
		if n.first < n.last {
			b = codec.AppendUvarints(b, uint64(n.first))
		}
		b = codec.AppendWords(b, uint64(n.context), uint64(n.step))
		b = codec.AppendBools(b, n.joined)
	}
	return b
}

// minSimulated is the size in bytes of the smallest encoded span.
const minSimulated = 3 + 16 + 1

// DecodeSimulation decodes the output of [Simulation.AppendBinary] and returns the bytes after it. Errors wrap
// [codec.ErrCorrupt].
func DecodeSimulation(b []byte) (*Simulation, []byte, error) {
	d := codec.NewReader(b)
	d.Version(simulationVersion)
	n := d.Count(minSimulated)
	s := &Simulation{}
	if n > 0 {
		s.spans = make([]simulated, n)
		readSimulated(d, s.spans)
	}
	if d.Bad() {
		return nil, nil, fmt.Errorf("%w: simulation", codec.ErrCorrupt)
	}
	return s, d.Rest(), nil
}

// readSimulated fills spans from d and checks that they form a tree.
func readSimulated(d *codec.Reader, spans []simulated) {
	origin := trace.Nanos(d.Word())
	placed := int32(0) // end of the children of earlier spans
	for i := range spans {
		x := &spans[i]
		x.start = origin + trace.Nanos(d.Below(uint64(trace.MaxDuration)))
		x.end = x.start + trace.Nanos(d.Below(uint64(trace.MaxDuration)))
		if children := d.Below(uint64(len(spans))); children > 0 {
			x.first = int32(d.Below(uint64(len(spans))))
			x.last = x.first + int32(children)
			d.Check(int(x.first) > i && x.first >= placed && int(x.last) <= len(spans))
			placed = x.last
		}
		x.context, x.step = trace.Context(d.Word()), trace.Op(d.Word())
		x.joined = d.Bool()
	}
	for i := range spans {
		x := &spans[i]
		d.Check(x.start <= x.end)
		if d.Bad() {
			return
		}
		for c := x.first; c < x.last; c++ {
			d.Check(spans[c].start >= x.start && spans[c].end <= x.end &&
				(c+1 == x.last || spans[c].end >= spans[c+1].end))
		}
	}
}
