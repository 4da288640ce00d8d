package compare

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetest"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// shopWith returns a request to a shop that calls its items some number of times, 10 ms each.
func shopWith(items int) string {
	var b strings.Builder
	const ms = 1_000_000
	fmt.Fprintf(&b, "a shop get server 0..%d\n", (50+10*items)*ms)
	for i := range items {
		at := 10 * i * ms
		fmt.Fprintf(&b, "  b%d shop call client %d..%d\n", i, at, at+10*ms)
		fmt.Fprintf(&b, "    c%d items get server %d..%d\n", i, at+ms, at+9*ms)
	}
	return b.String()
}

// TestAddedCallsLive adds calls in a running service, with and without accepting them as normal. All judges find the
// same calls and their time, which counts once.
func TestAddedCallsLive(t *testing.T) {
	table, x := &trace.Table{}, critpath.NewExtractor(critpath.DefaultOptions())
	h := history.NewSites(table)
	play := func(from, to time.Duration, items int) {
		tr, err := tracetext.Parse(shopWith(items), table)
		if err != nil {
			t.Fatal(err)
		}
		for ; from < to; from += history.SliceLength {
			tally := history.NewTally()
			for i := range trace.Nanos(5) {
				tally.Observe(x.Extract(tracetest.Shift(tr, trace.Nanos(from)+i*trace.Nanos(time.Second))))
			}
			h.Merge(tally)
		}
		h.Age(trace.Nanos(to))
	}
	const change = time.Hour
	play(0, change, 2)
	play(change, change+3*time.Minute, 22)
	window := history.Interval{From: trace.Nanos(change), To: trace.Nanos(change + 3*time.Minute)}
	for name, judge := range map[string]Judge{"plain": Plain, "steady": Steady, "brief": Brief} {
		c := NewComparer(h).Compare(window, judge)
		s := &c.Suspects[0]
		if len(s.AddedCalls) != 1 {
			t.Fatalf("%s: %d added calls, want 1", name, len(s.AddedCalls))
		}
		a := s.AddedCalls[0]
		called := table.Text(table.Operation(a.Op).Service)
		if table.Text(s.Service) != "shop" || called != "items" || a.Before != 2 || a.Now != 22 {
			t.Errorf("%s: %s calls %s %v times instead of %v, want shop to call items 22 times instead of 2",
				name, table.Text(s.Service), called, a.Now, a.Before)
		}
		want, all := c.Mean-c.Duration, AddedTime(c.Suspects)*c.Duration
		if a.Nanos != want || all != want {
			t.Errorf("%s: they add %v ns to a call and all suspects %v ns to a request, want %v",
				name, a.Nanos, all, want)
		}
	}
	h.Accept(table.Symbol("shop"), window)
	h.Accept(table.Symbol("items"), window)
	play(change+3*time.Minute, change+6*time.Minute, 22)
	later := history.Interval{From: window.To, To: window.To.Add(3 * time.Minute)}
	if s := NewComparer(h).Compare(later, Steady).Suspects[0]; s.Added != 0 {
		t.Errorf("accepted calls add %v, want 0", s.Added)
	}
}
