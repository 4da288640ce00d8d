package detect

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Attribute turns the covariance shares in p.Refined into shares of the change of their edge, in place.
//
// If only some requests bear an excess, the time at the place of the excess varies with the duration, and covariance
// finds the place. If all requests bear the same excess, nothing varies with it, and only means can find the place.
// Attribute weights the two by the fraction of requests that bear the excess (see [group.EdgeShare.Affected]).
func (p *Problem) Attribute() {
	if p.Onset != Changed {
		return
	}
	edges := make(map[trace.Edge]*group.EdgeShare, len(p.Edges))
	for i := range p.Edges {
		edges[p.Edges[i].Edge] = &p.Edges[i]
	}
	// A family is the set of places of one arm within one edge.
	order := make([]*RefinedShare, len(p.Refined))
	for i := range p.Refined {
		order[i] = &p.Refined[i]
	}
	sorting.SliceStable(order, func(a, b *RefinedShare) int {
		return cmp.Or(cmp.Compare(a.Within, b.Within), cmp.Compare(a.Arm, b.Arm))
	})
	for len(order) > 0 {
		n := 1
		for n < len(order) && order[n].Within == order[0].Within && order[n].Arm == order[0].Arm {
			n++
		}
		if e := edges[order[0].Within]; e != nil && e.Excess > 0 && !math.IsNaN(e.Affected) {
			weigh(e, order[:n])
		}
		order = order[n:]
	}
}

// weigh sets the shares of family, whose places must all be within e.
func weigh(e *group.EdgeShare, family []*RefinedShare) {
	byMean := meanShares(e, family, scaleOf(e, family))
	for i, r := range family {
		r.Share = blend(r.Share, byMean[i], e.Affected)
		r.ShareLow = blend(r.ShareLow, byMean[i], e.Affected)
		r.ShareHigh = blend(r.ShareHigh, byMean[i], e.Affected)
	}
}

// blend returns the mean of the two shares, by covariance and by mean, weighted by affected. It returns mean if cov is
// not finite.
func blend(cov, mean, affected float64) float64 {
	if math.IsNaN(cov) || math.IsInf(cov, 0) {
		return mean
	}
	return (1-affected)*cov + affected*mean
}

// scaleOf returns the mean of e relative to its mean in the requests of a family. The two differ if the excess varies
// over time, or if only some of the requests of the family ran e. If the mean in the family is unknown, scaleOf returns
// 1.
func scaleOf(e *group.EdgeShare, family []*RefinedShare) float64 {
	for _, r := range family {
		if r.Mean > 0 && r.ShareMean > 0 {
			return e.Mean * r.ShareMean / r.Mean
		}
	}
	return 1
}

// meanShares returns, for each place in family, the expected fraction of e's excess that lies in the subtree of that
// place, assuming that the excess affects all requests alike. Own times are multiplied by scale.
//
// Suppose that the excess lies in a place with the mean own time m. Then the place took m−Δ before, where Δ is the
// excess of the edge, and all other places are unchanged. A priori, the earlier own time may have any order of
// magnitude (density ∝ 1/m), so the odds of the place are m/(m−Δ): small for a place that takes much longer than the
// excess anyway, large for a place that takes little longer, and zero for a place that takes less. The error of Δ blurs
// this. If there is no such place, the excess lies in several, as in the waits for a disk and then for a CPU in one
// function, and we assume that all of them grew alike.
func meanShares(e *group.EdgeShare, family []*RefinedShare, scale float64) []float64 {
	sd := (e.ExcessHigh-e.ExcessLow)/(2*stats.Normal95) + excessError*e.Excess
	odds := func(m float64) float64 {
		short := max(0, e.Excess-m) / sd
		return m / (max(0, m-e.Excess) + sd) * math.Exp(-short*short/2)
	}
	rest, total := e.Mean, severalPlaces
	own := make([]float64, len(family))
	for i, r := range family {
		m := scale * r.Exclusive
		own[i] = odds(m) + severalPlaces*m/e.Mean
		rest -= m
		total += odds(m)
	}
	total += odds(max(0, rest))
	shares := make([]float64, len(family))
	for i := range family {
		for k := range family {
			if under(family, k, family[i].Context) {
				shares[i] += own[k] / total
			}
		}
	}
	return shares
}

// severalPlaces are the odds that an excess lies in several places. A single place has odds above 1 if it takes as long
// as the excess.
const severalPlaces = 0.1

// excessError is the relative error of the excess of one place. It is added to the error of the excess of the whole
// edge.
const excessError = 0.1

// under reports whether place k is context, or lies below it.
func under(family []*RefinedShare, k int, context trace.Context) bool {
	for range len(family) + 1 {
		if family[k].Context == context {
			return true
		}
		parent := slices.IndexFunc(family, func(r *RefinedShare) bool { return r.Context == family[k].Parent })
		if parent < 0 || parent == k {
			return false
		}
		k = parent
	}
	return false
}
