package critpath

import (
	"math/bits"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// WhatIf returns the duration that root number root of p would have had if the time of each of its edges had been what level
// says: level is given every edge on the critical path with its ns in this request, and returns other ns, at least 0. Coarse says that
// edges are whole ones, as in a request type: [trace.WholeEdge].
//
// The walk is replayed forwards. Every span's own work is the gaps between its children: a child starts when all the children
// that had ended before it started have ended, and after the gap that lay between; a span ends likewise. Gaps of an edge
// shrink (or grow) in proportion, off the critical path too. So all that comes later moves, and a branch that was not waited for may
// become what is waited for.
//
// Hence nothing changes if level changes nothing; if it shortens edges, what comes back is at most what they were shortened by on the
// path, and less where another branch ends soon after. It may be that a child did not depend on all that had ended before: then more would
// come back than is said here. Own time of spans that joined others is left as it is.
//
// Paths are replayed as [DefaultOptions] extract them. It takes time O(n log n) in the number of nodes of the root.
func WhatIf(p *Path, root int, coarse bool, level func(edge trace.Edge, nanos int64) int64) time.Duration {
	r := replay{path: p, root: &p.Roots[root], coarse: coarse, scales: make(map[trace.Edge]scale)}
	r.measure(level)
	return r.run()
}

// scale is a fraction that gaps are multiplied by.
type scale struct{ to, from int64 }

// of returns nanos·to/from, rounded up, so that several gaps never save more than their edge does.
func (s scale) of(nanos int64) int64 {
	hi, lo := bits.Mul64(uint64(nanos), uint64(s.to))
	lo, carry := bits.Add64(lo, uint64(s.from)-1, 0)
	if hi += carry; hi >= uint64(s.from) {
		return int64(trace.MaxDuration) // only what grows without bound
	}
	q, _ := bits.Div64(hi, lo, uint64(s.from))
	return int64(min(q, uint64(trace.MaxDuration)))
}

// replay is one run of [WhatIf].
type replay struct {
	path   *Path
	root   *Root
	coarse bool                 // edges are whole contexts
	scales map[trace.Edge]scale // of edges whose time changes
	joined map[int32]bool       // nodes that joined others
	nanos  []int64              // of each node of the root, from First: the new duration
	order  []int32              // scratch: children by start
	ends   []int64              // scratch: of each child of the family when it ends, after the start of its parent
}

// measure finds out which edges change.
func (r *replay) measure(level func(edge trace.Edge, nanos int64) int64) {
	totals := make(map[trace.Edge]int64)
	var edges []trace.Edge
	for i := range r.root.Sections {
		s := &r.root.Sections[i]
		e := r.edge(s.Node, s.Before, s.After)
		if _, ok := totals[e]; !ok {
			edges = append(edges, e)
		}
		totals[e] += int64(s.End - s.Start)
	}
	for _, e := range edges {
		if to := max(0, level(e, totals[e])); to != totals[e] {
			r.scales[e] = scale{to, totals[e]}
		}
	}
	if len(r.path.Trace.Joins) > 0 {
		r.joined = make(map[int32]bool)
		of := make(map[int32]bool)
		for _, j := range r.path.Trace.Joins {
			of[j.Span] = true
		}
		for i := r.root.First; i < r.root.Last; i++ {
			r.joined[i] = of[r.path.Nodes[i].Span]
		}
	}
}

func (r *replay) edge(node, before, after int32) trace.Edge {
	context := r.path.Nodes[node].Full
	if r.coarse {
		return trace.WholeEdge(context)
	}
	return trace.EdgeOf(context, r.op(before), r.op(after))
}

func (r *replay) op(i int32) trace.Op {
	if i < 0 {
		return 0
	}
	return r.path.Span(i).Op
}

// run returns the root's new duration. Children lie behind their parents in Nodes, so that backwards they come first.
func (r *replay) run() time.Duration {
	r.nanos = make([]int64, r.root.Last-r.root.First)
	for i := r.root.Last - 1; i >= r.root.First; i-- {
		if n := &r.path.Nodes[i]; n.Anchor == i && n.Root >= 0 {
			r.nanos[i-r.root.First] = r.span(i)
		}
	}
	return time.Duration(r.nanos[r.root.Node-r.root.First])
}

// span returns the new duration of node i.
//
// Its children are taken by start. Behind ended there are always those that had ended by then, all of which were taken before:
// latest is when the last of them ends now, was when it did.
func (r *replay) span(i int32) int64 {
	nodes, fam := r.path.Nodes, r.path.children[i]
	n := &nodes[i]
	children := int(fam.tracepoints - fam.candidates)
	r.order, r.ends = r.order[:0], sized(r.ends, children)
	for c := fam.candidates; c < fam.tracepoints; c++ {
		if nodes[c].Start < nodes[c].End {
			r.order = append(r.order, c)
		}
	}
	ended := len(r.order) // in r.byEnd, which is by falling end
	byEnd := slices.Clone(r.order)
	slices.SortStableFunc(r.order, func(a, b int32) int { return int(min(1, max(-1, nodes[a].Start-nodes[b].Start))) })
	latest, was, before := int64(0), n.Start, int32(-1)
	await := func(cursor trace.Nanos) {
		for ended > 0 && nodes[byEnd[ended-1]].End <= cursor {
			ended--
			before = byEnd[ended]
			latest, was = max(latest, r.ends[before-fam.candidates]), nodes[before].End
		}
	}
	for _, c := range r.order {
		await(nodes[c].Start)
		start := latest + r.gap(i, before, c, int64(nodes[c].Start-was))
		r.ends[c-fam.candidates] = start + r.nanos[c-r.root.First]
	}
	await(n.End)
	return latest + r.gap(i, before, -1, int64(n.End-was))
}

// gap returns the new length of a gap between children.
func (r *replay) gap(node, before, after int32, nanos int64) int64 {
	if len(r.scales) == 0 || nanos == 0 || r.joined[node] {
		return nanos
	}
	if s, ok := r.scales[r.edge(node, before, after)]; ok {
		return s.of(nanos)
	}
	return nanos
}
