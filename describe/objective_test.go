package describe

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
)

// The sentence about an incident starts with the first objective that it violates, then gives the evidence.
func TestIncidentOfObjective(t *testing.T) {
	s := newShop()
	n := s.names()
	latency := Objective{Name: "shop POST /checkout", Entry: "shop POST /checkout", Below: 300 * time.Millisecond, Budget: 0.01, Share: 0.16, Window: time.Hour}
	failures := Objective{Name: "Orders arrive", Entry: "shop", Budget: 0.0005, Share: 0.0041, Window: 6 * time.Hour}
	bank, shop := s.table.Symbol("bank"), s.table.Symbol("shop")
	unknown := []compare.Suspect{{Service: shop}}
	for _, c := range []struct {
		of   Incident
		want string
	}{
		{
			Incident{Suspects: unknown, Objectives: []Objective{latency}},
			"shop POST /checkout: 16 % of the requests took 300 ms or longer in the last hour (objective: 1 %). No service stands out.",
		},
		{
			Incident{Suspects: unknown, Objectives: []Objective{latency}, Over: true},
			"shop POST /checkout: 16 % of the requests took 300 ms or longer within an hour (objective: 1 %). No service stands out.",
		},
		{
			Incident{
				Suspects:   []compare.Suspect{{Service: bank, Score: 0.3, Own: 0.3}},
				Objectives: []Objective{failures, latency},
			},
			"Orders arrive: 0.4 % of the requests failed in the last 6 hours (objective: 0.05 %); 1 more objective is missed. " +
				"All requests take 30 % longer on average since 02:41; all of the added latency is time in bank.",
		},
		{
			Incident{Suspects: unknown, Objectives: []Objective{failures, latency, latency}, Over: true},
			"Orders arrive: 0.4 % of the requests failed within 6 hours (objective: 0.05 %); 2 more objectives are missed. No service stands out.",
		},
	} {
		c.of.When = "since 02:41"
		if got := n.Incident(&c.of).String(); got != c.want {
			t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
		}
	}
	for want, o := range map[string]*Objective{
		"Compare slow traces of shop POST /checkout with usual ones: no service stands out.": &latency,
		"Look at failed traces of shop in your tracing backend: no service stands out.":      &failures,
	} {
		if got := n.Advice(&Advice{Suspects: unknown, Objective: o}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
