package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/store"
)

// The durations of the last hour are in bins of one minute. One bin starts at the onset, so that no bin mixes requests
// from before and after it. Older durations are in longer bins.
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
		all[store.Tick{Group: w.group, From: at}] = p
	}
	if err := w.store.Ticks.Add(all); err != nil {
		t.Fatal(err)
	}
	path := prefix + "/groups/" + w.group.String() + "/latency"
	query := "?edge=" + render.At(onset).Format(time.RFC3339)
	d := fetch[contract.GroupLatency](t, w, path+query)
	if d.BinNs != time.Minute.Nanoseconds() || len(d.Windows) < 58 || d.Usual == nil {
		t.Fatalf("%d bins of %v, usually %+v", len(d.Windows), time.Duration(d.BinNs), d.Usual)
	}
	for _, x := range d.Windows {
		if len(x.Latency) != 1 || x.To.Sub(x.From) != time.Minute ||
			x.From.Before(render.At(onset)) != (x.Latency[0].HighNs < 50e6) {
			t.Errorf("bin %+v", x)
		}
	}
	code := w.get(t, path+"?from="+render.At(now.Add(-3*group.Day)).Format(time.RFC3339)).Code
	if code != http.StatusBadRequest && code != http.StatusUnprocessableEntity {
		t.Errorf("three days: %d", code)
	}
}
