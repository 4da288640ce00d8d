package critpath

import (
	"math/bits"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// WhatIf returns the duration that root number root of p would have had if the time of each of its edges had been the
// result of level. WhatIf calls level once for each edge on the critical path, with its ns in this request; level
// returns ns, at least 0. With coarse, edges are whole ones, as in a request type: [trace.ContextEdge]. See
// [Simulation.WhatIf].
func WhatIf(p *Path, root int, coarse bool, level func(edge trace.Edge, nanos int64) int64) time.Duration {
	var s Simulation
	s.Capture(p, root)
	return s.run(coarse, scalesOf(p, root, coarse, level))
}

// scalesOf returns the scale of each edge whose time level changes.
func scalesOf(p *Path, root int, coarse bool, level func(edge trace.Edge, nanos int64) int64) map[trace.Edge]scale {
	op := func(node int32) trace.Op {
		if node < 0 {
			return 0
		}
		return p.Span(node).Op
	}
	totals := make(map[trace.Edge]int64)
	var edges []trace.Edge
	sections := p.Roots[root].Sections
	for i := range sections {
		s := &sections[i]
		e := edgeOf(coarse, p.Nodes[s.Node].Full, op(s.Before), op(s.After))
		if _, ok := totals[e]; !ok {
			edges = append(edges, e)
		}
		totals[e] += int64(s.End - s.Start)
	}
	scales := make(map[trace.Edge]scale)
	for _, e := range edges {
		if to := max(0, level(e, totals[e])); to != totals[e] {
			scales[e] = scale{to, totals[e]}
		}
	}
	return scales
}

func edgeOf(coarse bool, context trace.Context, before, after trace.Op) trace.Edge {
	if coarse {
		return trace.ContextEdge(context)
	}
	return trace.EdgeOf(context, before, after)
}

// scale is a factor for gaps: to/from.
type scale struct{ to, from int64 }

// of returns nanos·to/from, rounded up, so that the gaps of an edge never save more than the edge.
func (s scale) of(nanos int64) int64 {
	hi, lo := bits.Mul64(uint64(nanos), uint64(s.to))
	lo, carry := bits.Add64(lo, uint64(s.from)-1, 0)
	if hi += carry; hi >= uint64(s.from) {
		return int64(trace.MaxDuration)
	}
	q, _ := bits.Div64(hi, lo, uint64(s.from))
	return int64(min(q, uint64(trace.MaxDuration)))
}
