package engine

import (
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// The times of an operation that only some requests of an incident run are means over all of them, as those of its
// tracepoints are: otherwise these would seem to take too little time for the excess.
func TestLossOfSomeRequests(t *testing.T) {
	x := loss{requests: 50, nanos: 50 * 300, compared: 50, excess: 50 * 200, squares: 50 * 50}
	all, some := x.edge(trace.Context(1), 50), x.edge(trace.Context(1), 200)
	if all.Mean != 300 || all.Excess != 200 || some.Mean != all.Mean/4 || some.Excess != all.Excess/4 {
		t.Errorf("means %g and %g, excesses %g and %g; want 300, 75, 200, 50", all.Mean, some.Mean, all.Excess, some.Excess)
	}
	if got, want := some.ExcessHigh-some.ExcessLow, (all.ExcessHigh-all.ExcessLow)/4; got != want || all.Affected != some.Affected {
		t.Errorf("interval %g wide, want %g; affected %g and %g", got, want, all.Affected, some.Affected)
	}
}
