package search

import (
	"cmp"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// covariance picks tracepoints that are candidates in two operations whose edges vary together, because a common part
// may be the cause. Tracepoints with the largest share of the variance in pairs come first. If there are none, it picks
// like [Hierarchical].
func covariance(q *Question) []Pick {
	type common struct {
		at    int // the first of its candidates
		share float64
	}
	var list []common
	for _, at := range q.spansByTracepoint() {
		if share := q.commonShare(at); share > 0 {
			list = append(list, common{at[0], share})
		}
	}
	sorting.Slice(list, func(a, b common) int {
		return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.at, b.at))
	})
	var picks []Pick
	for _, c := range list[:min(PicksAtOnce, len(list))] {
		picks = append(picks, q.Pick(c.at, c.share, "common to edges that vary together"))
	}
	if len(picks) == 0 {
		return Hierarchical(q)
	}
	return picks
}

// spansByTracepoint returns the candidates that are spans, by tracepoint and in ascending order.
func (q *Question) spansByTracepoint() map[trace.Symbol][]int {
	byTP := make(map[trace.Symbol][]int)
	for i := range q.Candidates {
		if q.IsSpan(i) {
			tp := q.Candidates[i].Tracepoint
			byTP[tp] = append(byTP[tp], i)
		}
	}
	return byTP
}

// commonShare returns the total share of the pairs of edges that belong to two different operations, if both operations
// contain one of the candidates.
func (q *Question) commonShare(candidates []int) float64 {
	operation := make(map[trace.Edge]*group.EdgeShare) // for each edge the first one of its operation
	for _, i := range candidates {
		edges := q.Regions[q.Candidates[i].Region].Edges
		for _, e := range edges {
			operation[e.Edge] = edges[0]
		}
	}
	share := 0.0
	for _, p := range q.Pairs {
		if a, b := operation[p.A], operation[p.B]; a != nil && b != nil && a != b {
			share += p.Share
		}
	}
	return share
}
