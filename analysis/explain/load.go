package explain

import (
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// Load knows how many of a set of requests were being served at any time. It is immutable and safe for concurrent use.
type Load struct{ starts, ends []trace.Nanos } // each ascending

// NewLoad returns the load of all requests of some kind (not just a sample of them), each given by its start and duration.
func NewLoad(requests iter.Seq2[trace.Nanos, time.Duration]) *Load {
	l := &Load{}
	for start, duration := range requests {
		l.starts = append(l.starts, start)
		l.ends = append(l.ends, start.Add(duration))
	}
	slices.Sort(l.starts)
	slices.Sort(l.ends)
	return l
}

// At returns how many requests were being served at t, those included that start at t but not those that end.
func (l *Load) At(t trace.Nanos) int {
	upTo := func(times []trace.Nanos) int {
		return sort.Search(len(times), func(i int) bool { return times[i] > t })
	}
	return upTo(l.starts) - upTo(l.ends)
}

// Concurrency returns how many other requests were being served when o, which is one of them, arrived: for [Options].
func (l *Load) Concurrency(o *observation.Observation) float64 { return float64(l.At(o.Start) - 1) }
