package notify

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/search"
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
