package engine

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// exploring is the arm of requests that have everything on, whatever the plan.
var exploring = arm{name: trace.SymbolOf([]byte(search.ExploreArm)), everything: true}

// explore adds a request that had everything on to the tree of its type and to nothing else, because it was slowed down.
func (c *Core) explore(o *observation.Observation) {
	if id := c.types.Of(o); c.detector.Groups.Group(id) != nil {
		c.observeTree(id, o)
	}
}

// unwell reports whether a request type has an open problem: what its requests take then is no reference.
func (c *Core) unwell(requestType analysis.Hash) bool {
	return slices.ContainsFunc(c.problems, func(p detect.Problem) bool { return p.RequestType == requestType })
}

// onPath makes the times of counts, which are those of o's contexts, inclusive times on the critical path, as shares are
// made of: of switched-on contexts only.
func onPath(o *observation.Observation, counts []cct.ContextCount) {
	for i := range counts {
		counts[i].Nanos = 0
	}
	for _, e := range o.Refined {
		for context := e.Context; ; {
			i, found := slices.BinarySearchFunc(o.Contexts, context, func(c observation.ContextCount, x trace.Context) int { return cmp.Compare(c.Context, x) })
			if !found || o.Contexts[i].Tracepoint == 0 {
				break
			}
			counts[i].Nanos += e.Nanos
			context = o.Contexts[i].Parent
		}
	}
}

// refer fills in by how much the places that a problem's tracepoints showed are above what healthy requests that explored took
// there. Where too few explored to tell a quarter of the edge's excess it says nothing.
func (c *Core) refer(p *detect.Problem, on []trace.Symbol, shares []detect.RefinedShare) {
	t := c.Tree(p.RequestType)
	if t == nil {
		return
	}
	references := t.References(on)
	if len(references) == 0 {
		return
	}
	excess := make(map[trace.Edge]float64, len(p.Edges))
	for i := range p.Edges {
		excess[p.Edges[i].Edge] = p.Edges[i].Excess
	}
	for i := range shares {
		r := &shares[i]
		if ref, known := references[r.Context]; known && 4*ref.Error <= excess[r.Within] {
			r.Excess = r.Mean - ref.Mean
		}
	}
}
