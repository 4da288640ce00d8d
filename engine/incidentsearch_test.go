package engine

import (
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Requests that changed their call flow but aren't slower are not searched, unless their search has already started.
func TestSearchedProblemsLoseTime(t *testing.T) {
	problem := func(id uint64, kind detect.ProblemKind, impact float64) detect.Problem {
		return detect.Problem{ID: analysis.Hash{Lo: id}, Kind: kind, Impact: impact}
	}
	c := &Searches{problems: &Problems{open: []detect.Problem{
		problem(1, detect.KindShifted, 0), problem(2, detect.KindShifted, 1e6), problem(3, detect.KindShifted, 0),
		problem(4, detect.KindVariable, 0),
	}}}
	c.state.Investigations = []search.Investigation{{Subject: search.OfProblem(analysis.Hash{Lo: 3})}}
	var got []uint64
	problems, _ := c.subjects()
	for i := range problems {
		got = append(got, problems[i].ID.Lo)
	}
	if len(got) != 3 || got[0] != 2 || got[1] != 3 || got[2] != 4 {
		t.Errorf("searched %v, want 2, 3 and 4", got)
	}
}

// Waits in a queue, failures and added latency that may be chance start no search. Added calls do. A search goes on as
// long as there is added latency.
func TestSearchable(t *testing.T) {
	queue := []compare.SuspectOperation{{Queue: true, Score: 85}}
	for name, x := range map[string]struct {
		of           compare.Suspect
		starts, goes bool
	}{
		"own time":              {compare.Suspect{Score: 1, Own: 1}, true, true},
		"added calls":           {compare.Suspect{Score: 1, Added: 1}, true, true},
		"failures":              {compare.Suspect{Score: 1, Errors: 1}, false, false},
		"failures by and large": {compare.Suspect{Score: 1, Errors: 0.99, Own: 0.01}, false, true},
		"messages in a queue":   {compare.Suspect{Score: 85, In: 85, Operations: queue}, false, false},
	} {
		if starts, goes := searchable(&x.of, false), searchable(&x.of, true); starts != x.starts || goes != x.goes {
			t.Errorf("%s: starts %v, goes on %v", name, starts, goes)
		}
	}
}

// While the place of an open incident is located, problems outside the incident aren't searched, unless their own cause
// is already located.
func TestNoSearchBesideALocatedIncident(t *testing.T) {
	one, answered := analysis.Hash{Lo: 1}, analysis.Hash{Lo: 2}
	for _, place := range []trace.Op{0, 5} {
		c := &Searches{
			problems:  &Problems{open: []detect.Problem{{ID: one, Impact: 1e6}, {ID: answered, Impact: 1e6}}},
			list:      []*incidentSearch{{incident: 7}},
			incidents: &Incidents{affected: map[uint64]*affected{7: {Place: Place{Operation: place}}}},
		}
		c.state.Investigations = []search.Investigation{
			{Subject: search.OfProblem(answered), Status: search.Located, Place: search.Suspect{Op: 9}},
			{Subject: search.OfIncident(7)},
		}
		problems, taken := c.subjects()
		want := 3
		if place != 0 {
			want = 2
		}
		if len(problems) != want || taken[search.OfProblem(one)] != (place != 0) || taken[search.OfProblem(answered)] {
			t.Errorf("place %d: searched %d problems, taken %v", place, len(problems), taken)
		}
	}
}

// What a person wants searched comes first, even if rules would leave it out.
func TestWantedSearches(t *testing.T) {
	inside, shifted := analysis.Hash{Lo: 1}, analysis.Hash{Lo: 2}
	c := &Searches{
		problems: &Problems{open: []detect.Problem{
			{ID: inside, Impact: 1e6}, {ID: shifted, Kind: detect.KindShifted}, {ID: analysis.Hash{Lo: 3}, Impact: 1e6},
		}},
		list: []*incidentSearch{{incident: 7}},
		incidents: &Incidents{affected: map[uint64]*affected{
			7: {Problems: []analysis.Hash{inside}, Place: Place{Operation: 5}},
		}},
	}
	for _, x := range []search.Steering{
		{Subject: search.OfProblem(inside)},
		{Subject: search.OfProblem(shifted)},
		{Subject: search.OfIncident(7), Ended: true},
	} {
		x.Until = 1
		for range 2 { // the second time it replaces the first
			if !c.steer(x) {
				t.Fatal("refused")
			}
		}
	}
	problems, taken := c.subjects()
	var got []search.Subject
	for i := range problems {
		got = append(got, problems[i].Subject)
	}
	want := []search.Subject{search.OfProblem(inside), search.OfProblem(shifted), search.OfIncident(7)}
	if !slices.Equal(got, want) || taken[want[0]] || taken[want[1]] || len(c.state.Steered) != 3 {
		t.Errorf("searched %v, taken %v, %d decisions; want %v", got, taken, len(c.state.Steered), want)
	}
	withdrawn := search.Steering{Subject: search.OfProblem(inside)}
	if !c.steer(withdrawn) || c.steer(withdrawn) || len(c.state.Steered) != 2 {
		t.Errorf("%d decisions after one is withdrawn, want 2", len(c.state.Steered))
	}
}

// An operation that healthy requests of its type didn't run costs all of its time. If the type has no healthy requests,
// it is no evidence.
func TestLossOfNewOperations(t *testing.T) {
	var now stats.Moments
	for range 20 {
		now.Add(300)
	}
	var fresh, unknown loss
	fresh.add(now, stats.Moments{N: 100})
	unknown.add(now, stats.Moments{})
	if got := fresh.edge(trace.Context(1)).Excess; got != 300 {
		t.Errorf("excess %g of a new operation, want 300", got)
	}
	if unknown.excess != 0 || unknown.compared != 0 {
		t.Errorf("excess %g without healthy requests", unknown.excess)
	}
}

// The place of a problem becomes the place of an incident only if the problem's requests have at least half of the
// loss. Once it is the incident's place, it stays.
func TestPlaceOfProblem(t *testing.T) {
	var table trace.Table
	gateway := table.Symbol("gateway")
	op := table.Op(gateway, table.Symbol("POST /orders"), trace.Server)
	id, slow, other := analysis.Hash{Lo: 1}, analysis.Hash{Lo: 2}, analysis.Hash{Lo: 3}
	for _, c := range []struct {
		lost, others float64 // ns per request
		place        search.Subject
		located      bool
	}{
		{60, 40, search.Subject{}, true},
		{20, 80, search.Subject{}, false},
		{20, 80, search.OfProblem(id), true},
	} {
		open := []detect.Problem{{ID: id, RequestType: slow, Onset: detect.Changed, Kind: detect.KindVariable}}
		core := &Searches{table: &table, problems: &Problems{open: open}, incidents: &Incidents{}}
		core.state.Investigations = []search.Investigation{{
			Subject: search.OfProblem(id),
			Status:  search.Located, Place: search.Suspect{Op: op},
		}}
		core.incidents.affected = map[uint64]*affected{7: {
			Types: []AffectedType{
				{RequestType: slow, Requests: 10, Mean: c.lost},
				{RequestType: other, Requests: 10, Mean: c.others},
			},
			Problems: []analysis.Hash{id},
			Place:    Place{Of: c.place},
		}}
		if got := core.located(&incidentSearch{incident: 7, service: gateway}); (got != nil) != c.located {
			t.Errorf("%+v: located %t", c, got != nil)
		}
	}
}
