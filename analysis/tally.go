package analysis

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Tally is the exact sums over a set of requests: of their durations, and of their times in each edge. Tallies merge in any
// order to the same bytes. The zero value is the empty set.
type Tally struct {
	Total stats.Moments
	Edges []EdgeTally // ascending by Edge, so that Edge 0, all edges beyond the bound, comes first
}

// EdgeTally is the exact sums for one edge. A request that did not execute it counts as 0 ns and changes nothing here.
type EdgeTally struct {
	Edge     trace.Edge
	Requests uint64 // that spent time in it
	stats.CoMoments
}

// EdgeNanos is the time of a request in one edge.
type EdgeNanos struct {
	Edge  trace.Edge
	Nanos int64
}

// Add adds a request with the given times, ascending by edge, which add up to its duration. Edges that are new once there are
// limit of them are added up in Edge 0. It returns how many edges were new.
func (t *Tally) Add(duration int64, times []EdgeNanos, limit int) int {
	t.Total.Add(duration)
	added, at := 0, 0
	for _, x := range times {
		for at < len(t.Edges) && t.Edges[at].Edge < x.Edge {
			at++
		}
		if at == len(t.Edges) || t.Edges[at].Edge != x.Edge {
			if len(t.Edges) >= limit {
				t.other(x.Nanos, duration)
				at = 0 // Edge 0 may just have been put in front
				continue
			}
			t.Edges = slices.Insert(t.Edges, at, EdgeTally{Edge: x.Edge})
			added++
		}
		t.Edges[at].Requests++
		t.Edges[at].CoMoments.Add(x.Nanos, duration)
	}
	return added
}

// other adds time in an edge beyond the bound.
func (t *Tally) other(nanos, duration int64) {
	if len(t.Edges) == 0 || t.Edges[0].Edge != 0 {
		t.Edges = slices.Insert(t.Edges, 0, EdgeTally{})
	}
	t.Edges[0].Requests++
	t.Edges[0].CoMoments.Add(nanos, duration)
}

// Merge adds the requests of u. Edges that are new once there are limit of them are added up in Edge 0.
func (t *Tally) Merge(u *Tally, limit int) {
	t.Total.Merge(u.Total)
	for i := range u.Edges {
		from := &u.Edges[i]
		at, found := t.find(from.Edge)
		if !found && len(t.Edges) >= limit {
			if at, found = t.find(0); !found {
				t.Edges = slices.Insert(t.Edges, 0, EdgeTally{})
			}
		} else if !found {
			t.Edges = slices.Insert(t.Edges, at, EdgeTally{Edge: from.Edge})
		}
		t.Edges[at].Requests += from.Requests
		t.Edges[at].CoMoments.Merge(from.CoMoments)
	}
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

// Edge returns the sums for e; zero sums where no request executed it.
func (t *Tally) Edge(e trace.Edge) EdgeTally {
	if at, found := t.find(e); found {
		return t.Edges[at]
	}
	return EdgeTally{Edge: e}
}

// Clone returns a copy that shares nothing with t.
func (t *Tally) Clone() Tally {
	return Tally{Total: t.Total, Edges: slices.Clone(t.Edges)}
}

// Reset empties t and keeps its memory.
func (t *Tally) Reset() {
	t.Total, t.Edges = stats.Moments{}, t.Edges[:0]
}
