package compare

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/trace"
)

// A verdict on a site holds until the calls at the site change. A healthy window leaves one for each site, calls of one
// service replace only verdicts on its sites, and a skipped time before the window replaces all.
func TestVerdicts(t *testing.T) {
	f := tracetest.NewFleet(3)
	h := history.NewSites(f.Table)
	play(h, f, 0, 30*time.Minute, tracetest.Instances(2))
	shop := func(at time.Duration) { h.Merge(callsAt(f.Table, at, at+10*time.Second, int64(100*time.Millisecond))) }
	for at := time.Duration(0); at < 30*time.Minute; at += 10 * time.Second {
		shop(at)
	}
	c := NewComparer(h)
	window := history.Interval{From: trace.Nanos(27 * time.Minute), To: trace.Nanos(30 * time.Minute)}
	held := func() (n int) {
		for i := 1; i <= h.Len(); i++ {
			v := &c.verdicts[i]
			if v.calls > 0 && !h.Changes.Since(h.Series(int32(i)), v.changes) {
				n++
			}
		}
		return n
	}
	c.Compare(window, Brief)
	if got := held(); got != h.Len() {
		t.Fatalf("%d verdicts on %d sites", got, h.Len())
	}
	shop(30*time.Minute - 10*time.Second)
	if got := held(); got != h.Len()-1 {
		t.Errorf("%d verdicts on %d sites after calls at one", got, h.Len())
	}
	h.Skip(1, history.Interval{From: trace.Nanos(29 * time.Minute), To: trace.Nanos(30 * time.Minute)},
		f.Table.Symbol("cart"))
	if got := held(); got != h.Len()-1 {
		t.Errorf("%d verdicts on %d sites after a time in the window was skipped", got, h.Len())
	}
	h.Skip(1, history.Interval{From: trace.Nanos(20 * time.Minute), To: trace.Nanos(30 * time.Minute)},
		f.Table.Symbol("cart"))
	if got := held(); got != 0 {
		t.Errorf("%d verdicts after a time before the window was skipped", got)
	}
}
