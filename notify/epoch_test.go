package notify

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

func TestEvents(t *testing.T) {
	f := sample(Decided, "shop", "POST /checkout")
	closing := search.Decision{Investigation: analysis.Hash{Lo: 5}, From: search.Located, To: search.Gone, Reason: "the problem closed"}
	e := &Epoch{
		At: opened, Source: "here", Before: &search.State{}, After: &search.State{Investigations: []search.Investigation{*f.Investigation}},
		Decisions: []search.Decision{*f.Decision, closing, {Plan: 3, Reason: search.WhyBudget}}, Problems: []detect.Problem{*f.Problem}, Names: f.Names,
		Traces: func(p *detect.Problem) []Trace { return []Trace{{ID: p.ID.String()}} },
		URL:    func(problem analysis.Hash) string { return "/" + problem.String() },
	}
	var got []string
	list := Events(e)
	for _, x := range list {
		about, traces, status := "nothing", 0, ""
		if p := x.Data.Problem; p != nil {
			about, traces, status = p.URL, len(p.Traces), p.Status
		}
		got = append(got, fmt.Sprintf("%s %s %s, %d traces, decision %t", x.Type, about, status, traces, x.Data.Decision != nil))
	}
	want := []string{
		"problem.opened /00000000000000070000000000000009 investigating, 1 traces, decision false",
		"decision /00000000000000070000000000000009 investigating, 1 traces, decision true",
		"decision /00000000000000000000000000000005 gone, 0 traces, decision true",
		"problem.closed /00000000000000000000000000000005 gone, 0 traces, decision true",
		"decision nothing , 0 traces, decision true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for i, x := range Events(e) {
		if x.ID != list[i].ID {
			t.Errorf("%s: ID %s in the second call, %s in the first", x.Type, x.ID, list[i].ID)
		}
	}
	e.Traces, e.URL = nil, nil
	if p := Events(e)[0].Data.Problem; p.URL != "" || len(p.Traces) != 0 {
		t.Errorf("%+v", p)
	}
}

// An incident has one event when it opens, one when it opens again after its end, and one when it closes; none when it
// continues or when an epoch is repeated.
func TestIncidentEvents(t *testing.T) {
	f := sampleIncident(IncidentOpened, "shop", "POST /checkout")
	start := f.Incident.Opened
	at := func(epoch int) trace.Nanos { return start + trace.Nanos(epoch)*trace.Nanos(10*time.Second) }
	seen := make(map[string]int)
	var got []string
	for _, step := range []struct {
		now    int
		change func(*engine.Incident)
	}{
		{0, nil},
		{1, nil},
		{2, func(x *engine.Incident) { x.Closed = at(2) }},
		{3, nil},
		{4, func(x *engine.Incident) { x.Closed, x.Reopened = 0, at(4) }},
		{5, nil},
		{6, func(x *engine.Incident) { x.Closed, x.Into = at(6), 7 }},
		{6, nil},
		{7, nil},
	} {
		if step.change != nil {
			step.change(f.Incident)
		}
		for _, e := range Events(&Epoch{
			At: at(step.now), Source: "here", Before: &search.State{}, After: &search.State{}, Names: f.Names,
			Incidents: []engine.Incident{*f.Incident}, Deploys: f.Deploys, Muted: func(uint64) bool { return step.now == 6 },
			IncidentTraces: func(*engine.Incident) []Trace { return f.Traces }, IncidentURL: func(uint64) string { return "/page" },
		}) {
			if seen[e.ID]++; seen[e.ID] == 1 {
				got = append(got, fmt.Sprintf("%d %s %s, muted %t", step.now, e.Type, e.Data.Incident.State, e.muted))
			}
		}
	}
	want := []string{
		"0 incident.opened open, muted false", "2 incident.closed closed, muted false", "4 incident.opened open, muted false",
		"6 incident.closed closed, muted true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
