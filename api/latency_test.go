package api

import (
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Bins have one length, cover the span, and one of ticks begins at the edge.
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
		if b.from > from || b.to < to || from.Sub(b.from) >= b.length || b.to.Sub(to) >= b.length || b.to.Sub(b.from)%b.length != 0 {
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

// The durations of the last hour are in bins of a minute, which begin at the onset: none has requests from before and
// after it. Older ones are in longer bins.
func TestGroupLatency(t *testing.T) {
	w := newTroubled(t)
	now := w.now
	onset := store.TickOf(now.Add(-25 * time.Minute))
	all := make(map[store.Tick]*group.Past)
	for at := store.TickOf(now.Add(-time.Hour + time.Minute)); at < now; at = at.Add(stats.Tick) {
		p := &group.Past{}
		ms := int64(10)
		if at >= onset {
			ms = 100
		}
		p.Total.Add(ms * 1e6)
		p.Latency.Add(ms*1e6, 1)
		all[store.Tick{Group: w.history.group, From: at}] = p
	}
	if err := w.history.AddTicks(all); err != nil {
		t.Fatal(err)
	}
	path := prefix + "/groups/" + w.history.group.String() + "/latency"
	query := "?edge=" + at(onset).Format(time.RFC3339)
	d := decode[contract.GroupLatency](t, w.call(t, http.MethodGet, path+query, nil))
	if d.BinNs != time.Minute.Nanoseconds() || len(d.Windows) < 58 || d.Usual == nil {
		t.Fatalf("%d bins of %v, usually %+v", len(d.Windows), time.Duration(d.BinNs), d.Usual)
	}
	for _, x := range d.Windows {
		if len(x.Latency) != 1 || x.To.Sub(x.From) != time.Minute || x.From.Before(at(onset)) != (x.Latency[0].HighNs < 50e6) {
			t.Errorf("bin %+v", x)
		}
	}
	if code := w.call(t, http.MethodGet, path+"?from="+at(now.Add(-3*group.Day)).Format(time.RFC3339), nil).Code; code != http.StatusBadRequest && code != http.StatusUnprocessableEntity {
		t.Errorf("three days: %d", code)
	}
}
