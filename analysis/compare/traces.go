package compare

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Traces is a selection of traces of a [Recording], in order of time. It becomes invalid if a trace is added to the
// recording.
type Traces struct {
	rec  *Recording
	list []recordedTrace
}

// Select returns the traces of r for which keep returns true. A trace starts with its primary root.
func (r *Recording) Select(keep func(start trace.Nanos, set Set) bool) Traces {
	t := Traces{rec: r}
	for i := range r.Traces {
		if x := &r.Traces[i]; keep(x.start, x.set) {
			t.list = append(t.list, *x)
		}
	}
	sorting.Slice(t.list, recordedTrace.compare)
	return t
}

// Within returns the traces of all sets that start within i.
func (r *Recording) Within(i history.Interval) Traces {
	return r.Select(func(start trace.Nanos, _ Set) bool { return i.Contains(start) })
}

// Outside returns the traces of all sets that start outside of intervals.
func (r *Recording) Outside(intervals []history.Interval) Traces {
	return r.Select(func(start trace.Nanos, _ Set) bool {
		return !slices.ContainsFunc(intervals, func(i history.Interval) bool { return i.Contains(start) })
	})
}

// Of returns the traces of set.
func (r *Recording) Of(set Set) Traces {
	return r.Select(func(_ trace.Nanos, s Set) bool { return s == set })
}

// Len returns the number of traces.
func (t Traces) Len() int { return len(t.list) }

// Extent returns the starts of the first and the last trace, or zeros if t is empty.
func (t Traces) Extent() (first, last trace.Nanos) {
	if len(t.list) == 0 {
		return 0, 0
	}
	return t.list[0].start, t.list[len(t.list)-1].start
}

// UsualScores compares stretches of t with the rest of t, and returns the highest score of each, in order of time.
// These are the scores to expect without a change. A stretch consists of `length` consecutive traces. There are at most
// n stretches, evenly spread. The result is nil if n is less than 4, or t has fewer than 4·length traces. UsualScores
// takes as long as n comparisons.
func (t Traces) UsualScores(length, n int) []float64 {
	const leastStretches = 4
	n = min(n, len(t.list)/max(1, length))
	if n < leastStretches {
		return nil
	}
	scores := make([]float64, n)
	rest := make([]recordedTrace, 0, len(t.list)-length)
	for i := range scores {
		from := i * (len(t.list) - length) / (n - 1)
		to := from + length
		rest = append(append(rest[:0], t.list[:from]...), t.list[to:]...)
		suspects := Traces{t.rec, rest}.Normal().Compare(Traces{t.rec, t.list[from:to]})
		if len(suspects) > 0 {
			scores[i] = suspects[0].Score
		}
	}
	return scores
}
