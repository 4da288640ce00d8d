package analysis

import (
	"math/bits"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// WhatIf returns the duration that root number root of p would have had if the time of each of its edges had been what level
// says: level is given every edge on the critical path with its ns in this request, and returns other ns, at least 0. Edges are
// those of the level at.
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
func WhatIf(p *Path, root int, at Level, level func(edge trace.Edge, nanos int64) int64) time.Duration {
	r := replay{path: p, root: &p.Roots[root], at: at, scales: make(map[trace.Edge]scale)}
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
	at     Level
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
	if r.at == RequestTypeLevel {
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
	nodes, fam := r.path.Nodes, r.path.families[i]
	n := &nodes[i]
	children := int(fam.switched - fam.candidates)
	r.order, r.ends = r.order[:0], sized(r.ends, children)
	for c := fam.candidates; c < fam.switched; c++ {
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

// Recovery is what would come back if an edge were at its reference level.
type Recovery struct {
	Edge     trace.Edge
	Level    time.Duration  // per request
	Requests int            // that were replayed
	Mean     stats.Interval // ns of the mean duration
	MeanPart float64        // of the mean duration, 0–1
	P99      time.Duration  // of the 99th percentile
	P99Part  float64        // 0–1
}

// Recoveries replays requests with one edge after another at its level, and adds up what would come back. An edge that is below
// its level in a request stays as it is. It is not safe for concurrent use.
type Recoveries struct {
	at     Level
	levels []EdgeNanos
	before []float64
	after  [][]float64 // by edge
}

// NewRecoveries returns empty Recoveries for edges of the given level.
func NewRecoveries(at Level, levels []EdgeNanos) *Recoveries {
	return &Recoveries{at: at, levels: slices.Clone(levels), after: make([][]float64, len(levels))}
}

// Add replays root number root of p.
func (r *Recoveries) Add(p *Path, root int) {
	r.before = append(r.before, float64(p.Duration(&p.Roots[root])))
	for i, l := range r.levels {
		after := WhatIf(p, root, r.at, func(edge trace.Edge, nanos int64) int64 {
			if edge == l.Edge {
				return min(nanos, l.Nanos)
			}
			return nanos
		})
		r.after[i] = append(r.after[i], float64(after))
	}
}

// All returns what would come back for each edge, in the order of the levels. Figures are NaN, and times 0, without requests.
func (r *Recoveries) All() []Recovery {
	out := make([]Recovery, len(r.levels))
	for i, l := range r.levels {
		out[i] = r.recovery(l, r.after[i])
	}
	return out
}

func (r *Recoveries) recovery(l EdgeNanos, after []float64) Recovery {
	x := Recovery{Edge: l.Edge, Level: time.Duration(l.Nanos), Requests: len(r.before)}
	saved := stats.Table{Edges: 1, Total: r.before, Cells: make([]float64, len(after))}
	for i := range after {
		saved.Cells[i] = r.before[i] - after[i]
	}
	estimates, _ := saved.Estimates()
	x.Mean, x.MeanPart = estimates[0].Mean, estimates[0].MeanShare.Value
	was, is := stats.Quantile(slices.Clone(r.before), 0.99), stats.Quantile(slices.Clone(after), 0.99)
	x.P99Part = 1 - is/was
	if len(after) > 0 {
		x.P99 = time.Duration(was - is)
	}
	return x
}

// ReferenceLevels returns the level of every edge of p but the remainder: what it took when all was well, or, where that is not known, the median over
// the requests, those without the edge counting 0. Edges that are at their level already are left out.
func ReferenceLevels(p *Problem, requests []*Observation) []EdgeNanos {
	var levels []EdgeNanos
	for i := range p.Edges {
		e := &p.Edges[i]
		if e.Edge == 0 {
			continue
		}
		level := e.Mean - e.Excess
		if e.Excess != e.Excess {
			nanos := make([]float64, len(requests))
			for k, o := range requests {
				nanos[k] = edgeNanos(o, e.Edge, p.Level)
			}
			level = stats.Median(nanos)
		}
		if level >= 0 && level < e.Mean {
			levels = append(levels, EdgeNanos{e.Edge, int64(level)})
		} else if level < 0 {
			levels = append(levels, EdgeNanos{e.Edge, 0})
		}
	}
	return levels
}
