package notify

import (
	"testing"
)

// An endpoint on an owner's route receives only incidents whose first suspect belonged to this owner when they opened.
// Other endpoints receive everything.
func TestRoutes(t *testing.T) {
	events := make(map[Type]*Event)
	for _, typ := range []Type{IncidentOpened, IncidentClosed} {
		events[typ] = NewIncidentEvent(sampleIncident(typ, "shop", "POST /checkout"))
	}
	if events[IncidentClosed].Data.Incident.Service == "payment" {
		t.Fatal("the first suspect did not change")
	}
	other := sampleIncident(IncidentOpened, "shop", "POST /checkout")
	other.Incident.Alerted = other.Names.Table.Symbol("shop")
	events["of another owner"], events["of a problem"] = NewIncidentEvent(other),
		NewEvent(sample(ProblemOpened, "shop", "x"))
	for typ, want := range map[Type]bool{
		IncidentOpened:     true,
		IncidentClosed:     true,
		"of another owner": false,
		"of a problem":     true,
	} {
		if e := events[typ]; e.routedTo("payments") != want || !e.routedTo("everything") {
			t.Errorf("%s: routed to payments: %t, want %t; to an endpoint without owner: %t",
				typ, e.routedTo("payments"), want, e.routedTo("everything"))
		}
	}
}
