package requests

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bins have equal length and cover the span. If they consist of ticks, one of them starts at the edge.
func TestBinsOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := trace.Nanos(1e18)
		from := now.Add(-time.Duration(rapid.Int64Range(1, int64(3*group.Day)).Draw(t, "ago")))
		to := from.Add(time.Duration(rapid.Int64Range(1, int64(now.Sub(from))).Draw(t, "span")))
		edge := from.Add(time.Duration(rapid.Int64Range(-1e12, 1e12).Draw(t, "edge")))
		b := binsOf(from, to, edge, now)
		if b.length == 0 {
			if to.Sub(from) <= shortSpan {
				t.Fatalf("no bins for %v", to.Sub(from))
			}
			return
		}
		if b.from > from || b.to < to || from.Sub(b.from) >= b.length || b.to.Sub(to) >= b.length ||
			b.to.Sub(b.from)%b.length != 0 {
			t.Fatalf("bins of %v from %d to %d for %d to %d", b.length, b.from, b.to, from, to)
		}
		if n := b.to.Sub(b.from) / b.length; n > 300 {
			t.Fatalf("%d bins", n)
		}
		known := stats.Tick
		if from < now.Add(-live.TicksKept) {
			known = time.Minute
		}
		if start := edge - edge%trace.Nanos(known); b.ticks && (start.Sub(b.from)%b.length != 0 || b.length < known) {
			t.Fatalf("no bin of %v begins at %d", b.length, start)
		}
		if b.ticks && from < now.Add(-live.MinutesKept) {
			t.Fatal("bins of minutes that are deleted")
		}
	})
}
