package notify

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	for _, silent := range []*Event{
		NewEvent(sample(ProblemOpened, "payment", "Pay")),
		NewIncidentEvent(sampleIncident(IncidentAcknowledged, "payment", "Pay")),
	} {
		if silent.Log(log); out.Len() > 0 {
			t.Errorf("%s: %s", silent.Type, out.String())
		}
	}
	facts := sampleIncident(IncidentLocated, "payment", "Pay")
	facts.Incident.Place.Operation = facts.Investigation.Answer() // the sentence names it
	if e := NewIncidentEvent(facts); e.sentence() != e.Data.Incident.Sentence {
		t.Errorf("%s", e.sentence())
	}
	e := NewIncidentEvent(sampleIncident(IncidentOpened, "payment", "Pay"))
	e.Log(log)
	first := "msg=incident change=opened id=" + e.Data.Incident.ID
	for _, want := range []string{first, e.sentence(), e.page()} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %s in %s", want, out.String())
		}
	}
}
