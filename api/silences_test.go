package api

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/api/cases"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/trace"
)

// silence returns a request for a silence of an hour that matches as given, with further fields.
func (w *harness) silence(match any, more map[string]any) map[string]any {
	body := map[string]any{"match": match, "until": w.clock().Add(time.Hour), "text": "upgrade"}
	maps.Copy(body, more)
	return body
}

// A silence marks the open incidents that match, and no others, until a person ends it. It survives a restart.
func TestSilence(t *testing.T) {
	w := newIncident(t)
	out := w.call(t, http.MethodPost, "/api/v1/silences", w.silence(map[string]any{"service": "check*"}, nil))
	if out.Code != http.StatusCreated {
		t.Fatal(out.Body)
	}
	list := w.incidents(t, "")
	x := list.Items[0].Silenced
	if list.Silenced != 1 || list.Open != 1 || x == nil || x.By != "local" || x.Text != "upgrade" ||
		!x.Until.Equal(w.clock().Add(time.Hour)) {
		t.Errorf("%d of %d silenced, as %+v", list.Silenced, list.Open, x)
	}
	for query, want := range map[string]int{"?silenced=true": 1, "?silenced=false": 0} {
		if got := w.incidents(t, query).Total; got != want {
			t.Errorf("%s: %d incidents, want %d", query, got, want)
		}
	}
	if got := w.incident(t).Incident.Silenced; cmp.Diff(x, got) != "" {
		t.Errorf("the detail has %+v, the list %+v", got, x)
	}
	report := w.get(t, "/api/v1/incidents/"+list.Items[0].ID+"/report").Body.String()
	if want := x.Until.UTC().Format(time.DateTime) + " by local: upgrade"; !strings.Contains(report, want) {
		t.Errorf("no %q in %s", want, report)
	}
	if body := w.get(t, "/metrics").Body.String(); !strings.Contains(body, "\nsibyl_incident_silenced 1\n") ||
		!strings.Contains(body, `sibyl_incident_open{severity="critical"} 1`) {
		t.Error("the metrics do not count it as open and silenced")
	}
	reopened, err := cases.OpenSilences(w.dir)
	if err != nil || cmp.Diff(w.options.Silences.All(w.clock()), reopened.All(w.clock())) != "" {
		t.Errorf("after a restart: %+v, %v", reopened, err)
	}
	w.expect(t, http.StatusNoContent, http.MethodDelete, "/api/v1/silences/1", nil)
	if got := w.incidents(t, ""); got.Silenced != 0 || got.Items[0].Silenced != nil {
		t.Errorf("silenced after its end: %+v", got.Items[0].Silenced)
	}
	all := fetch[contract.SilenceList](t, w, "/api/v1/silences").Items
	if len(all) != 1 || all[0].State != contract.SilenceStateEnded || all[0].EndedBy == nil {
		t.Errorf("after its end: %+v", all)
	}
	w.expect(t, http.StatusNoContent, http.MethodDelete, "/api/v1/silences/1", nil)
	w.expect(t, http.StatusNotFound, http.MethodDelete, "/api/v1/silences/2", nil)
}

// All conditions must hold. A preview lists the incidents that match, also for viewers, and changes nothing.
func TestSilenceMatches(t *testing.T) {
	w := newIncident(t)
	names := w.app.Table()
	for x := range w.app.Requests(w.now, w.now.Add(10*time.Second), &sim.Plan{}) {
		if slices.ContainsFunc(x.Spans, func(s trace.Span) bool { return names.ServiceName(s.Op) == "checkout" }) {
			w.keepExemplar(t, x) // of a request through the first suspect
			break
		}
	}
	w.assignExemplar(t, w.core.View().Incidents.All()[0].Types[0].RequestType)
	of := w.incident(t).Incident.RequestTypes[0].Name
	for _, x := range []struct {
		match map[string]any
		want  int
	}{
		{map[string]any{"service": "checkout"}, 1},
		{map[string]any{"service": "cart"}, 0},
		{map[string]any{"request_type": of}, 1},
		{map[string]any{"service": "checkout", "request_type": "none"}, 0},
		{map[string]any{"tags": []string{"service.name=check*"}}, 1},
		{map[string]any{"tags": []string{"service.name=checkout", "service.name=cart"}}, 0}, // not of the suspect
		{map[string]any{"service": "cart", "tags": []string{"service.name=checkout"}}, 0},
	} {
		out := w.call(t, http.MethodPost, "/api/v1/silences/preview", x.match)
		got := decode[contract.SilencePreview](t, out)
		if got.Open != x.want || len(got.Items) != x.want {
			t.Errorf("%v: %d open of %d, want %d", x.match, got.Open, len(got.Items), x.want)
		}
	}
	if entries := fetch[contract.AuditList](t, w, "/api/v1/audit").Items; len(entries) != 0 {
		t.Errorf("a preview is recorded as a change: %+v", entries)
	}
}

// A silence needs a condition and an end, and its weekly window a time zone that exists.
func TestRefusedSilences(t *testing.T) {
	w := newHarness(t)
	cart := map[string]any{"service": "cart"}
	weekly := map[string]any{"days": []string{"friday"}, "start": "22:00", "length_ns": int64(time.Hour)}
	for hint, body := range map[string]map[string]any{
		`"service": "*"`:  w.silence(map[string]any{}, nil),
		"next 90 days":    w.silence(cart, map[string]any{"until": w.clock().Add(91 * 24 * time.Hour)}),
		"time after from": w.silence(cart, map[string]any{"from": w.clock().Add(2 * time.Hour)}),
		"until":           {"match": cart},
		"tzdata": w.silence(cart, map[string]any{"weekly": map[string]any{
			"days": []string{"friday"}, "start": "22:00", "length_ns": int64(time.Hour), "zone": "Mars/Base",
		}}),
		"want key=value": w.silence(map[string]any{"tags": []string{"zone"}}, nil),
	} {
		out := w.call(t, http.MethodPost, "/api/v1/silences", body)
		said := strings.ReplaceAll(out.Body.String(), `\"`, `"`)
		if out.Code != http.StatusUnprocessableEntity || !strings.Contains(said, hint) {
			t.Errorf("%v: %d %s, want %q", body, out.Code, out.Body, hint)
		}
	}
	w.expect(t, http.StatusCreated, http.MethodPost, "/api/v1/silences",
		w.silence(cart, map[string]any{"weekly": weekly}))
	later := w.silence(cart, map[string]any{"from": w.clock().Add(time.Minute)})
	w.expect(t, http.StatusCreated, http.MethodPost, "/api/v1/silences", later)
	states := func() (all []contract.SilenceState) {
		for _, x := range fetch[contract.SilenceList](t, w, "/api/v1/silences").Items {
			all = append(all, x.State)
		}
		return all
	}
	if got := states(); !slices.Equal(got, []contract.SilenceState{"scheduled", "scheduled"}) {
		t.Errorf("states %v", got)
	}
	w.expect(t, http.StatusNoContent, http.MethodDelete, "/api/v1/silences/2", nil) // it covered nothing
	if got := states(); len(got) != 1 {
		t.Errorf("states %v", got)
	}
}
