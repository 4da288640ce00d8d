package incident

import (
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

// usualAfter is the age at which changed calls of a service count as usual.
const usualAfter = 10 * time.Minute

// ChangedCalls is a service that makes different calls than before but is neither slower nor failing, as after a
// deploy. It is worth a note but not an incident.
type ChangedCalls struct {
	Service trace.Symbol
	Since   trace.Nanos // start of the first window with different calls
	Seen    trace.Nanos // end of the last such window
	Share   float64     // number of different calls per request of all services
}

// ChangedCalls returns the services whose calls changed at most usualAfter before the last epoch, in ascending order.
func (t *Tracker) ChangedCalls() (all []ChangedCalls) {
	for _, service := range slices.Sorted(maps.Keys(t.changed)) {
		if c := t.changed[service]; t.lastEpoch.Sub(c.Since) <= usualAfter {
			all = append(all, c)
		}
	}
	return all
}

// noteCalls notes the services in f whose only change is that they make different calls.
func (t *Tracker) noteCalls(now trace.Nanos, f *finding, comparer *compare.Comparer) {
	ratio := t.baseline.ratio(comparer.Services.Len())
	for i := range f.Suspects {
		s := &f.Suspects[i]
		if s.Shape <= 0 || s.Shape < t.baseline.threshold(s, flow, f.Requests, ratio) ||
			t.baseline.isRelearned(s.Service) ||
			t.baseline.unusual(s, f.Requests, ratio, 1) || t.incidents.affects(s.Service, f.window.From) {
			continue
		}
		c, known := t.changed[s.Service]
		if !known {
			c = ChangedCalls{Service: s.Service, Since: f.window.From}
		}
		c.Seen, c.Share = now, max(c.Share, s.Shape)
		t.changed[s.Service] = c
	}
	maps.DeleteFunc(t.changed, func(_ trace.Symbol, c ChangedCalls) bool { return now.Sub(c.Seen) > usualAfter })
}
