package backtest

import (
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// clockTolerance is the maximum time from a span's arrival to its end. If a span ends later than that, we consider its
// clock wrong. The tolerance allows for inaccurate arrival times and for merged files.
const clockTolerance = 10 * time.Minute

// Limits on an [arrivals].
const (
	// Number of preceding spans that determine the arrival time of a span: many batches, so that all services are
	// included.
	arrivalsBefore = 16384
	// Minimum number of spans read after a span before it is judged, because the first spans after a pause in the
	// recording only seem to have a wrong clock.
	arrivalsAfter = 256
	leastClocks   = 3       // minimum number of clocks that can have a majority
	maxFast       = 1 << 21 // maximum number of traces from fast clocks; the others keep their times
)

// arrivals finds spans from fast clocks by their position in the file. It relies on the fact that no span ends after it
// arrives.
//
//  1. Each host has a clock, and so does each service whose spans name no host. The time of a clock is the latest end
//     of the last few spans that it dated, because some of them may be late.
//  2. The arrival time at a place in a file is the median of the times of the clocks there, because most clocks are
//     right.
//  3. A span that ends more than [clockTolerance] after its arrival has a wrong clock. An earlier end proves nothing,
//     because spans may be late.
//  4. If most spans in a file did not end about when they arrived, the file isn't in the order of arrival. We then
//     ignore its order.
//
// Call add for the spans in the order of the input and end once, then extent. The zero value is ready to use.
type arrivals struct {
	path    string
	seen    int       // number of spans read from the file
	waiting []arrived // the file's latest spans, which haven't been judged yet
	clocks  map[trace.Symbol]clock
	now     trace.Nanos   // time of arrival; 0 if unknown
	times   []trace.Nanos // scratch
	inOrder int           // number of spans that ended about when they arrived
	// arrival times of the traces that have a span from a fast clock: in this file (found), and in the earlier files
	// (fast)
	found, fast map[trace.ID]trace.Nanos
	lately      []arrived // spans from fast clocks among the last arrivalsBefore spans
}

// arrived is a span waiting to be judged.
type arrived struct {
	trace  trace.ID
	end    trace.Nanos
	number int // number of the span in its file
}

// clock holds the ends of the last spans dated by a clock.
type clock struct {
	ends   [4]trace.Nanos // latest span first
	number int            // number of the latest of these spans in its file
}

// add adds the spans of b, a batch from the file named path.
func (a *arrivals) add(path string, b *ingest.Batch) {
	if path != a.path {
		a.end()
		a.path = path
	}
	if a.clocks == nil {
		a.clocks = make(map[trace.Symbol]clock)
		a.found, a.fast = make(map[trace.ID]trace.Nanos), make(map[trace.ID]trace.Nanos)
	}
	for i := range b.Spans {
		s := &b.Spans[i]
		of := s.Host
		if of == 0 {
			of = s.Service
		}
		a.seen++
		c := a.clocks[of]
		copy(c.ends[1:], c.ends[:])
		c.ends[0], c.number = s.End, a.seen
		a.clocks[of] = c
		a.waiting = append(a.waiting, arrived{b.Traces[i], s.End, a.seen})
		if len(a.waiting) == 2*arrivalsAfter {
			a.judge(arrivalsAfter)
		}
	}
}

// judge judges the first n waiting spans and removes them.
func (a *arrivals) judge(n int) {
	before := a.now
	if a.tell(); before != 0 && a.now.Sub(before) > clockTolerance {
		a.rehabilitate()
	}
	for _, s := range a.waiting[:n] {
		switch d := s.end.Sub(a.now); {
		case a.now == 0:
		case d > clockTolerance:
			if len(a.found) < maxFast {
				a.found[s.trace] = max(a.found[s.trace], a.now)
				a.lately = append(a.lately, s)
			}
		case d >= -clockTolerance:
			a.inOrder++
		}
	}
	a.waiting = slices.Delete(a.waiting, 0, n)
	if len(a.lately) >= 2*arrivalsBefore {
		a.lately = slices.Delete(a.lately, 0, arrivalsBefore)
	}
}

// rehabilitate no longer suspects recent spans of a fast clock if the arrival time has just jumped to their time: they
// were the first spans after a pause in the recording.
func (a *arrivals) rehabilitate() {
	for _, s := range a.lately {
		if s.number >= a.seen-arrivalsBefore && s.end.Sub(a.now) <= clockTolerance {
			delete(a.found, s.trace)
		}
	}
	a.lately = a.lately[:0]
}

// tell sets a.now to the current arrival time, or to 0 if there are fewer than leastClocks clocks.
func (a *arrivals) tell() {
	a.times = a.times[:0]
	for of, c := range a.clocks {
		if c.number < a.seen-arrivalsBefore {
			delete(a.clocks, of)
			continue
		}
		a.times = append(a.times, slices.Max(c.ends[:]))
	}
	a.now = 0
	if len(a.times) >= leastClocks {
		slices.Sort(a.times)
		a.now = a.times[(len(a.times)-1)/2]
	}
}

// end judges the remaining spans of the file. It adds the arrival times in a.found to a.fast, unless the file isn't in
// the order of arrival or there would be more than maxFast.
func (a *arrivals) end() {
	a.judge(len(a.waiting))
	if 2*a.inOrder > a.seen && len(a.fast)+len(a.found) <= maxFast {
		for id, at := range a.found {
			a.fast[id] = max(a.fast[id], at)
		}
	}
	clear(a.clocks)
	clear(a.found)
	a.lately = a.lately[:0]
	a.seen, a.inOrder = 0, 0
}

// extent returns the [Extent] of t without the spans from fast clocks. If all spans are from fast clocks, both results
// are the arrival time of t.
func (a *arrivals) extent(t *trace.Trace) (from, to trace.Nanos) {
	at, found := a.fast[t.ID]
	if !found {
		return Extent(t)
	}
	from, to = math.MaxInt64, 0
	for i := range t.Spans {
		if s := &t.Spans[i]; s.End.Sub(at) <= clockTolerance {
			from, to = min(from, s.Start), max(to, s.Start, s.End)
		}
	}
	if to == 0 {
		return at, at
	}
	return from, to
}

// Extent returns the earliest start and the latest start or end of the spans of t, or [math.MaxInt64] and 0 if t has no
// spans.
func Extent(t *trace.Trace) (from, to trace.Nanos) {
	from = math.MaxInt64
	for i := range t.Spans {
		s := &t.Spans[i]
		from, to = min(from, s.Start), max(to, s.Start, s.End)
	}
	return from, to
}
