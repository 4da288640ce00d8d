package compare

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// play adds requests of a fleet to h.
func play(h *history.Sites, f *tracetest.Fleet, from, to time.Duration, all []tracetest.Instance) {
	x := critpath.NewExtractor(critpath.DefaultOptions())
	for ; from < to; from += 30 * time.Second {
		t := history.NewTally()
		f.Play(from, min(to, from+30*time.Second), all, func(tr *trace.Trace) { t.Observe(x.Extract(tr)) })
		h.Merge(t)
	}
	h.Age(trace.Nanos(to))
}

// callsAt returns a tally of a shop whose requests, one per second between from and to, spend nanos in the checkout.
func callsAt(table *trace.Table, from, to time.Duration, nanos int64) *history.Tally {
	tally, x := history.NewTally(), critpath.NewExtractor(critpath.DefaultOptions())
	for at := from; at < to; at += time.Second {
		tally.Observe(x.Extract(tracetest.Checkout(table, at, nanos)))
	}
	return tally
}

// playDays plays days with a request every ten seconds. slow returns the own time at each instant.
func playDays(table *trace.Table, h *history.Sites, from, to time.Duration, slow func(time.Duration) time.Duration) {
	for at := from; at < to; at += 10 * time.Minute {
		for part := at; part < at+10*time.Minute; part += history.SliceLength {
			h.Merge(callsAt(table, part, part+history.SliceLength, int64(slow(part))))
		}
		h.Age(trace.Nanos(at + 10*time.Minute))
	}
}

const testDay = 24 * time.Hour
