package group

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Tally holds exact sums over a set of requests: of their durations, and of their times by edge. If there are more
// edges than the limit, it keeps only the edges with the smallest identities separate and adds up the others in Edge 0,
// so that the same requests give the same bytes, whatever the order of adding and merging. The zero value is empty.
type Tally struct {
	Total stats.Moments
	Edges []EdgeTally // ascending by Edge; Edge 0, the sum of all edges beyond the limit, is first
}

// EdgeTally holds exact sums for one edge. A request without the edge counts as 0 ns, which changes no sum. Edge 0
// holds sums over several edges: its mean and its covariance are exact, but its own variance is unknown.
type EdgeTally struct {
	Edge     trace.Edge
	Requests uint64 // requests that spent time in the edge
	stats.CoMoments
}

// Add adds a request. times must be ascending by edge and add up to duration. Add keeps at most limit edges separate,
// and returns the number of edges that it added.
func (t *Tally) Add(duration int64, times []observation.EdgeNanos, limit int) int {
	t.Total.Add(duration)
	added, at := 0, 0
	var other EdgeTally
	for _, x := range times {
		for at < len(t.Edges) && t.Edges[at].Edge < x.Edge {
			at++
		}
		e := &other
		switch {
		case at < len(t.Edges) && t.Edges[at].Edge == x.Edge:
			e = &t.Edges[at]
		case at < len(t.Edges) || at-t.others() < limit:
			t.Edges = slices.Insert(t.Edges, at, EdgeTally{Edge: x.Edge})
			e = &t.Edges[at]
			added++
		}
		e.Requests++
		e.CoMoments.Add(x.Nanos, duration)
	}
	t.trim(&other, limit)
	return added
}

// others returns 1 if there is an Edge 0, and 0 otherwise.
func (t *Tally) others() int {
	if len(t.Edges) > 0 && t.Edges[0].Edge == 0 {
		return 1
	}
	return 0
}

// trim adds other, and all edges after the first `limit` ones, to Edge 0.
func (t *Tally) trim(other *EdgeTally, limit int) {
	if kept := limit + t.others(); len(t.Edges) > kept {
		for i := range t.Edges[kept:] {
			other.merge(&t.Edges[kept+i])
		}
		t.Edges = t.Edges[:kept]
	}
	if other.Requests == 0 {
		return
	}
	if t.others() == 0 {
		t.Edges = slices.Insert(t.Edges, 0, EdgeTally{})
	}
	t.Edges[0].merge(other)
}

// merge adds the sums in `from`.
func (e *EdgeTally) merge(from *EdgeTally) {
	e.Requests += from.Requests
	e.CoMoments.Merge(from.CoMoments)
}

// Merge adds the requests of u and keeps at most limit edges separate.
func (t *Tally) Merge(u *Tally, limit int) {
	t.Total.Merge(u.Total)
	t.Edges = slices.Grow(t.Edges, max(0, len(u.Edges)-len(t.Edges)))
	at := 0
	for i := range u.Edges {
		from := &u.Edges[i]
		for at < len(t.Edges) && t.Edges[at].Edge < from.Edge {
			at++
		}
		if at == len(t.Edges) || t.Edges[at].Edge != from.Edge {
			t.Edges = slices.Insert(t.Edges, at, EdgeTally{Edge: from.Edge})
		}
		t.Edges[at].merge(from)
	}
	t.trim(&EdgeTally{}, limit)
}

func (t *Tally) find(e trace.Edge) (int, bool) {
	return slices.BinarySearchFunc(t.Edges, e, func(x EdgeTally, e trace.Edge) int {
		if x.Edge < e {
			return -1
		}
		if x.Edge > e {
			return 1
		}
		return 0
	})
}

// Edge returns the sums for e, which are zero if no request spent time in e.
func (t *Tally) Edge(e trace.Edge) EdgeTally {
	if at, found := t.find(e); found {
		return t.Edges[at]
	}
	return EdgeTally{Edge: e}
}
