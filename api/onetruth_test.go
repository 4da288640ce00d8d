package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/trace"
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

// Incidents because of failures and objectives have one sentence, severity and state everywhere, too, and the figures
// of their kind: nobody reads that requests take as long as before if they fail.
func TestOneTruthOfKinds(t *testing.T) {
	fail := func(x *trace.Trace) {
		for i := range x.Spans {
			if x.Spans[i].Parent == 0 {
				x.Spans[i].Flags |= trace.Error
			}
		}
	}
	for _, kind := range []contract.IncidentKind{
		contract.IncidentKindFailing, contract.IncidentKindObjective, contract.IncidentKindSilent,
	} {
		t.Run(string(kind), func(t *testing.T) {
			w := newHarnessOf(t, sim.None)
			steady := 15 * time.Minute
			if kind == contract.IncidentKindSilent { // silence is judged by an hour
				steady = 65 * time.Minute
			}
			w.play(t, 400, func() bool { return w.now >= begin.Add(steady) })
			switch kind {
			case contract.IncidentKindFailing:
				w.alter = fail
			case contract.IncidentKindObjective:
				w.setObjective(t)
			case contract.IncidentKindSilent:
				entry := w.core.View().Table.Operation(w.app.Entries()[0]).Service
				w.alter = func(x *trace.Trace) {
					root := slices.IndexFunc(x.Spans, func(s trace.Span) bool { return s.Parent == 0 })
					if x.Spans[root].Service == entry {
						x.Spans = nil
					}
				}
			}
			w.play(t, 100, func() bool { return len(w.core.View().Incidents.All()) > 0 })
			id := w.incidentID()
			w.tellsKind(t, id, kind, "open")
			w.expect(t, http.StatusNoContent, http.MethodPost, "/api/v1/incidents/"+id+"/accept", object{})
			w.epoch(t)
			w.tellsKind(t, id, kind, "closed")
		})
	}
}

// setObjective sets an objective that all requests to the first entry miss.
func (w *harness) setObjective(t *testing.T) {
	t.Helper()
	options := *w.core.View().Options
	entry := w.core.View().Table.ServiceName(w.app.Entries()[0])
	options.Objectives = []incident.Objective{{Name: "Fast", Entry: entry, Below: time.Microsecond, Percentile: 99}}
	settings := options.Settings()
	if !w.core.Apply(&engine.Change{Settings: &settings}) {
		t.Fatal("the settings were refused")
	}
}

// tellsFailingProblems checks that a problem of a failing incident is told as a failure, without shares of places: what
// varies in the durations of failing requests is no cause of their failures.
func (w *harness) tellsFailingProblems(t *testing.T, x *contract.Incident) {
	t.Helper()
	n := 0
	for _, p := range fetch[contract.ProblemList](t, w, "/api/v1/problems").Items {
		if p.Kind != contract.KindShifted {
			continue
		}
		if !strings.Contains(p.Diagnosis, " of the requests of ") || p.Leading != "" || p.Share != nil {
			t.Errorf("a problem of requests that fail: %q, %v in %q", p.Diagnosis, p.Share, p.Leading)
		}
		if d := fetch[contract.ProblemDetail](t, w, "/api/v1/problems/"+p.ID); len(d.WhatIf)+len(d.Contrasts) > 0 {
			t.Errorf("%q: causes of durations, which are as usual: %+v, %+v", p.Diagnosis, d.WhatIf, d.Contrasts)
		}
		affected := func(y contract.IncidentRequestType) bool { return y.ID == p.RequestType }
		if !slices.ContainsFunc(x.RequestTypes, affected) {
			continue
		}
		n++
		if p.Incident == nil || *p.Incident != x.ID || !slices.Contains(x.Problems, p.ID) {
			t.Errorf("%q does not belong to the incident", p.Diagnosis)
		}
	}
	if n == 0 {
		t.Error("no problem of requests that fail")
	}
	detail := fetch[contract.IncidentDetail](t, w, "/api/v1/incidents/"+x.ID)
	if !slices.ContainsFunc(detail.Timeline, func(e contract.TimelineEntry) bool {
		return strings.HasPrefix(e.Text, "A problem opened: more requests of ")
	}) {
		t.Errorf("the timeline has no failures: %+v", detail.Timeline)
	}
}

func (w *harness) tellsKind(t *testing.T, id string, kind contract.IncidentKind, state contract.IncidentState) {
	t.Helper()
	detail := fetch[contract.IncidentDetail](t, w, "/api/v1/incidents/"+id)
	x := &detail.Incident
	if x.Kind != kind || x.State != state || x.Size != nil || (x.Failures != nil) != (kind == "failing") {
		t.Fatalf("%s, %s, size %+v, failures %+v; want %s, %s", x.Kind, x.State, x.Size, x.Failures, kind, state)
	}
	all := w.incidents(t, "").Items
	i := slices.IndexFunc(all, func(y contract.Incident) bool { return y.ID == id })
	if i < 0 || all[i].Sentence != x.Sentence || all[i].Severity != x.Severity || all[i].State != x.State ||
		!all[i].Onset.Equal(x.Onset) || !reflect.DeepEqual(all[i].Failures, x.Failures) {
		t.Errorf("the list has %+v, the page %+v", all, x)
	}
	var cli strings.Builder
	if err := client.ShowIncident(&cli, &detail, terminal.Style{Width: 300}, w.clock()); err != nil {
		t.Fatal(err)
	}
	report := w.get(t, "/api/v1/incidents/"+id+"/report").Body.String()
	sent := w.webhook().Incident
	if kind == contract.IncidentKindFailing && state == contract.IncidentStateOpen {
		w.tellsFailingProblems(t, x)
	}
	want := []string{string(x.Severity)}
	if f := x.Failures; f != nil {
		want = append(want, units.Percent(f.Before)+" → "+units.Percent(f.Now),
			units.Percent(f.ShareOfRequests)+" of all requests", units.Percent(f.Now)+" of the requests of ")
		if sent.Failures == nil || float64(sent.Failures.Now) != f.Now {
			t.Errorf("the webhook has %+v, the page %+v", sent.Failures, f)
		}
	}
	for i := range x.Objectives {
		want = append(want, x.Objectives[i].Sentence)
	}
	for _, text := range append(want, x.Sentence) {
		if !strings.Contains(cli.String(), text) || !strings.Contains(report, text) {
			t.Errorf("%s: no %q in %s\n%s", state, text, cli.String(), report)
		}
	}
	if got := strings.ReplaceAll(sent.Sentence, " UTC", ""); got != x.Sentence || sent.State != string(state) ||
		sent.Severity != string(x.Severity) || sent.Size != nil {
		t.Errorf("the webhook has %q, %s, %s; the page %q", got, sent.State, sent.Severity, x.Sentence)
	}
}
