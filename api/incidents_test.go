package api

import (
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/search"
)

// openIncident plays until enough returns true for an open incident that affects request types.
func (w *harness) openIncident(t testing.TB, enough func(*engine.Incident) bool) {
	t.Helper()
	w.observeVersion("checkout", "1.4", w.now)
	const healthy = 90
	w.play(t, healthy+1, func() bool { return w.now == begin.Add(healthy*10*time.Second) })
	w.observeVersion("checkout", "1.5", w.now)
	w.inject(w.now)
	w.exemplar = nil // the next request becomes the exemplar
	w.play(t, 60, func() bool {
		all := w.core.View().Incidents.All()
		return len(all) > 0 && len(all[0].Types) > 0 && enough(&all[0])
	})
	w.assignExemplar(t, w.core.View().Incidents.All()[0].Types[0].RequestType)
}

func (w *harness) incidents(t *testing.T, query string) contract.IncidentList {
	t.Helper()
	return fetch[contract.IncidentList](t, w, "/api/v1/incidents"+query)
}

func (w *harness) incident(t *testing.T) contract.IncidentDetail {
	t.Helper()
	return fetch[contract.IncidentDetail](t, w, "/api/v1/incidents/"+w.incidentID())
}

// kinds returns the kinds of the events in a timeline.
func kinds(timeline []contract.TimelineEntry) (all []string) {
	for _, x := range timeline {
		all = append(all, string(x.Kind))
	}
	return all
}

func TestIncidents(t *testing.T) {
	w := newIncident(t)
	for query, want := range map[string]int{
		"": 1, "?state=open": 1, "?state=closed": 0, "?service=checkout": 1, "?service=cart": 0,
		"?muted=true": 0, "?muted=all": 1,
	} {
		if got := w.incidents(t, query); got.Total != want || len(got.Items) != want {
			t.Errorf("%s: %d incidents of %d, want %d", query, len(got.Items), got.Total, want)
		}
	}
	for _, id := range w.core.View().Incidents.All()[0].Problems {
		d := fetch[contract.ProblemDetail](t, w, "/api/v1/problems/"+id.String())
		if p := d.Problem; p.State == contract.StateNone && !strings.HasSuffix(d.Next, w.incident(t).Next) {
			t.Errorf("next of %s: %q is not that of its incident", id, d.Next)
		}
		p := d.Problem
		if p.Incident == nil || *p.Incident != w.incidentID() || p.Since == nil {
			t.Errorf("a problem of the incident: %+v", p)
		}
	}
	x := w.incidents(t, "").Items[0]
	if len(x.Suspects) > 3 || x.Service != x.Suspects[0].Service || !strings.Contains(x.Sentence, " since ") ||
		x.Closed != nil {
		t.Errorf("listed: %+v", x)
	}
	for _, y := range x.RequestTypes {
		if y.P50Ns == nil || y.P99Ns == nil || y.UsualP50Ns == nil || y.UsualP99Ns == nil {
			t.Errorf("a request type without quantiles: %+v", y)
		} else if y.MeanNs > 1.5*y.UsualNs && *y.P99Ns <= *y.UsualP99Ns || *y.P99Ns < *y.P50Ns || *y.P99Ns < y.MeanNs {
			t.Errorf("%s: p50 %v, usually %v; p99 %v, usually %v; mean %v",
				y.Name, *y.P50Ns, *y.UsualP50Ns, *y.P99Ns, *y.UsualP99Ns, y.MeanNs)
		}
	}
	path := "/api/v1/incidents/" + x.ID
	w.call(t, http.MethodPut, path+"/acknowledge", map[string]string{"text": "on it"})
	w.call(t, http.MethodPut, path+"/mute", map[string]string{})
	if got := w.incidents(t, ""); got.Total != 0 {
		t.Errorf("%d incidents while it is muted", got.Total)
	}
	if !w.options.Notes.IsMuted(w.core.View().Incidents.All()[0].ID, w.clock()) {
		t.Error("the notes do not know that it is muted")
	}
	d := w.incident(t)
	if len(d.Exemplars) != 1 || d.Exemplars[0].Trace != w.exemplar.ID.String() {
		t.Errorf("exemplars %+v", d.Exemplars)
	}
	want := []string{"onset", "annotation", "opened"}
	got := slices.DeleteFunc(kinds(d.Timeline), func(kind string) bool { return !slices.Contains(want, kind) })
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("timeline (-want +got): %s", diff)
	}
	for _, kind := range []string{"problem", "acknowledged", "muted"} {
		if !slices.Contains(kinds(d.Timeline), kind) {
			t.Errorf("no %s in the timeline %+v", kind, d.Timeline)
		}
	}
	if !slices.IsSortedFunc(d.Timeline, func(a, b contract.TimelineEntry) int { return a.At.Compare(b.At) }) {
		t.Errorf("the timeline is not in order: %+v", d.Timeline)
	}
	w.call(t, http.MethodDelete, path+"/mute", nil)
	if got := w.incidents(t, ""); got.Total != 1 {
		t.Errorf("%d incidents after it was unmuted", got.Total)
	}
	for _, unknown := range []string{"", "/acknowledge", "/mute", "/accept"} {
		method, body := http.MethodPut, any(map[string]string{})
		switch unknown {
		case "":
			method, body = http.MethodGet, nil
		case "/accept":
			method, body = http.MethodPost, nil
		}
		w.expect(t, http.StatusNotFound, method, "/api/v1/incidents/00000000000000ff"+unknown, body)
	}
}

// The entries of a timeline don't change, no matter what happens later.
func TestTimelineStays(t *testing.T) {
	w := newIncident(t)
	before := w.incident(t).Timeline
	if !slices.Contains(kinds(before), "problem") {
		t.Fatal("the problems of the incident are no events")
	}
	for range 12 {
		w.epoch(t)
		after := w.incident(t).Timeline
		for _, e := range before {
			if !slices.ContainsFunc(after, func(x contract.TimelineEntry) bool { return reflect.DeepEqual(x, e) }) {
				t.Fatalf("%s %q is no longer in the timeline: %+v", e.At, e.Text, after)
			}
		}
		before = after
	}
}

// An accepted incident closes at the end of the epoch, with the person's name and note. It can't be accepted again.
func TestAcceptIncident(t *testing.T) {
	w := newIncident(t)
	path := "/api/v1/incidents/" + w.incidentID() + "/accept"
	w.expect(t, http.StatusNoContent, http.MethodPost, path, map[string]string{"text": "more items"})
	w.epoch(t)
	x := w.incidents(t, "?state=closed").Items
	if len(x) != 1 || x[0].Closed == nil || x[0].AcceptedBy == nil || *x[0].AcceptedBy != "local" ||
		x[0].AcceptedText == nil || *x[0].AcceptedText != "more items" {
		t.Errorf("after the epoch: %+v", x)
	}
	if end := x[0].End; end == nil || end.Reason != contract.IncidentEndReasonAccepted ||
		end.Text != "local accepted the behaviour since the onset as normal (more items)" {
		t.Errorf("end: %+v", end)
	}
	timeline := w.incident(t).Timeline
	if last := timeline[len(timeline)-1]; last.Kind != "closed" ||
		last.Text != "The incident closed: local accepted the behaviour since the onset as normal (more items)." {
		t.Errorf("timeline %v", timeline)
	}
	w.expect(t, http.StatusConflict, http.MethodPost, path, nil)
}

// about returns the kinds of the events about an incident.
func about(t *testing.T, id string, events []contract.Event) (kinds []string) {
	t.Helper()
	for _, e := range events {
		kind, some := strings.CutPrefix(e.Type, "incident.")
		if !some {
			continue
		}
		kinds = append(kinds, kind)
		if *e.Incident != id || *e.Service == "" || *e.Sentence == "" {
			t.Errorf("event %+v", e)
		}
	}
	return kinds
}

// An incident that closes causes an event with the same sentence as in lists. An incident that doesn't change causes no
// event.
func TestIncidentEvents(t *testing.T) {
	w := newIncident(t)
	id := w.incidentID()
	if kinds := about(t, id, w.publish(t)); kinds != nil {
		t.Errorf("without a change: events %v", kinds)
	}
	w.call(t, http.MethodPost, "/api/v1/incidents/"+id+"/accept", nil)
	seen := len(w.published(t))
	w.epoch(t)
	events := w.published(t)[seen:]
	if kinds := about(t, id, events); !slices.Equal(kinds, []string{"closed"}) {
		t.Errorf("after it closed: events %v", kinds)
	}
	sentence := w.incidents(t, "").Items[0].Sentence
	for _, e := range events {
		if e.Type == "incident.closed" && *e.Sentence != sentence {
			t.Errorf("%q, the incident says %q", *e.Sentence, sentence)
		}
	}
	metrics := w.callUnchecked(http.MethodGet, "/metrics").Body.String()
	for _, want := range []string{
		"sibyl_incidents{state=\"open\"} 0\n",
		"sibyl_incidents{state=\"closed\"} 1\n",
		"sibyl_incidents_opened_total 0\n", // it opened before the start
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// The search of an incident is shown as the incident's everywhere. Its result outlives the incident.
func TestIncidentInvestigation(t *testing.T) {
	w := newHarnessOf(t, sim.CPU, func(o *engine.Options) { o.Watch.MinImpact = math.MaxFloat64 }) // no problem opens
	w.openIncident(t, func(*engine.Incident) bool { return len(w.core.View().Searches.Plan().Leases) > 0 })
	id := w.core.View().Incidents.All()[0].ID
	path := "/api/v1/incidents/" + render.Hex16(id)
	for _, p := range fetch[contract.TracepointList](t, w, "/api/v1/tracepoints?state=on").Items {
		for _, l := range p.Leases {
			if l.Owner != "" || l.Incident == nil || *l.Incident != render.Hex16(id) {
				t.Errorf("a lease of the incident: %+v", l)
			}
		}
	}
	d := w.incident(t)
	if d.Investigation == nil || !strings.Contains(d.Next, "Compare checkout 1.5, which was just deployed") ||
		!strings.HasSuffix(d.Next, " tracepoints on: "+d.Investigation.Investigation.Reason+".") {
		t.Errorf("next: %s", d.Next)
	}
	w.play(t, 60, func() bool { return w.core.View().Searches.Investigation(search.OfIncident(id)).Answer() != 0 })
	d = w.incident(t)
	if d.Investigation == nil || len(d.Investigation.Investigation.Suspects) == 0 ||
		!strings.HasSuffix(d.Next, "The place to look at is "+d.Investigation.Investigation.Suspects[0].Operation+".") {
		t.Errorf("located: %s %+v", d.Next, d.Investigation)
	}
	for _, s := range d.Investigation.Investigation.Suspects {
		if len(s.Context) == 0 {
			t.Errorf("%s has no context", s.Operation)
		}
	}
	v := fetch[contract.InvestigationDetail](t, w, "/api/v1/investigations/"+render.Hex16(id)).Investigation
	if v.Incident == nil || *v.Incident != render.Hex16(id) || v.Problem != "" || v.RequestType != "" ||
		v.State != contract.StateLocated {
		t.Errorf("investigation %+v", v)
	}
	for _, x := range fetch[contract.DecisionList](t, w, "/api/v1/decisions?incident="+render.Hex16(id)).Items {
		if x.Incident == nil || *x.Incident != render.Hex16(id) || x.Problem != "" {
			t.Errorf("decision %+v", x)
		}
	}
	both := w.get(t, "/api/v1/decisions?incident="+render.Hex16(id)+"&problem="+strings.Repeat("1", 32))
	if both.Code != http.StatusUnprocessableEntity {
		t.Errorf("decisions of a problem and an incident: %d", both.Code)
	}
	events := w.published(t)
	for _, e := range events {
		if e.Type == "problem.gone" {
			t.Errorf("event %+v", e)
		}
	}
	all := slices.DeleteFunc(about(t, render.Hex16(id), events), func(kind string) bool { return kind == "changed" })
	if !slices.Equal(all, []string{"opened", "located"}) {
		t.Errorf("events about the incident: %v", all)
	}
	metrics := w.callUnchecked(http.MethodGet, "/metrics").Body.String()
	if !strings.Contains(metrics, "sibyl_incidents_opened_total 1\n") {
		t.Error("the metrics do not count the incident")
	}
	w.call(t, http.MethodPost, path+"/accept", nil)
	w.epoch(t)
	if d = w.incident(t); !slices.Contains(kinds(d.Timeline), "located") {
		t.Errorf("the timeline of the closed incident: %v", d.Timeline)
	}
}

// The telemetry of an incident is about its first suspect, from half an hour before the onset to an hour after it.
func TestIncidentTelemetry(t *testing.T) {
	w := newIncident(t)
	x := fetch[contract.IncidentTelemetry](t, w, "/api/v1/incidents/"+w.incidentID()+"/telemetry")
	onset := w.incident(t).Incident.Onset
	if x.Service != "checkout" || !x.Onset.Equal(onset) || onset.Sub(x.From) != 30*time.Minute ||
		!x.To.Equal(w.clock()) || x.Logs != nil {
		t.Errorf("%+v", x)
	}
	w.now = w.now.Add(3 * time.Hour)
	x = fetch[contract.IncidentTelemetry](t, w, "/api/v1/incidents/"+w.incidentID()+"/telemetry")
	if x.To.Sub(onset) != time.Hour {
		t.Errorf("the window ends %s after the onset", x.To.Sub(onset))
	}
	w.expect(t, http.StatusNotFound, http.MethodGet, "/api/v1/incidents/00000000000000ff/telemetry", nil)
}
