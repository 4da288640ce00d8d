package engine_test

import (
	"math"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
)

// A recorded past that arrives at once, with a fault at its end, is judged like live requests. Healthy requests are the
// expectation. Problems and affected requests date from the onset, not from the arrival.
func TestFaultInPast(t *testing.T) {
	const healthy, faulty = 30 * time.Minute, 4 * time.Minute
	live := newWorld(small(3, sim.CPU), engine.DefaultOptions())
	live.app.Inject(start.Add(healthy))
	live.until(healthy + faulty)

	past := newWorld(small(3, sim.CPU), engine.DefaultOptions())
	past.app.Inject(start.Add(healthy))
	past.now = start.Add(healthy + faulty)
	for tr := range past.app.Requests(start, past.now, nil) {
		past.core.Ingest(tr)
	}
	past.core.Epoch(past.now)
	if opened := past.core.View().Incidents.All(); len(opened) > 0 {
		t.Error("an incident is open before its request types are known")
	}
	for range 2 {
		live.play()
		past.play()
	}
	if len(live.core.View().Incidents.All()) != 1 || len(past.core.View().Incidents.All()) != 1 {
		t.Fatalf("%d incidents live, %d of the past, want one each",
			len(live.core.View().Incidents.All()), len(past.core.View().Incidents.All()))
	}
	want, got := live.core.View().Incidents.All()[0], past.core.View().Incidents.All()[0]
	within := func(name string, got, want, tolerance float64) {
		if math.Abs(got-want) > tolerance*want {
			t.Errorf("%s is %g, live %g", name, got, want)
		}
	}
	if len(got.Types) != len(want.Types) || len(got.Types) == 0 {
		t.Fatalf("%d affected request types, live %d", len(got.Types), len(want.Types))
	}
	for i, x := range got.Types {
		y := want.Types[i]
		within("usual mean", x.Usual, y.Usual, 0.03)
		within("mean", x.Mean, y.Mean, 0.02)
		within("requests", float64(x.Requests), float64(y.Requests), 0.02)
		if whole := past.core.View().Groups.Group(x.RequestType).Reference.Rate(); whole > 0 {
			within("usual rate", whole, live.core.View().Groups.Group(x.RequestType).Reference.Rate(), 0.1)
		}
	}
	within("added latency", got.Impact(past.now).Lost, want.Impact(live.now).Lost, 0.2)
	changed := 0
	for _, p := range past.core.View().Problems.Open() {
		if p.Onset == detect.Chronic {
			t.Errorf("problem of %s is chronic", p.RequestType)
			continue
		}
		changed++
		if after := p.Opened.Sub(start.Add(healthy)); after < 0 || after > faulty {
			t.Errorf("a problem is open since %v after the onset", after)
		}
	}
	if changed == 0 {
		t.Error("no problem changed")
	}
}
