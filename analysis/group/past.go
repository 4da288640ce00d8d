package group

import (
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// PastWindow holds the statistics of a group over a period of its past, for display. Recent windows are short, earlier
// ones longer.
type PastWindow struct {
	From, To trace.Nanos // [From, To)
	Past
}

// Past holds exact sums of the durations of the requests of a period, and of their times by edge. Of more than
// pastEdges edges it keeps those with the smallest identities separate, as a [Tally] does.
type Past struct {
	Total  stats.Moments
	Failed uint64
	Edges  []PastEdge // ascending by Edge; Edge 0, the sum of all others, is first
	// Latency counts the durations of Total.
	Latency Latencies
}

// PastEdge is the total time of all requests in one edge.
type PastEdge struct {
	Edge  trace.Edge
	Nanos uint64 // saturates at the greatest uint64
}

// pastEdges bounds the edges of a PastWindow.
const pastEdges = 32

// Windows returns the history of a group: at most [stats.MaxBuckets] windows with requests, oldest first. The edges
// belong to the group.
func (group *Group) Windows() []PastWindow {
	var windows []PastWindow
	for b := range group.history.Buckets() {
		windows = append(windows, PastWindow{trace.Nanos(b.From), trace.Nanos(b.To), b.Value})
	}
	return windows
}

// Retained returns the durations of all requests in the windows of the group and in the open epoch, and the number of
// failed ones.
func (group *Group) Retained() (total stats.Moments, failed uint64) {
	total, failed = group.Open.Total, group.Open.Failed
	for b := range group.history.Buckets() {
		total.Merge(b.Value.Total)
		failed += b.Value.Failed
	}
	return total, failed
}

// Since holds the requests of a group since an instant.
type Since struct {
	// Total and Failed are of the windows that begin after the instant or, if there are none, of those that end after
	// it.
	Total  stats.Moments
	Failed uint64
	// Requests estimates the number of requests since the instant: those of Total, and of a window around the instant a
	// part.
	Requests float64
	Span     time.Duration // from the instant, or the beginning of the first window if the history begins later, until now
}

// RetainedSince returns the requests since an instant, of the windows until now.
func (group *Group) RetainedSince(instant, now trace.Nanos) Since {
	s := Since{Span: now.Sub(instant)}
	group.eachSince(instant, func(w *Past) {
		s.Total.Merge(w.Total)
		s.Failed += w.Failed
	})
	first := true
	for b := range group.history.Buckets() {
		from, to := trace.Nanos(b.From), trace.Nanos(b.To)
		if first && now.Sub(instant) > stats.Retention {
			s.Span = min(s.Span, now.Sub(from))
		}
		first = false
		if since := max(from, instant); to > since {
			s.Requests += float64(b.Value.Total.N) * float64(to.Sub(since)) / float64(to.Sub(from))
		}
	}
	return s
}

// LatenciesSince returns the counts of the durations of [Since.Total].
func (group *Group) LatenciesSince(instant trace.Nanos) (counts Latencies) {
	group.eachSince(instant, func(w *Past) { counts.merge(&w.Latency) })
	return counts
}

// eachSince calls f for the windows with requests that begin after an instant or, if there are none, for those that end
// after it.
func (group *Group) eachSince(instant trace.Nanos, f func(*Past)) {
	found := false
	for b := range group.history.Buckets() {
		if w := &b.Value; trace.Nanos(b.From) >= instant && w.Total.N > 0 {
			found = true
			f(w)
		}
	}
	if found {
		return
	}
	for b := range group.history.Buckets() {
		if trace.Nanos(b.From) < instant && trace.Nanos(b.To) > instant {
			f(&b.Value)
		}
	}
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
