package group

import (
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// PastWindow is what is kept of the requests of a group over a stretch of its past, for people to look at: windows are short lately and
// ever longer further back.
type PastWindow struct {
	From, To trace.Nanos // [From, To)
	Past
}

// Past is the requests of a stretch of time: exact sums of their durations, and of their times in the edges. Of more than pastEdges edges
// those with the smallest identities are kept apart, as in a [Tally].
type Past struct {
	Total  stats.Moments
	Failed uint64
	Edges  []PastEdge // ascending by Edge; Edge 0, all others, comes first
	// Latency counts the durations of Total, as precisely as the sketch did that they were first in.
	Latency Latencies
}

// PastEdge is the time of all requests together in one edge.
type PastEdge struct {
	Edge  trace.Edge
	Nanos uint64 // or the largest number
}

// pastEdges bounds the edges of a window of the past: half as many again as design counts on in a group.
const pastEdges = 32

// Windows returns what is kept of the past of a group, at most [stats.MaxBuckets] windows, oldest first, without those that had no request.
// The edges belong to the group.
func (group *Group) Windows() []PastWindow {
	var windows []PastWindow
	for b := range group.history.Buckets() {
		windows = append(windows, PastWindow{trace.Nanos(b.From), trace.Nanos(b.To), b.Value})
	}
	return windows
}

// Kept returns the durations of all requests of the group that are kept, and how many of these failed: those of its windows, and of the
// epoch that has not ended.
func (group *Group) Kept() (total stats.Moments, failed uint64) {
	total, failed = group.Open.Total, group.Open.Failed
	for b := range group.history.Buckets() {
		total.Merge(b.Value.Total)
		failed += b.Value.Failed
	}
	return total, failed
}

// Mean returns the mean time of a request in an edge, in ns; NaN without requests.
func (p *Past) Mean(e PastEdge) float64 { return float64(e.Nanos) / float64(p.Total.N) }

// Merge adds the requests of o.
func (p *Past) Merge(o Past) {
	p.Total.Merge(o.Total)
	p.Failed += o.Failed
	p.Edges = slices.Grow(p.Edges, max(0, min(pastEdges+1, len(o.Edges))-len(p.Edges)))
	at := 0
	for _, e := range o.Edges {
		for at < len(p.Edges) && p.Edges[at].Edge < e.Edge {
			at++
		}
		if at == len(p.Edges) || p.Edges[at].Edge != e.Edge {
			p.Edges = slices.Insert(p.Edges, at, PastEdge{Edge: e.Edge})
		}
		p.Edges[at].Nanos = saturatedSum(p.Edges[at].Nanos, e.Nanos)
	}
	p.trim()
	p.Latency.merge(&o.Latency)
}

// trim adds all edges beyond the bound to Edge 0.
func (p *Past) trim() {
	kept := pastEdges
	if len(p.Edges) > 0 && p.Edges[0].Edge == 0 {
		kept++
	}
	if len(p.Edges) <= kept {
		return
	}
	var others uint64
	for _, e := range p.Edges[kept:] {
		others = saturatedSum(others, e.Nanos)
	}
	p.Edges = p.Edges[:kept]
	if kept == pastEdges {
		p.Edges = slices.Insert(p.Edges, 0, PastEdge{})
	}
	p.Edges[0].Nanos = saturatedSum(p.Edges[0].Nanos, others)
}

func saturatedSum(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
