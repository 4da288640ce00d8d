package eval

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
)

// TestExplore: exploring requests add spans, which are counted separately from spans of the search.
func TestExplore(t *testing.T) {
	s := Simulation{
		Seeds: []uint64{300}, Faults: []sim.Fault{sim.None}, Strategies: []string{"adaptive"},
		App: sim.Config{Tracepoints: 60}, Engine: engine.DefaultOptions(), Epochs: 3,
	}
	for _, explore := range []float64{0, 0.05} {
		s.Engine.Explore = explore
		runs, err := Simulate(t.Context(), s, func() time.Time { return time.Time{} }, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := &runs[0]
		if (r.ExploreHits > 0) != (explore > 0) || r.ExploreHits > r.SpanHits || r.FalseAlarms > 0 {
			t.Errorf("explore %g: %d of %d spans, %d false alarms", explore, r.ExploreHits, r.SpanHits, r.FalseAlarms)
		}
	}
}
