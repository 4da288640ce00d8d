package describe

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// The reason for a severity names the figure and the bound that it reaches.
func TestSeverity(t *testing.T) {
	table := &trace.Table{}
	n := New(table, func(s string) string { return "<" + s + ">" })
	n.SetName(shopA, "shop POST /orders")
	of := func(service string, score float64) *engine.Incident {
		return incidentOf(0, compare.Suspect{Service: table.Symbol(service), Score: score})
	}
	failing, waiting, fast, missing := of("payment", 0.01), of("billing", 383), of("payment", 0.01), of("payment", 0.01)
	failing.Types = []engine.AffectedType{{RequestType: shopA, Failed: 0.4, UsualFailed: 0.03}}
	waiting.Suspects[0].Operations = []compare.SuspectOperation{{Queue: true, Score: 383}}
	missing.Objectives = []incident.Missed{{Objective: incident.Objective{Name: "checkout"}, Window: 6 * time.Hour}}
	fast.Objectives = []incident.Missed{{Objective: incident.Objective{Name: "checkout"}, Window: time.Hour}}
	for _, c := range []struct {
		of   *engine.Incident
		want string
	}{
		{
			of("payment", 2.1),
			"Averaged over all requests, affected or not, <payment> costs a request 210 % of its usual time; a failed request loses all of it. " +
				"From 50 % on an incident is critical.",
		},
		{
			of("payment", 0.05),
			"Averaged over all requests, affected or not, <payment> costs a request 5 % of its usual time; a failed request loses all of it. " +
				"Below 10 %, without a missed objective, an incident is minor.",
		},
		{
			failing,
			"40 % of the requests of <shop POST /orders> fail, usually 3 %. " +
				"From 25 percentage points more on an incident is major.",
		},
		{waiting, "Messages wait for <billing>, but no request waits for them: major."},
		{
			fast,
			"Requests miss the objective <checkout> so fast that " +
				"its error budget of 30 days is spent within two: critical.",
		},
		{missing, "Requests miss the objective <checkout>: major."},
	} {
		if got := severity(n, c.of).String(); got != c.want {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}
