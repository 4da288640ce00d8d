package describe

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
)

// The sentence about an incident starts with the first objective that it violates, then gives the evidence.
func TestIncidentOfObjective(t *testing.T) {
	s := newShop()
	n := s.names()
	latency := incident.Missed{
		Objective: incident.Objective{Entry: "shop POST /checkout", Below: 300 * time.Millisecond, Percentile: 99},
		Requests:  incident.Count{Requests: 100, Missed: 16},
		Window:    time.Hour,
	}
	failures := incident.Missed{
		Objective: incident.Objective{Name: "Orders arrive", Entry: "shop", Errors: 0.0005},
		Requests:  incident.Count{Requests: 10_000, Missed: 41},
		Window:    6 * time.Hour,
	}
	bank, shop := s.table.Symbol("bank"), s.table.Symbol("shop")
	unknown := []compare.Suspect{{Service: shop}}
	of := func(suspects []compare.Suspect, missed ...incident.Missed) *engine.Incident {
		x := incidentOf(0, suspects...)
		x.Objectives = missed
		return x
	}
	for _, c := range []struct {
		of   *engine.Incident
		want string
	}{
		{
			of(unknown, latency),
			"shop POST /checkout: 16 % of the requests took 300 ms or longer in the last hour (objective: 1 %). No service stands out.",
		},
		{
			closed(of(unknown, latency)),
			"shop POST /checkout: 16 % of the requests took 300 ms or longer within an hour (objective: 1 %). No service stands out.",
		},
		{
			of([]compare.Suspect{{Service: bank, Score: 0.3, Own: 0.3}}, failures, latency),
			"Orders arrive: 0.4 % of the requests failed in the last 6 hours (objective: 0.05 %); 1 more objective is missed. " +
				"All requests take 30 % longer on average since 02:41; all of the added latency is time in bank.",
		},
		{
			closed(of(unknown, failures, latency, latency)),
			"Orders arrive: 0.4 % of the requests failed within 6 hours (objective: 0.05 %); 2 more objectives are missed. No service stands out.",
		},
	} {
		if got := n.sentenceOf(c.of); got != c.want {
			t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
		}
	}
	for want, o := range map[string]incident.Missed{
		"Compare slow traces of shop POST /checkout with usual ones: no service stands out.": latency,
		"Look at failed traces of shop in your tracing backend: no service stands out.":      failures,
	} {
		if got := Advice(n, of(unknown, o), nil, nil).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
