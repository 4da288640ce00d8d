package engine

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// exploreArm is the arm of requests that have all tracepoints enabled. It is the same in every plan.
var exploreArm = arm{name: trace.SymbolOf([]byte(search.ExploreArm)), everything: true}

// setPathTimes sets the times of counts, which belong to o's contexts, to the inclusive times on the critical path,
// because shares are relative to these. Times of baseline contexts become 0.
func setPathTimes(o *observation.Observation, counts []cct.ContextCount) {
	for i := range counts {
		counts[i].Nanos = 0
	}
	for _, e := range o.Refined {
		for context := e.Context; ; {
			i, found := slices.BinarySearchFunc(o.Contexts, context,
				func(c observation.ContextCount, x trace.Context) int { return cmp.Compare(c.Context, x) })
			if !found || o.Contexts[i].Tracepoint == 0 {
				break
			}
			counts[i].Nanos += e.Nanos
			context = o.Contexts[i].Parent
		}
	}
}

// addReferences sets the excess of each share: its mean minus the mean in healthy requests that explored. It leaves out
// contexts whose reference is too uncertain to resolve a quarter of the edge's excess. It does nothing if t is nil or
// has no references.
func addReferences(p *detect.Problem, t *cct.Tree, on []trace.Symbol, shares []detect.RefinedShare) {
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
