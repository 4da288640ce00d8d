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
		{
			Result: Result{
				Fault:   shop.JavaLock,
				Seed:    1,
				Seconds: 130.2,
				Correct: true,
				Edge:    &shop.Edge{Service: "catalog", Operation: "ViewCounter.count"},
			},
			Applied: map[Phase]int{Faulty: 7},
		},
		{
			Result:  Result{Fault: shop.JavaGC, Seed: 1, Seconds: 360},
			Applied: map[Phase]int{Search: 2, Faulty: 9, After: 1},
			AtEnd:   1,
		},
	}
	var b strings.Builder
	err := r.Table(&b)
	const want = `      fault  seed                     answer  correct  seconds  enabled before  with the fault  after  at the end
  java-lock     1  catalog ViewCounter.count     true      130               0               7      0           0
    java-gc     1                          –    false      360               2               9      1           1

    phase               agents  windows  requests  spans/request  CPU, ms/request                ratio  P50, ms                ratio  P95, ms                ratio
  healthy                 none        3       225            0.0             3.00  0.750 (0.500–0.875)     11.0  0.917 (0.909–0.923)     30.0  1.000 (1.000–1.000)
  healthy        opentelemetry        3       225            1.0             4.00  1.000 (1.000–1.000)     12.0  1.000 (1.000–1.000)     30.0  1.000 (1.000–1.000)
  healthy  opentelemetry-again        3       225            2.0             5.00  1.250 (1.125–1.500)     13.0  1.083 (1.077–1.091)     30.0  1.000 (1.000–1.000)
  healthy             adaptive        3       225            3.0             6.00  1.500 (1.250–2.000)     14.0  1.167 (1.154–1.182)     30.0  1.000 (1.000–1.000)
  healthy                  all        3       225            4.0             7.00  1.750 (1.375–2.500)     15.0  1.250 (1.231–1.273)     30.0  1.000 (1.000–1.000)
`
	if d := cmp.Diff(want, b.String()); err != nil || d != "" {
		t.Error(err, d)
	}
	if r.Located() != 1 {
		t.Errorf("%d runs located, want 1", r.Located())
	}
}
