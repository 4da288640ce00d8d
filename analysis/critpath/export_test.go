package critpath

import (
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// WhatIf is [Simulation.WhatIf] for several edges. It returns the duration of root number root of p if its edges had
// taken other times. change is called for each edge on the critical path: it receives the time in ns that the edge took
// in this request, and returns another time, at least 0. If coarse is true, edges are [trace.ContextEdge] edges, as in
// a request type.
func WhatIf(p *Path, root int, coarse bool, change func(edge trace.Edge, nanos int64) int64) time.Duration {
	var s Simulation
	s.Capture(p, root)
	return s.run(coarse, scalesOf(p, root, coarse, change))
}

// scalesOf returns the scale of each edge whose time changes.
func scalesOf(p *Path, root int, coarse bool, change func(edge trace.Edge, nanos int64) int64) map[trace.Edge]scale {
	op := func(node int32) trace.Op {
		if node < 0 {
			return 0
		}
		return p.Nodes[node].Step
	}
	totals := make(map[trace.Edge]int64)
	var edges []trace.Edge // in the order of the path
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
		if to := max(0, change(e, totals[e])); to != totals[e] {
			scales[e] = scale{to, totals[e]}
		}
	}
	return scales
}
