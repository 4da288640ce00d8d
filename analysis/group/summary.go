package group

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Summary describes a group or a request type by its judged requests.
type Summary struct {
	ID          analysis.Hash
	Level       Level
	RequestType analysis.Hash
	Entry       trace.Op
	Name        string // of the request type in the rules, or ""
	// Distinct holds the operations that distinguish a request type from the others with the same entry operation, the
	// most distinctive first. It is empty if the entry operation has only one type.
	Distinct []trace.Op

	Count    uint64
	Failed   uint64 // requests whose root has an error
	Mean     time.Duration
	P50, P99 time.Duration // within 1 % of the exact quantile
	CoV      float64       // NaN for fewer than two requests
	CoVLow   float64       // 95 % interval
	CoVHigh  float64
	// Between is the fraction (0–1) of the variance of a request type that lies between the means of its groups, and is
	// thus explained by their paths. The rest lies within groups. It is NaN for groups, or if there is no variance.
	Between float64
	Edges   []EdgeShare   // in decreasing order of share of the mean; Edge 0, the remainder, last
	Bins    []VariableBin // values that distinguish the group from others with the same path, or nil
	Size    *SizeModel    // has the CoV of the group; nil if the group is not judged by size
	Latency []Bin         // histogram of the durations, ascending, without empty bins
}

// Bin is one bin of a histogram: Count durations in (Low, High].
type Bin struct {
	Low, High time.Duration
	Count     uint64
}

// distinctOps is the maximum number of operations in the name of a request type.
const distinctOps = 3

// Summarize returns the summary of group, which may be a request type.
func (g *Grouper) Summarize(group *Group) Summary {
	w, size := group.Judged(), group.JudgedSize()
	cov := w.CoV(size)
	s := Summary{
		ID:          group.ID,
		Level:       group.Level,
		RequestType: group.RequestType,
		Entry:       group.Entry,
		Name:        g.Types.Name(group.RequestType),
		Distinct:    g.Types.Distinct(group.Entry, group.RequestType, distinctOps),
		Count:       w.Total.N,
		Failed:      w.Failed,
		Mean:        time.Duration(w.Total.Mean()),
		P50:         time.Duration(w.Latency.Quantile(0.5)),
		P99:         time.Duration(w.Latency.Quantile(0.99)),
		CoV:         cov.Value,
		CoVLow:      cov.Low,
		CoVHigh:     cov.High,
		Between:     g.between(group),
		Edges:       group.Shares(g.Table),
		Bins:        g.Keys.bins(group),
		Size:        size,
		Latency:     bins(&w.Latency),
	}
	sorting.SliceStable(s.Edges, func(a, b EdgeShare) int {
		return cmp.Or(trace.CompareBools(a.Edge == 0, b.Edge == 0), cmp.Compare(b.ShareMean, a.ShareMean),
			cmp.Compare(a.Edge, b.Edge))
	})
	return s
}

// between returns the fraction of the variance of group that lies between its groups, or NaN if it is not a request
// type.
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

func bins(s *stats.Sketch) []Bin {
	var all []Bin
	for limit, count := range s.Bins() {
		high := time.Duration(limit)
		all = append(all, Bin{Low: time.Duration(float64(high) / binRatio), High: high, Count: count})
	}
	return all
}

// binRatio is the ratio between the upper and the lower limit of a bin in a sketch with 1 % relative accuracy.
const binRatio = 1.01 / 0.99
