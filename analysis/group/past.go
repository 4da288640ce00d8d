package group

import (
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// PastWindow holds the statistics of a group over a period of its past, for display. Recent windows are short, and
// earlier windows are longer.
type PastWindow struct {
	From, To trace.Nanos // [From, To)
	Past
}

// Past holds exact sums of the durations of the requests of a period, and of their times by edge. If there are more
// than pastEdges edges, only the edges with the smallest identities are kept separate, as in a [Tally].
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

// pastEdges is the maximum number of edges that a Past keeps separate.
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
// failed requests.
func (group *Group) Retained() (total stats.Moments, failed uint64) {
	total, failed = group.Open.Total, group.Open.Failed
	for b := range group.history.Buckets() {
		total.Merge(b.Value.Total)
		failed += b.Value.Failed
	}
	return total, failed
}

// recentWindow holds the requests of an epoch of a request type.
type recentWindow struct {
	from, to trace.Nanos
	total    stats.Moments
	failed   uint64
	latency  Latencies
}

// recentKept is the time for which the epochs of a request type are kept one by one. It covers the minutes from the
// onset of an incident, when it starts to affect request types, to its opening.
const recentKept = Proving + time.Minute

// addRecent adds p, the requests of the epoch [from, now], to the recent windows if group is a request type, and
// deletes old windows.
func (group *Group) addRecent(from, now trace.Nanos, p *Past) {
	if group.Level != LevelRequestType {
		return
	}
	old := 0
	for old < len(group.recent) && group.recent[old].to <= now.Add(-recentKept) {
		old++
	}
	w := recentWindow{from: from, to: now, total: p.Total, failed: p.Failed}
	w.latency.merge(&p.Latency)
	group.recent = append(slices.Delete(group.recent, 0, old), w)
}

// Since sums up the requests of a request type between From and Until.
type Since struct {
	From, Until trace.Nanos
	Total       stats.Moments
	Failed      uint64
	Latency     Latencies // of the durations of Total
}

// RequestsSince sums up the requests of a request type from instant until now: in the epochs that start at instant or
// later. If instant is more than recentKept ago, it uses the longer windows of the history that start at instant or
// later or, if there are none with requests, the window around instant.
func (group *Group) RequestsSince(instant, now trace.Nanos) Since {
	s := Since{From: instant, Until: now}
	if instant >= now.Add(-recentKept) {
		for i := range group.recent {
			if w := &group.recent[i]; w.from >= instant {
				s.add(w.total, w.failed, &w.latency)
			}
		}
		return s
	}
	for b := range group.history.Buckets() {
		if from := trace.Nanos(b.From); from >= instant && b.Value.Total.N > 0 {
			if s.Total.N == 0 {
				s.From = from
			}
			s.add(b.Value.Total, b.Value.Failed, &b.Value.Latency)
		}
	}
	if s.Total.N > 0 {
		return s
	}
	for b := range group.history.Buckets() {
		if trace.Nanos(b.From) < instant && trace.Nanos(b.To) > instant {
			s.add(b.Value.Total, b.Value.Failed, &b.Value.Latency)
		}
	}
	return s
}

// Extend adds the requests of the epochs of group that ended after s.Until, and sets s.Until to now.
func (s *Since) Extend(group *Group, now trace.Nanos) {
	for i := range group.recent {
		if w := &group.recent[i]; w.to > s.Until {
			s.add(w.total, w.failed, &w.latency)
		}
	}
	s.Until = now
}

func (s *Since) add(total stats.Moments, failed uint64, latency *Latencies) {
	s.Total.Merge(total)
	s.Failed += failed
	s.Latency.merge(latency)
}

const sinceVersion = 1

// AppendBinary appends s to b.
func (s *Since) AppendBinary(b []byte) []byte {
	e := codec.NewWriter(append(b, sinceVersion))
	e.Times(s.From, s.Until)
	writeRequests(e, s.Total, s.Failed, &s.Latency)
	return e.B
}

// DecodeSince returns the Since that AppendBinary encoded. Errors wrap [codec.ErrCorrupt].
func DecodeSince(b []byte) (s Since, err error) {
	d := codec.NewReader(b)
	d.Version(sinceVersion)
	s.From, s.Until = d.Time(), d.Time()
	s.Total, s.Failed, s.Latency = readRequests(d)
	if d.Bad() || d.Len() > 0 {
		return Since{}, codec.ErrCorrupt
	}
	return s, nil
}

// Mean returns the mean time of a request in e, in ns. p must not be empty.
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

// trim adds the times of all edges beyond the limit to Edge 0.
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
