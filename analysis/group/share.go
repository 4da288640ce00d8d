package group

import (
	"math"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// EdgeShare is the part that one edge plays in a problem. Shares are fractions of the whole; those of all edges of a problem
// add up to 1. NaN stands for what cannot be computed (no variance, no reference).
type EdgeShare struct {
	Edge          trace.Edge // 0: all edges beyond the bound, together
	Context       trace.Context
	Before, After trace.Op
	Callee        trace.Op // see EdgeTime

	Mean          float64 // ns a request, requests without the edge counting 0
	ShareMean     float64 // E(e)/E(T)
	ShareVariance float64 // Cov(e,T)/Var(T)
	ShareLow      float64 // 95 % interval of ShareVariance
	ShareHigh     float64
	TailLift      float64 // ns: E(e | slowest 10 %) − E(e | rest)
	Excess        float64 // ns a request above the healthy reference, with its 95 % interval
	ExcessLow     float64
	ExcessHigh    float64
	// Affected estimates the fraction of the requests, in (0, 1], that bears the excess: 1 if every request bears the same. NaN
	// without a reference or where there is no excess.
	Affected float64
	Score    float64 // what leading is decided by, for the problem's kind: a share of what is wrong, 0–1 but for noise
}

// Shares returns the part of every edge of group in the mean and in the variance of the window that is judged, and the excess above its
// reference, ascending by edge. Values are exact, the widths of intervals come from the uniform sample. Table names the edges.
func (group *Group) Shares(table *trace.Table) []EdgeShare {
	shares := group.ExactShares(table)
	group.AddEstimates(shares)
	return shares
}

// ExactShares returns the result of Shares with NaN in place of everything that comes from the sample.
func (group *Group) ExactShares(table *trace.Table) []EdgeShare {
	w, ref := group.Judged(), &group.Reference
	if w == ref {
		ref = &Window{} // nothing to compare it with
	}
	shares := make([]EdgeShare, 0, len(w.Tally.Edges))
	for i := range w.Tally.Edges {
		e := &w.Tally.Edges[i]
		s := shareOf(e, w.Total, table)
		before := ref.Tally.Edge(e.Edge)
		s.compare(e.CoMoments.Moments(w.Total.N), before.CoMoments.Moments(ref.Total.N))
		if e.Edge == 0 { // its own variance is not known
			s.ExcessLow, s.ExcessHigh, s.Affected = math.NaN(), math.NaN(), math.NaN()
		}
		shares = append(shares, s)
	}
	return shares
}

// VanishedShares returns the shares of the edges that no request judged has, but the reference had, ascending by edge: time can move away
// from an edge as well as into it.
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

// AddEstimates fills in the parts of shares, in any order, that come from the sample of the window that is judged. A reference has none.
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

// table unpacks a sample, a column for each of the group's edges.
func (group *Group) table(sample *stats.Sample[stats.Row]) stats.Table {
	columns := make([]int32, len(group.numbers.edges))
	for i := range columns {
		columns[i] = int32(i)
	}
	return stats.NewTable(sample.All(), columns)
}

// shareOf returns the share of an edge as far as its exact sums tell.
func shareOf(e *EdgeTally, total stats.Moments, table *trace.Table) EdgeShare {
	info := table.EdgeInfo(e.Edge)
	return EdgeShare{
		Edge: e.Edge, Context: info.Context, Before: info.Before, After: info.After, Callee: info.Callee,
		Mean:          e.CoMoments.Moments(total.N).Mean(),
		ShareMean:     e.MeanShare(total),
		ShareVariance: e.Share(total),
		ShareLow:      math.NaN(), ShareHigh: math.NaN(), TailLift: math.NaN(), Affected: math.NaN(),
	}
}

// compare fills in the excess of the times of an edge above those before.
func (s *EdgeShare) compare(now, before stats.Moments) {
	x := stats.Excess(now, before)
	s.Excess, s.ExcessLow, s.ExcessHigh = x.Value, x.Low, x.High
	s.Affected = affected(s.Excess, now.Variance()-before.Variance())
}

// affected returns the fraction p of the requests that bears an excess, if these bear the same: it then adds Δ = excess/p to each
// of them and p(1−p)Δ² to the variance.
func affected(excess, variance float64) float64 {
	if !(excess > 0) || math.IsNaN(variance) {
		return math.NaN()
	}
	return 1 / (1 + max(0, variance)/(excess*excess))
}
