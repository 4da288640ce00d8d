package notify

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

func TestEvents(t *testing.T) {
	f := sample(Decided, "shop", "POST /checkout")
	closing := search.Decision{
		Subject: search.OfProblem(analysis.Hash{Lo: 5}),
		From:    search.Located,
		To:      search.Gone,
		Reason:  "its problem or incident has closed",
	}
	e := &Epoch{
		At:            opened,
		Source:        "here",
		Investigation: (&search.State{Investigations: []search.Investigation{*f.Investigation}}).Investigation,
		Decisions:     []search.Decision{*f.Decision, closing, {Plan: 3, Reason: search.WhyBudget}},
		Names:         f.Names,
		Before:        []detect.Problem{{ID: analysis.Hash{Lo: 6}, RequestType: f.Problem.RequestType}},
		Problems:      []detect.Problem{*f.Problem, {ID: analysis.Hash{Lo: 8}}},
		Traces:        func(p *detect.Problem) []Trace { return []Trace{{ID: p.ID.String()}} },
		URL:           func(problem analysis.Hash) string { return "/" + problem.String() },
	}
	var got []string
	list := Events(e)
	for _, x := range list {
		about, traces, status := "nothing", 0, ""
		if p := x.Data.Problem; p != nil {
			about, traces, status = p.URL, len(p.Traces), p.Status
		}
		got = append(got,
			fmt.Sprintf("%s %s %s, %d traces, decision %t", x.Type, about, status, traces, x.Data.Decision != nil))
	}
	want := []string{
		"problem.opened /00000000000000070000000000000009 investigating, 1 traces, decision false",
		"problem.opened /00000000000000000000000000000008 none, 1 traces, decision false",
		"decision /00000000000000070000000000000009 investigating, 1 traces, decision true",
		"decision /00000000000000000000000000000005 gone, 0 traces, decision true",
		"decision nothing , 0 traces, decision true",
		"problem.closed /00000000000000000000000000000006 gone, 1 traces, decision false",
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

// An incident has one event when it opens, when it reopens, when it has been steady for a day, and when it closes. It
// has no event when it continues or when an epoch is repeated.
func TestIncidentEvents(t *testing.T) {
	f := sampleIncident(IncidentOpened, "shop", "POST /checkout")
	start := f.Incident.Opened()
	at := func(epoch int) trace.Nanos { return start + trace.Nanos(epoch)*trace.Nanos(10*time.Second) }
	seen := make(map[string]int)
	var got []string
	for _, step := range []struct {
		now   int
		enter *incident.Transition
	}{
		{0, nil},
		{1, nil},
		{2, &incident.Transition{State: incident.Closed, Why: incident.Recovered}},
		{3, nil},
		{4, &incident.Transition{Why: incident.Returned}},
		{5, nil},
		{6, &incident.Transition{State: incident.Steady, Why: incident.Unchanged}}, // as if a day had passed
		{7, &incident.Transition{Why: incident.Grew}},
		{8, &incident.Transition{State: incident.Merged, Why: incident.SameCause, Into: 7}},
		{8, nil},
		{9, nil},
	} {
		if step.enter != nil {
			step.enter.At = at(step.now)
			f.Incident.Enter(*step.enter)
		}
		for _, e := range Events(&Epoch{
			At:             at(step.now),
			Source:         "here",
			Names:          f.Names,
			Incidents:      []engine.Incident{*f.Incident},
			Annotations:    f.Annotations,
			Investigation:  func(search.Subject) *search.Investigation { return nil },
			Muted:          func(uint64) bool { return step.now == 8 },
			IncidentTraces: func(*engine.Incident) []Trace { return f.Traces },
			IncidentURL:    func(uint64) string { return "/page" },
		}) {
			if seen[e.ID]++; seen[e.ID] == 1 {
				got = append(got, fmt.Sprintf("%d %s %s, muted %t", step.now, e.Type, e.Data.Incident.State, e.muted))
			}
		}
	}
	want := []string{
		"0 incident.opened open, muted false", "2 incident.closed closed, muted false",
		"4 incident.opened open, muted false",
		"6 incident.steady open, muted false", "8 incident.closed closed, muted true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A problem stays open when its incident takes over the search: it neither closes nor loses its alert.
func TestTakenProblem(t *testing.T) {
	f := sample(Decided, "shop", "POST /checkout")
	f.Investigation.Status = search.Gone
	taken := search.Decision{
		Subject: search.OfProblem(f.Problem.ID),
		From:    search.Investigating,
		To:      search.Gone,
		Reason:  "its incident is investigated instead",
	}
	open := []detect.Problem{*f.Problem}
	list := Events(&Epoch{
		At:            opened,
		Investigation: (&search.State{Investigations: []search.Investigation{*f.Investigation}}).Investigation,
		Decisions:     []search.Decision{taken},
		Before:        open,
		Problems:      open,
		Names:         f.Names,
	})
	if len(list) != 1 || list[0].Type != Decided || list[0].resolved || list[0].Data.Problem.Status != "none" {
		t.Errorf("%d events, the first %+v", len(list), list[0])
	}
}

// The search of an incident causes events about the incident, not about a problem.
func TestIncidentSearchEvents(t *testing.T) {
	f := sampleIncident(IncidentLocated, "shop", "POST /checkout")
	id := search.OfIncident(f.Incident.ID)
	muted := false
	epoch := &Epoch{
		At:        f.Incident.Opened().Add(time.Minute),
		Names:     f.Names,
		Incidents: []engine.Incident{*f.Incident},
		Decisions: []search.Decision{
			{Subject: id, From: search.Investigating, To: search.Located, Plan: 4},
			{Subject: id, From: search.Located, To: search.Gone, Plan: 5},
			// its incident is forgotten
			{Subject: search.OfIncident(99), From: search.Located, To: search.Gone, Plan: 5},
		},
		Investigation:  func(search.Subject) *search.Investigation { return f.Investigation },
		Muted:          func(uint64) bool { return muted },
		IncidentTraces: func(*engine.Incident) []Trace { return nil },
		IncidentURL:    func(uint64) string { return "" },
	}
	var got []string
	for _, e := range Events(epoch) {
		about := ""
		if x := e.Data.Incident; x != nil {
			about = x.ID + " at " + x.place()
		}
		got = append(got,
			fmt.Sprintf("%s %s, resolved %t, problem %t", e.Type, about, e.resolved, e.Data.Problem != nil))
	}
	want := []string{
		"decision 0000000000000abc at payment/charge, resolved false, problem false",
		"incident.located 0000000000000abc at payment/charge, resolved false, problem false",
		"decision 0000000000000abc at payment/charge, resolved false, problem false",
		"decision , resolved false, problem false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	muted = true
	if e := Events(epoch)[1]; !e.muted {
		t.Error("an incident that is muted causes a notification")
	}
}

// An incident that opened while it was muted causes the events of its opening and its acknowledgement once it is no
// longer muted. If it closes before, there are none.
func TestHeldIncident(t *testing.T) {
	f := sampleIncident(IncidentOpened, "shop", "POST /checkout")
	id, muted := f.Incident.ID, true
	e := &Epoch{
		At:             f.Incident.Opened(),
		Names:          f.Names,
		Incidents:      []engine.Incident{*f.Incident},
		Investigation:  func(search.Subject) *search.Investigation { return nil },
		Muted:          func(uint64) bool { return muted },
		Acknowledged:   func(uint64) *Note { return &Note{By: "Ann", At: moment(f.Incident.Opened())} },
		IncidentTraces: func(*engine.Incident) []Trace { return nil },
		IncidentURL:    func(uint64) string { return "" },
	}
	before := Events(e)[0]
	e.At, e.Held = e.At.Add(5*time.Hour), []uint64{id}
	if list := Events(e); !before.muted || len(list) != 0 {
		t.Fatalf("while it is muted: %+v", list)
	}
	muted = false
	list := Events(e)
	if len(list) != 2 || list[0].ID != before.ID || list[0].Type != IncidentOpened || list[0].muted ||
		list[1].Type != IncidentAcknowledged || list[1].muted {
		t.Errorf("when it no longer is: %+v", list)
	}
	e.Incidents[0].Enter(incident.Transition{At: e.At, State: incident.Closed, Why: incident.Recovered})
	if list = Events(e); len(list) != 1 || list[0].Type != IncidentClosed || !list[0].muted {
		t.Errorf("when it has closed: %+v", list)
	}
}
