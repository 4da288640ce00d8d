package describe

import (
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// The reason for a severity names the figure and the bound that it reaches.
func TestSeverity(t *testing.T) {
	n := New(&trace.Table{}, func(s string) string { return "<" + s + ">" })
	objective := &Objective{Name: "checkout"}
	for _, c := range []struct {
		x    Severity
		want string
	}{
		{
			Severity{Name: "critical", Bound: 0.5, Service: "payment", Score: 2.1},
			"Averaged over all requests, affected or not, <payment> costs a request 210 % of its usual time; a failed request loses all of it. From 50 % on an incident is critical.",
		},
		{
			Severity{Name: "minor", Lowest: true, Bound: 0.1, Service: "payment", Score: 0.05},
			"Averaged over all requests, affected or not, <payment> costs a request 5 % of its usual time; a failed request loses all of it. Below 10 %, without a missed objective, an incident is minor.",
		},
		{
			Severity{Name: "major", Bound: 0.25, Failing: "shop POST /orders", Failed: 0.37, Service: "payment", Score: 0.01},
			"37 % more of the requests of <shop POST /orders> fail than usual. From 25 % on an incident is major.",
		},
		{Severity{Name: "major", Bound: 0.1, Service: "billing", Score: 383, Waits: true}, "Messages wait for <billing>, but no request waits for them: major."},
		{Severity{Name: "critical", Objective: objective, Fast: true}, "Requests miss the objective <checkout> so fast that its error budget of 30 days is spent within two: critical."},
		{Severity{Name: "major", Objective: objective}, "Requests miss the objective <checkout>: major."},
	} {
		if got := n.Severity(&c.x); got != c.want {
			t.Errorf("%+v: %s\nwant %s", c.x, got, c.want)
		}
	}
}
