package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/notify"
)

// The list, the page, the CLI, the report and the webhook tell the same numbers of an incident: how many times as long
// requests take, from which mean to which, the share affected, since when, and whether it is over. Assistants read the
// answers of the API (cmd/sibyl.TestMCP), and the UI shows them (web/src/logic/incidents.test.ts).
func TestOneTruth(t *testing.T) {
	w := newIncident(t)
	w.tellsOneTruth(t, "open")
	w.play(t, 30, func() bool { return w.now.Sub(w.injected) > 5*time.Minute })
	w.tellsOneTruth(t, "open")
	w.expect(t, http.StatusNoContent, http.MethodPost, "/api/v1/incidents/"+w.incidentID()+"/accept",
		map[string]string{"text": "more items"})
	w.epoch(t)
	w.tellsOneTruth(t, "closed")
}

func (w *harness) tellsOneTruth(t *testing.T, state contract.IncidentState) {
	t.Helper()
	detail := w.incident(t)
	x := &detail.Incident
	if x.Size == nil || x.Size.ShareOfRequests <= 0 || x.State != state {
		t.Fatalf("an incident that is %s, without a size: %+v", state, x)
	}
	if listed := w.incidents(t, "").Items[0]; listed.Sentence != x.Sentence || *listed.Size != *x.Size ||
		!listed.Onset.Equal(x.Onset) || listed.State != x.State {
		t.Errorf("the list has %q %+v, the page %q %+v", listed.Sentence, listed.Size, x.Sentence, x.Size)
	}
	ratio := units.Ratio(x.Size.NowNs/x.Size.BeforeNs) + " times as long"
	before, now := units.Nanos(x.Size.BeforeNs), units.Nanos(x.Size.NowNs)
	share := units.Percent(x.Size.ShareOfRequests) + " of all requests"
	has := func(where, text string, all ...string) {
		t.Helper()
		text = strings.Join(strings.Fields(text), " ") // the CLI wraps lines
		for _, want := range all {
			if !strings.Contains(text, want) {
				t.Errorf("%s, %s: no %q in %s", state, where, want, text)
			}
		}
	}
	has("sentence", x.Sentence, ratio)

	var cli strings.Builder
	if err := client.ShowIncident(&cli, &detail, terminal.Style{Width: 120}, w.clock()); err != nil {
		t.Fatal(err)
	}
	has("CLI", cli.String(), ratio, before+" → "+now, share, x.Onset.Local().Format(time.DateTime))

	report := w.get(t, "/api/v1/incidents/"+x.ID+"/report").Body.String()
	has("report", report, ratio, before+" → "+now, share, x.Onset.UTC().Format(time.DateTime), string(state))

	found, err := json.Marshal(w.webhook().Incident)
	if err != nil {
		t.Fatal(err)
	}
	var sent contract.Incident
	if err := json.Unmarshal(found, &sent); err != nil {
		t.Fatal(err)
	}
	if sent.Size == nil || *sent.Size != *x.Size || !sent.Onset.Equal(x.Onset) || sent.State != state {
		t.Errorf("%s: the webhook has %+v since %v, %s; the page %+v since %v", state,
			sent.Size, sent.Onset, sent.State, x.Size, x.Onset)
	}
	has("webhook", sent.Sentence, ratio)
}

// webhook returns the data of a webhook about the incident now.
func (w *harness) webhook() notify.Data {
	c := w.core.View()
	names := describe.New(c.Table, describe.Verbatim)
	for _, s := range c.AffectedTypes() {
		names.Add(&s)
	}
	return notify.NewIncidentEvent(&notify.IncidentFacts{
		Type:     notify.IncidentOpened,
		At:       c.Ended,
		Incident: &c.Incidents.All()[0],
		Names:    names,
	}).Data
}
