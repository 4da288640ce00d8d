package search

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// crossLayer picks the runtime tracepoints, or else the kernel probes, of the first region that has either. If no
// region does, it picks like [Hierarchical].
func crossLayer(q *Question) []Pick {
	for r := range q.Regions {
		for _, layer := range []cct.Layer{cct.Runtime, cct.Kernel} {
			var picks []Pick
			for _, i := range q.spans(r) {
				if c := &q.Candidates[i]; c.Layer == layer && (c.Depth == 1 || c.Layer == cct.Kernel) {
					picks = append(picks, q.Pick(i, q.Regions[r].Share*c.PriorWeight, "the layer below"))
				}
			}
			if len(picks) > 0 {
				sorting.SliceStable(picks, func(a, b Pick) int { return cmp.Compare(b.Score, a.Score) })
				return picks[:min(PicksAtOnce, len(picks))]
			}
		}
	}
	return Hierarchical(q)
}
