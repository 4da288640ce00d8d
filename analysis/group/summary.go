package group

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Summary is what is known about a group, or about a request type as a whole, over the requests that were judged.
type Summary struct {
	ID          analysis.Hash
	Level       Level
	RequestType analysis.Hash
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
	w, size := group.Judged(), group.JudgedSize()
	cov := w.CoV(size)
	s := Summary{
		ID: group.ID, Level: group.Level, RequestType: group.RequestType, Entry: group.Entry, Name: g.Types.Name(group.RequestType),
		Distinct: g.Types.Distinct(group.Entry, group.RequestType, distinctOps),
		Count:    w.Total.N, Failed: w.Failed,
		Mean: time.Duration(w.Total.Mean()),
		P50:  time.Duration(w.Latency.Quantile(0.5)), P99: time.Duration(w.Latency.Quantile(0.99)),
		CoV: cov.Value, CoVLow: cov.Low, CoVHigh: cov.High,
		Between: g.between(group),
		Edges:   group.Shares(g.Table),
		Bins:    g.Keys.bins(group),
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
	if group.Level != LevelRequestType {
		return math.NaN()
	}
	all := g.all()
	first, _ := slices.BinarySearchFunc(all, group.RequestType, func(x *Group, id analysis.Hash) int {
		return cmp.Or(x.RequestType.Compare(id), cmp.Compare(x.Level, LevelGroup))
	})
	var totals []stats.Moments
	for _, x := range all[first:] {
		if x.parent != group {
			break
		}
		totals = append(totals, x.Judged().Total)
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
