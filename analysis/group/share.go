package group

import (
	"math"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// EdgeShare is the contribution of one edge to a problem. Shares are fractions, and the shares of all edges of a
// problem add up to 1. NaN marks values that cannot be computed, for lack of variance or of a reference.
type EdgeShare struct {
	Edge          trace.Edge // 0 is the sum of all edges beyond the bound
	Context       trace.Context
	Before, After trace.Op // steps

	Mean          float64 // ns per request; a request without the edge counts as 0
	ShareMean     float64 // E(e)/E(T)
	ShareVariance float64 // Cov(e,T)/Var(T)
	ShareLow      float64 // 95 % interval of ShareVariance
	ShareHigh     float64
	TailLift      float64 // ns: E(e | slowest 10 %) − E(e | rest)
	Excess        float64 // ns per request above the healthy reference, with its 95 % interval
	ExcessLow     float64
	ExcessHigh    float64
	// Affected estimates the fraction (0–1] of requests that bear the excess. It is 1 if all of them bear the same
	// excess, and NaN if there is no reference or no excess.
	Affected float64
	Score    float64 // its share of the excess or variance, depending on the kind of problem: 0–1 apart from noise
}

// Shares returns the shares of all edges in the judged window, with their excess above the reference, ascending by
// edge. Values are exact; the widths of intervals come from the uniform sample. table names the edges.
func (group *Group) Shares(table *trace.Table) []EdgeShare {
	shares := group.ExactShares(table)
	group.AddEstimates(shares)
	return shares
}

// ExactShares is like Shares, but with NaN for the values that come from the sample.
func (group *Group) ExactShares(table *trace.Table) []EdgeShare {
	w, ref := group.Judged(), &group.Reference
	if w == ref {
		ref = &Window{} // there is nothing to compare with
	}
	shares := make([]EdgeShare, 0, len(w.Tally.Edges))
	for i := range w.Tally.Edges {
		e := &w.Tally.Edges[i]
		s := shareOf(e, w.Total, table)
		before := ref.Tally.Edge(e.Edge)
		s.compare(e.CoMoments.Moments(w.Total.N), before.CoMoments.Moments(ref.Total.N))
		if e.Edge == 0 { // the variance of the sum is unknown
			s.ExcessLow, s.ExcessHigh, s.Affected = math.NaN(), math.NaN(), math.NaN()
		}
		shares = append(shares, s)
	}
	return shares
}

// VanishedShares returns the shares of the edges that occur in the reference but in no current request, ascending by
// edge. They matter because a change can also move time away from an edge.
func (group *Group) VanishedShares(table *trace.Table) (shares []EdgeShare) {
	var none EdgeTally
	for i := range group.Reference.Tally.Edges {
		e := &group.Reference.Tally.Edges[i]
		if _, found := group.Current.Tally.find(e.Edge); found {
			continue
		}
		none.Edge = e.Edge
		s := shareOf(&none, group.Current.Total, table)
		x := stats.Excess(none.Moments(group.Current.Total.N), e.CoMoments.Moments(group.Reference.Total.N))
		s.Excess, s.ExcessLow, s.ExcessHigh = x.Value, x.Low, x.High
		shares = append(shares, s)
	}
	return shares
}

// AddEstimates sets the values in shares that come from the sample of the judged window. It does nothing if that window
// is the reference, which has no sample. shares may be in any order.
func (group *Group) AddEstimates(shares []EdgeShare) {
	if group.Judged() != &group.Current {
		return
	}
	estimates, _ := group.table(&group.Current.Sample).Estimates()
	for i := range shares {
		s := &shares[i]
		n := group.numbers.of(s.Edge, group.options.Edges)
		if _, found := group.Current.Tally.find(s.Edge); !found || n < 0 {
			continue
		}
		e := &estimates[n]
		s.ShareLow = s.ShareVariance - (e.Share.Value - e.Share.Low)
		s.ShareHigh = s.ShareVariance + (e.Share.High - e.Share.Value)
		s.TailLift = e.TailLift.Value
	}
}

// table unpacks sample into a column for each edge of the group.
func (group *Group) table(sample *stats.Sample[stats.Row]) stats.Table {
	columns := make([]int32, len(group.numbers.edges))
	for i := range columns {
		columns[i] = int32(i)
	}
	return stats.NewTable(sample.All(), columns)
}

// shareOf returns the share of e in total, with NaN for the values that don't follow from exact sums.
func shareOf(e *EdgeTally, total stats.Moments, table *trace.Table) EdgeShare {
	info := table.EdgeInfo(e.Edge)
	return EdgeShare{
		Edge:          e.Edge,
		Context:       info.Context,
		Before:        info.Before,
		After:         info.After,
		Mean:          e.CoMoments.Moments(total.N).Mean(),
		ShareMean:     e.MeanShare(total),
		ShareVariance: e.Share(total),
		ShareLow:      math.NaN(),
		ShareHigh:     math.NaN(),
		TailLift:      math.NaN(),
		Affected:      math.NaN(),
	}
}

// compare sets the excess of now, the times of an edge, over before, its times in the reference.
func (s *EdgeShare) compare(now, before stats.Moments) {
	x := stats.Excess(now, before)
	s.Excess, s.ExcessLow, s.ExcessHigh = x.Value, x.Low, x.High
	if x.Value > 0 {
		s.Affected = Affected(x.Value, now.Variance()-before.Variance())
	}
}

// Affected returns the fraction p of requests that bear an excess, assuming that all of them bear the same excess.
// excess is the excess of the mean, which must be above 0, and variance the excess of the variance: an affected request
// takes Δ = excess/p longer, which adds p(1−p)Δ² to the variance. The result is NaN if variance is NaN.
func Affected(excess, variance float64) float64 {
	if math.IsNaN(variance) {
		return math.NaN()
	}
	return 1 / (1 + max(0, variance)/(excess*excess))
}
