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
	// lateAfter is the time between the end of a request and the epoch in which it arrives from which it is late:
	// traces are closed within seconds.
	lateAfter = time.Minute
	// longestBacklog bounds the time by which a request of a backlog is late, and so the memory for them. An older one
	// has a wrong clock.
	longestBacklog = Day
	// backlogEpochs is the number of epochs that a backlog is long at least. Late requests of fewer epochs have a wrong
	// clock.
	backlogEpochs = 3
)

// backlog counts the late requests of an epoch: many come after an outage of a collector, or from a recording. The
// times of some mean nothing, since clocks may be wrong.
type backlog struct {
	requests uint64 // all of the epoch
	late     uint64
	ticks    map[uint64]uint64 // late ones by the number of ticks by which they are late
}

// add adds a request of the epoch after the one that ended at closed; 0: there was none.
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

// span returns the time from which the requests of an epoch come if most of them are late, else 0. It is the effective
// number of ticks: those with few requests count little.
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
