package analysis

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Summary is what is known about a group, or about a request type as a whole, over the requests that were judged.
type Summary struct {
	ID          Hash
	Level       Level
	RequestType Hash
	Entry       trace.Op
	Name        string // that rules give to the request type; "" if they give none
	// Distinct holds, for a request type that is one of several with the same entry operation, the operations of the
	// entry's children that tell it apart, most telling first. Empty where the entry operation is enough of a name.
	Distinct []trace.Op

	Count    uint64
	Failed   uint64 // whose root ended in an error
	Mean     time.Duration
	P50, P99 time.Duration // within 1 % of the exact quantile
	CoV      float64       // NaN under two requests
	CoVLow   float64       // 95 % interval
	CoVHigh  float64
	// Between is the part, 0–1, of the variance of a request type that lies between the means of its groups: the structure explains it.
	// The rest lies within groups. NaN for groups, and where there is no variance.
	Between float64
	Edges   []EdgeShare   // by falling share of the mean; the remainder beyond the bound last, with Edge 0
	Bins    []VariableBin // by which the requests of a group were told apart from those with the same path; nil: by nothing
	Size    *SizeModel    // whose CoV is that of the requests; nil: they are not judged by size
	Latency []Bin         // histogram over the durations, ascending, only bins that are not empty
}

// Bin is one bin of a histogram: Count durations in (Low, High].
type Bin struct {
	Low, High time.Duration
	Count     uint64
}

// distinctOps is how many operations tell a request type apart in its name: more would not be read.
const distinctOps = 3

// Summarize returns what the requests judged say.
func (g *Grouper) Summarize(group *Group) Summary {
	w, size := group.judged(), group.judgedSize()
	cov, low, high := w.cov(size)
	s := Summary{
		ID: group.ID, Level: group.Level, RequestType: group.RequestType, Entry: group.Entry, Name: g.Types.Name(group.RequestType),
		Distinct: g.Types.Distinct(group.Entry, group.RequestType, distinctOps),
		Count:    w.Total.N, Failed: w.Failed,
		Mean: time.Duration(w.Total.Mean()),
		P50:  time.Duration(w.Latency.Quantile(0.5)), P99: time.Duration(w.Latency.Quantile(0.99)),
		CoV: cov, CoVLow: low, CoVHigh: high,
		Between: g.between(group),
		Edges:   g.Shares(group),
		Bins:    g.variableBins(group),
		Size:    size,
		Latency: bins(&w.Latency),
	}
	slices.SortStableFunc(s.Edges, func(a, b EdgeShare) int {
		return cmp.Or(otherLast(a, b), cmp.Compare(b.ShareMean, a.ShareMean), cmp.Compare(a.Edge, b.Edge))
	})
	return s
}

// between returns the part of the variance of a request type that lies between its groups; NaN for a group.
func (g *Grouper) between(group *Group) float64 {
	if group.Level != RequestTypeLevel {
		return math.NaN()
	}
	all := g.all()
	first, _ := slices.BinarySearchFunc(all, group.RequestType, func(x *Group, id Hash) int {
		return cmp.Or(x.RequestType.Compare(id), cmp.Compare(x.Level, GroupLevel))
	})
	var totals []stats.Moments
	for _, x := range all[first:] {
		if x.parent != group {
			break
		}
		totals = append(totals, x.judged().Total)
	}
	return stats.BetweenShare(totals)
}

func otherLast(a, b EdgeShare) int {
	switch {
	case a.Edge == 0 && b.Edge != 0:
		return 1
	case a.Edge != 0 && b.Edge == 0:
		return -1
	}
	return 0
}

func bins(s *stats.Sketch) []Bin {
	var all []Bin
	for limit, count := range s.Bins() {
		high := time.Duration(limit)
		all = append(all, Bin{Low: time.Duration(float64(high) / binRatio), High: high, Count: count})
	}
	return all
}

// binRatio is the ratio of the limits of a bin of a sketch with 1 % relative accuracy.
const binRatio = 1.01 / 0.99

// cov returns the exact CoV of a window with an interval whose relative width comes from the sample or, where there is none, from the
// sketch; or the CoV of the size model that is given.
func (w *Window) cov(size *SizeModel) (value, low, high float64) {
	if size != nil {
		return size.CoV, size.CoVLow, size.CoVHigh
	}
	value = w.Total.CoV()
	_, total := stats.NewTable(w.Sample.All(), nil).Estimates()
	e := total.CoV
	if w.Sample.Len() == 0 {
		e = w.Latency.CoV()
	}
	if !(e.Value > 0) {
		return value, math.NaN(), math.NaN()
	}
	return value, value * e.Low / e.Value, value * e.High / e.Value
}

// table unpacks a sample, a column for each of the group's edges.
func (group *Group) table(sample *stats.Sample[stats.Row]) stats.Table {
	columns := make([]int32, len(group.Edges))
	for i := range columns {
		columns[i] = int32(i)
	}
	return stats.NewTable(sample.All(), columns)
}

// Shares returns the part of every edge of group in the mean and in the variance of the window that is judged, and the excess above its
// reference, ascending by edge. Values are exact, the widths of intervals come from the uniform sample.
func (g *Grouper) Shares(group *Group) []EdgeShare {
	shares := g.exactShares(group)
	g.estimate(group, shares)
	return shares
}

// exactShares returns what Shares does without what comes from the sample, which is NaN.
func (g *Grouper) exactShares(group *Group) []EdgeShare {
	w, ref := group.judged(), &group.Reference
	if w == ref {
		ref = &Window{} // nothing to compare it with
	}
	shares := make([]EdgeShare, 0, len(w.Tally.Edges))
	for i := range w.Tally.Edges {
		e := &w.Tally.Edges[i]
		s := g.share(e, w.Total)
		now, before := e.CoMoments.Moments(w.Total.N), ref.Tally.Edge(e.Edge).CoMoments.Moments(ref.Total.N)
		s.Excess, s.ExcessLow, s.ExcessHigh = excess(now, before)
		s.Affected = affected(s.Excess, now.Variance()-before.Variance())
		if e.Edge == 0 { // its own variance is not known
			s.ExcessLow, s.ExcessHigh, s.Affected = math.NaN(), math.NaN(), math.NaN()
		}
		shares = append(shares, s)
	}
	return shares
}

// estimate fills in what the sample says about shares, in any order, of the edges of the window that is judged: nothing of a reference, which
// has none.
func (g *Grouper) estimate(group *Group, shares []EdgeShare) {
	if group.judged() != &group.Current {
		return
	}
	estimates, _ := group.table(&group.Current.Sample).Estimates()
	for i := range shares {
		s := &shares[i]
		n := g.number(group, s.Edge)
		if _, found := group.Current.Tally.find(s.Edge); !found || n < 0 {
			continue
		}
		e := &estimates[n]
		s.ShareLow = s.ShareVariance - (e.Share.Value - e.Share.Low)
		s.ShareHigh = s.ShareVariance + (e.Share.High - e.Share.Value)
		s.TailLift = e.TailLift.Value
	}
}

// share returns what the exact sums of an edge say.
func (g *Grouper) share(e *EdgeTally, total stats.Moments) EdgeShare {
	info := g.Table.EdgeInfo(e.Edge)
	return EdgeShare{
		Edge: e.Edge, Context: info.Context, Before: info.Before, After: info.After, Callee: info.Callee,
		Mean:          e.CoMoments.Moments(total.N).Mean(),
		ShareMean:     e.MeanShare(total),
		ShareVariance: e.Share(total),
		ShareLow:      math.NaN(), ShareHigh: math.NaN(), TailLift: math.NaN(), Affected: math.NaN(),
	}
}

// affected returns the fraction p of the requests that bears an excess, if these bear the same: it then adds Δ = excess/p to each
// of them and p(1−p)Δ² to the variance.
func affected(excess, variance float64) float64 {
	if !(excess > 0) || math.IsNaN(variance) {
		return math.NaN()
	}
	return 1 / (1 + max(0, variance)/(excess*excess))
}

// normal95 is the two-sided 95 % quantile of the normal distribution.
const normal95 = 1.96

// excess returns by how much the mean of a lies above that of b, in ns, with its 95 % interval (Welch); NaN where either has fewer
// than two requests.
func excess(a, b stats.Moments) (value, low, high float64) {
	if a.N < 2 || b.N < 2 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	value = a.Mean() - b.Mean()
	half := normal95 * math.Sqrt(a.Variance()/float64(a.N)+b.Variance()/float64(b.N))
	return value, value - half, value + half
}
