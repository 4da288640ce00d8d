package backtest

import (
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// clockTolerance is the distance of a span from the time of its arrival from which its clock is wrong. It leaves room
// for the spans that arrive between those that tell the time, and for files that were merged.
const clockTolerance = 10 * time.Minute

// Bounds of an [arrivals].
const (
	arrivalsBefore = 16384   // spans before one that tell its time: many batches, so that all services are among them
	arrivalsAfter  = 256     // spans after it, at least: the first after a pause of the recording have no wrong clock
	leastClocks    = 3       // of fewer there is no majority
	maxFast        = 1 << 21 // traces from fast clocks; further ones keep their times
)

// arrivals finds the spans from clocks that are fast, by their place in their file: no span ends after it arrived.
//
//  1. A host has a clock, or a service whose spans name no host. Its time is the latest end of the last few spans that
//     it dated, since some of them may be late.
//  2. The time of arrival at a place of a file is the median of the times of the clocks there: most clocks are right.
//  3. A span that ends more than [clockTolerance] after it arrived has a wrong clock. Earlier ends are no evidence:
//     spans may be late.
//  4. Unless most spans of a file ended when they arrived, the file is in another order, and tells nothing.
//
// Call add for the spans in the order of the input and end once, then extent. The zero value is ready.
type arrivals struct {
	path    string
	seen    int       // spans of the file
	waiting []arrived // the last of them, which are not judged yet
	clocks  map[trace.Symbol]clock
	now     trace.Nanos   // the time of arrival; 0: unknown
	times   []trace.Nanos // scratch
	inOrder int           // spans that ended when they arrived
	// times of arrival of the traces with a span from a fast clock: in the file, and in all files before
	found, fast map[trace.ID]trace.Nanos
	lately      []arrived // the spans from fast clocks among the last arrivalsBefore
}

// arrived is a span that waits to be judged.
type arrived struct {
	trace  trace.ID
	end    trace.Nanos
	number int // of the span in its file
}

// clock holds the ends of the last spans that a clock dated.
type clock struct {
	ends   [4]trace.Nanos // the last first
	number int            // of the last of these spans
}

// add takes the spans of a batch from a file.
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

// judge judges the first n of the spans that wait.
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

// rehabilitate takes back that clocks are fast if the time of arrival has just leapt to theirs: they were the first
// ones after a pause of the recording.
func (a *arrivals) rehabilitate() {
	for _, s := range a.lately {
		if s.number >= a.seen-arrivalsBefore && s.end.Sub(a.now) <= clockTolerance {
			delete(a.found, s.trace)
		}
	}
	a.lately = a.lately[:0]
}

// tell computes the time of arrival.
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

// end ends a file.
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

// extent returns the [Extent] of t without the spans from fast clocks; if they all are, the time at which t arrived.
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

// Extent returns the start of the first span of t, and the end of the last.
func Extent(t *trace.Trace) (from, to trace.Nanos) {
	from = math.MaxInt64
	for i := range t.Spans {
		s := &t.Spans[i]
		from, to = min(from, s.Start), max(to, s.Start, s.End)
	}
	return from, to
}
