package critpath

import (
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// Simulation is the part of a path from which [Simulation.WhatIf] computes how long a request would have taken if edges
// had been faster. It is much smaller than the path and refers to nothing of it. The zero Simulation is empty.
type Simulation struct {
	spans []simulated // those before a span are not below it
	ids   []int32     // scratch of Capture
}

// simulated is a baseline span.
type simulated struct {
	start, end  trace.Nanos // start <= end
	context     trace.Context
	op          trace.Op
	first, last int32 // children: spans[first:last], by descending end
	joined      bool  // it joined other spans
}

// Len returns the number of spans.
func (s *Simulation) Len() int { return len(s.spans) }

// Clone returns a copy of s that shares nothing with it.
func (s *Simulation) Clone() *Simulation { return &Simulation{spans: slices.Clone(s.spans)} }

// Capture fills s, reusing its memory, with root number root of p. It takes time O(n) in the number of nodes of the
// root.
func (s *Simulation) Capture(p *Path, root int) {
	r := &p.Roots[root]
	n := int(r.Last - r.First)
	s.ids = sized(s.ids, n+1)
	s.spans = slices.Grow(s.spans[:0], n)
	for i := r.First; i < r.Last; i++ {
		s.ids[i-r.First] = int32(len(s.spans))
		if node := &p.Nodes[i]; isSimulated(r, i, node) {
			s.spans = s.spans[:len(s.spans)+1]
			x, c := &s.spans[len(s.spans)-1], &p.children[i]
			x.start, x.end, x.context, x.op = node.Start, node.End, node.Full, p.Trace.Spans[node.Span].Op
			x.first, x.last, x.joined = c.candidates-r.First, c.tracepoints-r.First, false // as nodes
		}
	}
	s.ids[n] = int32(len(s.spans))
	for i := range s.spans {
		x := &s.spans[i]
		x.first, x.last = s.ids[x.first], s.ids[x.last]
	}
	if len(p.Trace.Joins) > 0 {
		s.join(p, r)
	}
}

// isSimulated reports whether n, node i of r, can take part: it is baseline, was not dropped and took time.
func isSimulated(r *Root, i int32, n *Node) bool {
	return n.Anchor == i && n.Root >= 0 && (n.Start < n.End || i == r.Node)
}

// join marks the spans that joined others.
func (s *Simulation) join(p *Path, r *Root) {
	joined := make(map[int32]bool)
	for _, j := range p.Trace.Joins {
		joined[j.Span] = true
	}
	for i := r.First; i < r.Last; i++ {
		if n := &p.Nodes[i]; isSimulated(r, i, n) {
			s.spans[s.ids[i-r.First]].joined = joined[n.Span]
		}
	}
}

// WhatIf returns how long the request would have taken if one of its edges had taken to ns instead of from, its time on
// the critical path. With coarse, edges are whole ones, as in a request type: [trace.ContextEdge].
//
// The walk is repeated forwards. The own work of a span is the gaps between its children: a child starts when all the
// children that had ended before it started have ended, and after the gap that lay between; a span ends likewise. Gaps
// of an edge shrink (or grow) in proportion, off the critical path too. So everything that comes later moves, and a
// branch that was not waited for may become the one that is waited for.
//
// Hence the duration is the same if no edge changes. If an edge becomes faster, the request gains at most as much as
// the edge, and less if another branch ends soon after. A child may not have depended on everything that had ended
// before; then the request would gain more than WhatIf returns. Own time of spans that joined others does not change.
//
// It assumes paths that were extracted with [DefaultOptions]. It takes time O(n log n) in the number of spans.
func (s *Simulation) WhatIf(coarse bool, edge trace.Edge, from, to int64) time.Duration {
	if from == to || from <= 0 {
		return s.run(coarse, nil)
	}
	return s.run(coarse, map[trace.Edge]scale{edge: {to, from}})
}

// run returns the duration of the root with the times of edges scaled.
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
	scales map[trace.Edge]scale // of edges whose time changes
	nanos  []int64              // of each span, its new duration
	order  []int32              // scratch: children by start
	ends   []int64              // scratch: of each child, its new end, after the start of its parent
}

// span returns the new duration of span i.
//
// It visits the children by start. Behind index ended of byEnd there are exactly the children that had ended by then,
// all of which were visited before: latest is the new end of the last of them, was its old end.
func (r *simulationRun) span(i int32) int64 {
	n := &r.spans[i]
	children := r.spans[n.first:n.last]
	r.order, r.ends = r.order[:0], sized(r.ends, len(children))
	for c := range children {
		r.order = append(r.order, int32(c))
	}
	slices.SortStableFunc(r.order, func(a, b int32) int { return int(min(1, max(-1, children[a].start-children[b].start))) })
	ended := len(children)
	latest, was, before := int64(0), n.start, int32(-1)
	await := func(cursor trace.Nanos) {
		for ended > 0 && children[ended-1].end <= cursor {
			ended--
			before = int32(ended)
			latest, was = max(latest, r.ends[ended]), children[ended].end
		}
	}
	op := func(child int32) trace.Op {
		if child < 0 {
			return 0
		}
		return children[child].op
	}
	for _, c := range r.order {
		await(children[c].start)
		start := latest + r.gap(n, op(before), op(c), int64(children[c].start-was))
		r.ends[c] = start + r.nanos[n.first+c]
	}
	await(n.end)
	return latest + r.gap(n, op(before), 0, int64(n.end-was))
}

// gap returns the new length of a gap of n between children with the given operations.
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
		if n.first < n.last { // a leaf has none
			b = codec.AppendUvarints(b, uint64(n.first))
		}
		b = codec.AppendWords(b, uint64(n.context), uint64(n.op))
		b = codec.AppendBools(b, n.joined)
	}
	return b
}

// leastSimulated is the number of bytes of the smallest encoded span.
const leastSimulated = 3 + 16 + 1

// DecodeSimulation returns the Simulation that [Simulation.AppendBinary] wrote, and the bytes behind it. An error wraps
// [codec.ErrCorrupt].
func DecodeSimulation(b []byte) (*Simulation, []byte, error) {
	d := codec.NewReader(b)
	d.Version(simulationVersion)
	n := d.Count(leastSimulated)
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

func readSimulated(d *codec.Reader, spans []simulated) {
	origin := trace.Nanos(d.Word())
	placed := int32(0) // children of the spans before lie before it
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
		x.context, x.op = trace.Context(d.Word()), trace.Op(d.Word())
		x.joined = d.Bool()
	}
	for i := range spans {
		x := &spans[i]
		d.Check(x.start <= x.end)
		if d.Bad() {
			return
		}
		for c := x.first; c < x.last; c++ {
			d.Check(spans[c].start >= x.start && spans[c].end <= x.end && (c+1 == x.last || spans[c].end >= spans[c+1].end))
		}
	}
}
