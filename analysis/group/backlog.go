package group

import (
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// A request counts as late if it ended at least lateAfter before the epoch of its arrival. Traces normally close
	// within seconds.
	lateAfter = time.Minute
	// longestBacklog is the maximum delay of a request in a backlog, which also limits the memory for backlogs.
	// Requests with a longer delay have a wrong clock.
	longestBacklog = Day
	// backlogEpochs is the minimum length of a backlog in epochs. Late requests from fewer epochs have a wrong clock.
	backlogEpochs = 3
)

// backlog counts the late requests of an epoch. Many requests are late after the outage of a collector, or if they come
// from a recording. A few delays mean nothing, because clocks may be wrong.
type backlog struct {
	requests uint64 // all requests of the epoch
	late     uint64
	ticks    map[uint64]uint64 // late requests by their delay in ticks
}

// add counts o as a request of the open epoch. closed is the end of the previous epoch, or 0 if there was none, in
// which case no request counts as late.
func (b *backlog) add(o *observation.Observation, closed trace.Nanos) {
	b.requests++
	late := closed.Sub(o.Start.Add(o.Duration))
	if closed == 0 || late < lateAfter || late > longestBacklog {
		return
	}
	if b.ticks == nil {
		b.ticks = make(map[uint64]uint64)
	}
	b.late++
	b.ticks[uint64(late/stats.Tick)]++
}

func (b *backlog) reset() {
	b.requests, b.late = 0, 0
	clear(b.ticks)
}

// span returns the length of time that the late requests come from, or 0 unless most requests of the epoch are late. It
// is the effective number of ticks times their length: ticks with few requests count little.
func (b *backlog) span() time.Duration {
	if 2*b.late <= b.requests {
		return 0
	}
	squares := 0.0
	for _, n := range b.ticks {
		squares += float64(n) * float64(n)
	}
	return time.Duration(float64(b.late) * float64(b.late) / squares * float64(stats.Tick))
}

func (b *backlog) appendBinary(w *codec.Writer) {
	w.Uvarints(b.requests, uint64(len(b.ticks)))
	for _, tick := range slices.Sorted(maps.Keys(b.ticks)) {
		w.Uvarints(tick, b.ticks[tick])
	}
}

// readBacklog reads the backlog that appendBinary wrote.
func readBacklog(d *codec.Reader) backlog {
	b := backlog{requests: d.Uvarint()}
	for range d.Below(uint64(longestBacklog/stats.Tick) + 2) {
		if b.ticks == nil {
			b.ticks = make(map[uint64]uint64)
		}
		tick, n := d.Uvarint(), d.Uvarint()
		b.ticks[tick] += n
		b.late += n
	}
	return b
}
