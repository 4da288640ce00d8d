package search

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Strategy ranks the tracepoints that could be switched on next. [Strategies] returns the published strategies; a
// caller of [Next] may supply another. The zero value stands for the default strategy.
type Strategy struct {
	Name string // in decisions and investigations

	// Pick returns the tracepoints to switch on, best first and each with a reason. It is pure and picks no candidate
	// twice.
	Pick func(q *Question) []Pick

	// Frugal switches a known location off unless its region is searched. Otherwise the location stays on while its own
	// share is a tenth of the leading operation's.
	Frugal bool

	// UsesPairs means that Pick reads Question.Pairs, so that the caller must collect Input.Pairs.
	UsesPairs bool
}

// DefaultStrategy is the name of the strategy that is used if no strategy is named.
const DefaultStrategy = "adaptive"

// Strategies returns the published strategies, ascending by name.
func Strategies() []Strategy {
	return []Strategy{
		defaultStrategy(),
		{Name: "binary", Pick: binary},
		{Name: "covariance", Pick: covariance, UsesPairs: true},
		{Name: "cross-layer", Pick: crossLayer},
		{Name: "hierarchical", Pick: Hierarchical},
	}
}

func defaultStrategy() Strategy { return Strategy{Name: DefaultStrategy, Pick: adaptive, Frugal: true} }

// StrategyNames returns the names of the published strategies, ascending.
func StrategyNames() []string {
	var names []string
	for _, s := range Strategies() {
		names = append(names, s.Name)
	}
	return names
}

// PicksAtOnce bounds the picks of strategies without a bound of their own.
const PicksAtOnce = 8

// Hierarchical picks the direct children of the location with the largest own share. If this location has no children
// to pick, it tries the next locations with at least half that share.
func Hierarchical(q *Question) []Pick {
	var picks []Pick
	for r := range q.Regions {
		if r > 0 && q.Regions[r].Share < q.Regions[0].Share/2 {
			break
		}
		for _, i := range q.Within(r) {
			if c := &q.Candidates[i]; c.Depth == 1 {
				picks = append(picks, q.Pick(i, q.Regions[r].Share, "child of the location with the largest share"))
			}
		}
		if len(picks) > 0 {
			break
		}
	}
	return picks
}

// binary picks the candidate that halves the leading region with candidates, and one for each half.
func binary(q *Question) []Pick {
	for r := range q.Regions {
		list := q.Within(r)
		if len(list) == 0 {
			continue
		}
		s := newSplitter(q, list, func(int) float64 { return 1 })
		var picks []Pick
		for range 3 {
			if i := s.next(); i >= 0 {
				picks = append(picks, q.Pick(i, q.Regions[r].Share, "halves the remaining candidates"))
			}
		}
		return picks
	}
	return nil
}

// covariance picks tracepoints that are candidates in two operations whose edges vary together, because a common part
// may be the cause. The tracepoints with the largest share of the variance in pairs come first. Without such
// tracepoints it picks like [Hierarchical].
func covariance(q *Question) []Pick {
	type common struct {
		at    int // its first candidate
		share float64
	}
	var list []common
	for _, at := range q.spansByTracepoint() {
		if share := q.commonShare(at); share > 0 {
			list = append(list, common{at[0], share})
		}
	}
	slices.SortFunc(list, func(a, b common) int { return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.at, b.at)) })
	var picks []Pick
	for _, c := range list[:min(PicksAtOnce, len(list))] {
		picks = append(picks, q.Pick(c.at, c.share, "common to edges that vary together"))
	}
	if len(picks) == 0 {
		return Hierarchical(q)
	}
	return picks
}

// spansByTracepoint returns the candidates that are spans, ascending for each tracepoint.
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

// commonShare returns the share of the pairs of edges of different operations that both contain one of the given
// candidates.
func (q *Question) commonShare(candidates []int) float64 {
	operation := make(map[trace.Edge]*group.EdgeShare) // the first edge of each edge's operation
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

// crossLayer picks the runtime tracepoints, or else the kernel probes, of the first region that has any. Without them
// it picks like [Hierarchical].
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
				slices.SortStableFunc(picks, func(a, b Pick) int { return cmp.Compare(b.Score, a.Score) })
				return picks[:min(PicksAtOnce, len(picks))]
			}
		}
	}
	return Hierarchical(q)
}
