package group

import (
	"math"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Window holds the statistics of the requests of a group over a period. Windows of the same group can be merged.
type Window struct {
	Tally
	Latency stats.Sketch // of the durations
	// Sample is a uniform sample. Its rows number edges as Group.Edges does, and have a time stamp once their epoch has
	// ended.
	Sample    stats.Sample[stats.Row]
	Transfers stats.Sample[Transfer] // uniform sample of the requests with a size; empty if sizes don't matter
	fitted    *SizeModel             // to Transfers; nil if not yet fitted
	Failed    uint64                 // requests whose root has an error
	First     trace.Nanos            // start of the earliest request or of its epoch; undefined for an empty window
	Last      trace.Nanos            // start of the latest request or end of its epoch
}

// Merge adds the requests of u and keeps at most limit edges separate. It doesn't change u.
func (w *Window) Merge(u *Window, limit int) {
	w.mergeSums(u, limit)
	w.Sample.Merge(u.Sample)
}

// mergeSums is Merge without the sample of rows.
func (w *Window) mergeSums(u *Window, limit int) {
	if u.Total.N == 0 {
		return
	}
	before := w.Total.N
	w.Tally.Merge(&u.Tally, limit)
	w.Latency.Merge(u.Latency)
	w.Transfers.Merge(u.Transfers)
	w.fitted = nil
	w.Failed += u.Failed
	if before == 0 || u.First < w.First {
		w.First = u.First
	}
	w.Last = max(w.Last, u.Last)
}

// Rate returns the requests per second between First and Last, or 0 if First equals Last.
func (w *Window) Rate() float64 {
	span := w.Last.Sub(w.First).Seconds()
	if !(span > 0) {
		return 0
	}
	return float64(w.Total.N) / span
}

// Reset empties w and sets the size of its sample.
func (w *Window) Reset(sample int) {
	*w = Window{Tally: Tally{Edges: w.Tally.Edges[:0]}, Sample: stats.NewSample[stats.Row](sample)}
}

// stamp sets the period of w to its epoch, [from, to], whatever start times its requests claim, because traces arrive
// late and clocks may be wrong. It stamps sampled requests with the end of the epoch, which assigns them to a window of
// the history (see [Group.Windows]).
func (w *Window) stamp(from, to trace.Nanos) {
	w.First, w.Last = from, to
	for _, row := range w.Sample.All() {
		row.Stamp(lastOf(to))
	}
}

// lastOf returns the last nanosecond of the epoch that ends at end, which is also the start of the next epoch.
func lastOf(end trace.Nanos) int64 { return int64(end) - 1 }

// CoV returns the exact CoV of the durations. The relative width of its interval comes from the sample or, if the
// sample is empty, from the sketch; it is NaN if the durations there don't vary. If size is not nil, CoV returns the
// CoV of the size model instead.
func (w *Window) CoV(size *SizeModel) stats.Interval {
	if size != nil {
		return stats.Interval{Value: size.CoV, Low: size.CoVLow, High: size.CoVHigh}
	}
	value := w.Total.CoV()
	_, total := stats.NewTable(w.Sample.All(), nil).Estimates()
	e := total.CoV
	if w.Sample.Len() == 0 {
		e = w.Latency.CoV()
	}
	if !(e.Value > 0) {
		return stats.Interval{Value: value, Low: math.NaN(), High: math.NaN()}
	}
	return stats.Interval{Value: value, Low: value * e.Low / e.Value, High: value * e.High / e.Value}
}

// sizeModel returns the size model of the requests, or nil if they cannot be judged by size.
func (w *Window) sizeModel(timeout time.Duration) *SizeModel {
	n := w.Transfers.Len()
	if n == 0 || float64(n)/w.Transfers.Rate() < sizedPart*float64(w.Total.N) {
		return nil
	}
	if w.fitted == nil {
		w.fitted = fitSizes(&w.Transfers, timeout)
	}
	if w.fitted.Requests == 0 {
		return nil
	}
	return w.fitted
}

// past sets p to those statistics of w that the history keeps.
func (w *Window) past(p *Past) {
	p.Total, p.Failed, p.Edges = w.Total, w.Failed, p.Edges[:0]
	p.Latency.set(&w.Latency)
	for i := range w.Tally.Edges {
		e := &w.Tally.Edges[i]
		nanos := e.Sum.Lo
		if e.Sum.Hi > 0 {
			nanos = math.MaxUint64
		}
		p.Edges = append(p.Edges, PastEdge{e.Edge, nanos})
	}
}
