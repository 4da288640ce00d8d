package backtest

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// deployed adds requests of shop, which calls items and prices. Ten minutes before the fault, a new version of items is
// deployed. It has more internal spans and calls cache, but takes as long as the old one.
type deployed struct {
	*untidy
	requests  int
	slow      string // service that is slow during the fault
	failing   string // service that fails every second call during the fault
	newCalls  int    // calls to cache per request to items
	newInside int    // internal spans of the new version
}

const deployAfter = 20 * time.Minute

// Times that services work for.
const (
	deployedWorks = 20 * ms
	cacheWorks    = 8 * ms
	inside        = 2 * ms // per internal span
)

// newVersion reports whether the new version of items serves the current request.
func (d *deployed) newVersion() bool { return d.requests >= int(deployAfter/time.Second) }

// work returns how long service works.
func (d *deployed) work(service string) time.Duration {
	usual := deployedWorks
	switch {
	case service == "cache":
		usual = cacheWorks
	case service == "items" && d.newVersion():
		usual -= time.Duration(d.newInside)*inside + time.Duration(d.newCalls)*(cacheWorks+2*ms)
	}
	if d.slow == service {
		return d.either(usual, usual+3*deployedWorks)
	}
	return usual
}

// serves is like serve, but includes the fault of the service.
func (d *deployed) serves(
	parent trace.SpanID, service, name string, at trace.Nanos, body func(id trace.SpanID, at trace.Nanos) trace.Nanos,
) (end trace.Nanos) {
	end = d.serve(parent, service, name, at, d.work(service), body)
	if d.faulty && d.failing == service && d.rng.IntN(2) == 0 {
		d.t.Spans[len(d.t.Spans)-1].Flags |= trace.ByStatus.Fail()
	}
	return end
}

// item adds the span of items below a call.
func (d *deployed) item(parent trace.SpanID, at trace.Nanos) (end trace.Nanos) {
	return d.serves(parent, "items", "GET /item", at, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		if !d.newVersion() {
			return at
		}
		for range d.newInside {
			end := at.Add(d.about(inside))
			d.span(d.id(), id, "items", "validate", trace.Internal, at, end)
			at = end
		}
		for range d.newCalls {
			at = d.call(id, "items", at, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
				return d.serves(id, "cache", "GET", at, nil)
			})
		}
		return at
	})
}

// request adds a request.
func (d *deployed) request(at trace.Nanos) {
	d.requests++
	d.serves(0, "shop", "GET /shop", at, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
		at = d.call(id, "shop", at, d.item)
		return d.call(id, "shop", at, func(id trace.SpanID, at trace.Nanos) trace.Nanos {
			return d.serves(id, "prices", "GET /price", at, nil)
		})
	})
}

// TestDeployHidesNothing plays a deploy that changes the calls of a service, followed by a fault in that service, its
// caller, its new callee or another service. Each fault is a separate incident that starts with the fault and has the
// right service first.
func TestDeployHidesNothing(t *testing.T) {
	for _, test := range []struct {
		slow, failing       string
		newCalls, newInside int
	}{
		{"items", "", 0, 2},
		{"shop", "", 0, 2},
		{"prices", "", 0, 2},
		{"", "items", 0, 2},
		{"", "shop", 0, 2},
		{"", "prices", 0, 2},
		{"items", "", 1, 0},
		{"prices", "", 1, 0},
		{"cache", "", 1, 0},
		{"", "items", 1, 2},
		{"", "cache", 1, 2},
	} {
		want := test.slow + test.failing
		t.Run(want, func(t *testing.T) {
			d := &deployed{
				untidy:    newUntidy(),
				slow:      test.slow,
				failing:   test.failing,
				newCalls:  test.newCalls,
				newInside: test.newInside,
			}
			r := d.play(d.request)
			var found bool
			for i := range r.Incidents {
				x := &r.Incidents[i]
				late := time.Duration(x.Onset - untidyFrom.Add(faultAfter))
				first := d.table.Text(x.Suspects[0].Service)
				found = true
				if first != want || late < -20*time.Second || late > 20*time.Second {
					t.Errorf("an incident of %s that began %v after the fault; want %s", first, late, want)
				}
			}
			if !found {
				t.Error("the fault raised no incident")
			}
		})
	}
}
