package engine

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// An operation that healthy requests of the type did not run costs all of its time; without healthy requests it is no
// evidence.
func TestLossOfNewOperations(t *testing.T) {
	var now stats.Moments
	for range 20 {
		now.Add(300)
	}
	var fresh, unknown loss
	fresh.add(now, stats.Moments{N: 100})
	unknown.add(now, stats.Moments{})
	if got := fresh.edge(trace.Context(1)).Excess; got != 300 {
		t.Errorf("excess %g of a new operation, want 300", got)
	}
	if unknown.excess != 0 || unknown.compared != 0 {
		t.Errorf("excess %g without healthy requests", unknown.excess)
	}
}
