package observation

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// EdgeNanos is the time of a request in one edge.
type EdgeNanos struct {
	Edge  trace.Edge
	Nanos int64
}

// AppendContextTimes appends the time that o spent in each baseline context to times, which must be empty, and returns
// them in ascending order of [trace.ContextEdge].
func (o *Observation) AppendContextTimes(times []EdgeNanos) []EdgeNanos {
	for i := range o.Edges {
		times = append(times, EdgeNanos{trace.ContextEdge(o.Edges[i].Context), o.Edges[i].Nanos})
	}
	sortTimes(times)
	out := times[:0]
	for _, x := range times {
		if n := len(out); n > 0 && out[n-1].Edge == x.Edge {
			out[n-1].Nanos += x.Nanos
		} else {
			out = append(out, x)
		}
	}
	return out
}

// AppendTimes appends the time of each baseline edge of o to times, in ascending order of the edge.
func (o *Observation) AppendTimes(times []EdgeNanos) []EdgeNanos {
	for i := range o.Edges {
		times = append(times, EdgeNanos{o.Edges[i].Edge, o.Edges[i].Nanos})
	}
	return times
}

// fewTimes is the largest number of times that we sort by insertion, which is faster for short lists.
const fewTimes = 32

func sortTimes(times []EdgeNanos) {
	if len(times) > fewTimes {
		slices.SortFunc(times, func(a, b EdgeNanos) int { return cmp.Compare(a.Edge, b.Edge) })
		return
	}
	for i := 1; i < len(times); i++ {
		x, j := times[i], i
		for ; j > 0 && x.Edge < times[j-1].Edge; j-- {
			times[j] = times[j-1]
		}
		times[j] = x
	}
}
