package api

import (
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
)

// An objective that burns has an incident that names it in its sentence, its next step and its evidence. An objective
// that is met has no incident.
func TestObjectives(t *testing.T) {
	w := newHarnessOf(t, sim.None)
	entry := w.app.Entries()[0]
	name := w.app.Table().ServiceName(entry) + " " + w.app.Table().OpName(entry)
	options := *w.core.View().Options
	options.Objectives = []incident.Objective{
		{Name: "Pages are instant", Entry: name, Below: time.Microsecond, Percentile: 99},
		{Entry: name, Errors: 0.4},
		{Entry: "unused", Below: time.Second, Percentile: 99.9},
	}
	settings := options.Settings()
	if !w.core.Apply(&engine.Change{Settings: &settings}) {
		t.Fatal("the settings were refused")
	}
	w.play(t, 90, func() bool { return len(w.core.View().Incidents.All()) > 0 })
	list := w.get(t, "/api/v1/objectives")
	compareGolden(t, "listObjectives", list.Body.Bytes())
	items := decode[contract.ObjectiveList](t, list).Items
	id := w.incidentID()
	if len(items) != 3 || items[0].Incident == nil || *items[0].Incident != id || items[0].Burning == nil ||
		items[0].Remaining >= 0 {
		t.Errorf("objectives %+v, want the first one with the incident %s", items, id)
	}
	if items[1].Incident != nil || items[1].Burning != nil || items[1].Requests != items[0].Requests ||
		items[2].Requests != 0 || items[2].From != nil {
		t.Errorf("objectives %+v", items[1:])
	}
	d := w.incident(t)
	const want = "Pages are instant: 100 % of the requests took 1 µs or longer in the last hour (objective: 1 %)."
	if x := d.Incident; !strings.HasPrefix(x.Sentence, want) || len(x.Objectives) != 1 ||
		x.Objectives[0].Sentence != want || len(x.Suspects) == 0 {
		t.Errorf("%q, objectives %+v", x.Sentence, x.Objectives)
	}
	if !strings.Contains(d.Next, name) && d.Incident.Score == 0 {
		t.Errorf("next step %q", d.Next)
	}
}
