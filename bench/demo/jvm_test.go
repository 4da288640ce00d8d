package demo

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

// Arms are compared window by window with OpenTelemetry's agent.
func TestJVMReport(t *testing.T) {
	r := &JVMReport{Customers: 16, Window: 10, windows: map[Phase]map[Arm][]armWindow{Healthy: {}}}
	for i, arm := range Arms() {
		x := float64(i)
		r.windows[Healthy][arm] = []armWindow{
			{requests: 100, cpu: 3 + x, p50: 10 + x, p95: 20, spans: x},
			{requests: 50, cpu: 7 + x, p50: 11 + x, p95: 44, spans: x},
			{requests: 75, cpu: 1 + x, p50: 12 + x, p95: 30, spans: 3 * x},
		}
	}
	r.Phases = []*JVMPhase{r.compare(Healthy), r.compare(After)}
	r.Runs = []*JVMRun{
		{Result: Result{Fault: shop.JavaLock, Seed: 1, Seconds: 130.2, Correct: true, Edge: &shop.Edge{Service: "catalog", Operation: "ViewCounter.count"}}, Applied: map[Phase]int{Faulty: 7}},
		{Result: Result{Fault: shop.JavaGC, Seed: 1, Seconds: 360}, Applied: map[Phase]int{Healthy: 2, Faulty: 9, After: 1}, AtEnd: 1},
	}
	var b strings.Builder
	err := r.Table(&b)
	const want = ``
	if d := cmp.Diff(want, b.String()); err != nil || d != "" {
		t.Error(err, d)
	}
	if r.Located() != 1 {
		t.Errorf("%d runs located, want 1", r.Located())
	}
}
