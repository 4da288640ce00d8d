package engine

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// The budget includes the cost of all request types and of exploration, even if there is no problem.
func TestBudgetCountsAllTypes(t *testing.T) {
	for _, bytes := range []float64{1, 1e12} {
		app := sim.New(sim.Config{Seed: 3, Tracepoints: 60})
		options := DefaultOptions()
		options.Learning, options.Explore, options.Budget = 30*time.Second, 0.01, search.Budget{Bytes: bytes}
		c := NewCore(app.Table(), options)
		now := trace.Nanos(1_700_000_000_000_000_000)
		c.Announce(now, app.Catalogue())
		for range 6 {
			for x := range app.Requests(now, now.Add(options.Epoch), nil) {
				c.Ingest(x)
			}
			now = now.Add(options.Epoch)
			c.Epoch(now)
		}
		if explores := len(c.View().Searches.Plan().Arms) > 0; explores != (bytes > 1) {
			t.Errorf("budget of %g bytes/s: explores %t, arms %v", bytes, explores, c.View().Searches.Plan().Arms)
		}
	}
}
