package engine

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// An incident is about added latency, even if its place was located for a problem with shares of the variance.
func TestSlowdownShare(t *testing.T) {
	c := &Searches{table: &trace.Table{}, problems: &Problems{}}
	service := c.table.Symbol("shop")
	step := func(name string) trace.Op { return c.table.Op(service, c.table.Symbol(name), trace.Server) }
	edge := func(op trace.Op, excess, score float64) group.EdgeShare {
		at := c.table.Child(0, op)
		return group.EdgeShare{Edge: trace.ContextEdge(at), Context: at, Excess: excess, Score: score}
	}
	slow, other, probe := step("slow"), step("other"), c.table.Symbol("probe")
	located := func(tracepoint trace.Symbol, op trace.Op, share float64) *search.Investigation {
		x := search.Suspect{Op: op, Tracepoint: tracepoint, Share: share}
		within := trace.ContextEdge(c.table.Child(0, slow))
		return &search.Investigation{
			Subject:  search.OfProblem(analysis.Hash{}),
			Status:   search.Located,
			Place:    x,
			Suspects: []search.Suspect{x},
			Evidence: []search.Evidence{{Within: within, Context: 7, Tracepoint: probe}},
		}
	}
	bank := c.table.Op(c.table.Symbol("bank"), c.table.Symbol("pay"), trace.Server)
	mixed := []group.EdgeShare{
		edge(slow, 30e6, 0.9), edge(other, 10e6, 0.1), edge(step("faster"), -5e6, 0),
		edge(step("new"), math.NaN(), 0),
	}
	for name, x := range map[string]struct {
		edges []group.EdgeShare
		of    *search.Investigation
		share float64
	}{
		"an operation":               {mixed, located(0, slow, 0.9), 0.75},
		"a tracepoint inside of it":  {mixed, located(probe, step("inner"), 0.45), 0.375},
		"a share beyond that of all": {mixed, located(0, other, 0.3), 0.25},
		"the mean did not grow":      {[]group.EdgeShare{edge(slow, -1, 0.9)}, located(0, slow, 0.9), 0},
		"with another service": {
			[]group.EdgeShare{edge(slow, 30e6, 0.75), edge(bank, 10e6, 0.25)},
			located(0, slow, 0.75), 1,
		},
		"elsewhere": {mixed, located(0, step("unknown"), 0.9), 0},
	} {
		c.problems.open = []detect.Problem{{Kind: detect.KindVariable, Whole: detect.WholeVariance, Edges: x.edges}}
		// shop adds nine tenths of the latency of all suspects, and the whole slowdown is there.
		suspects := []compare.Suspect{{Service: service, Own: 0.9}, {Own: 0.1}}
		if share := c.lostAt(&incident.Incident{Suspects: suspects}, x.of); math.Abs(share-0.9*x.share) > 1e-9 {
			t.Errorf("%s: %v of the added latency; want %v", name, share, 0.9*x.share)
		}
	}
}

// The search of an incident sees the first suspect only, but the shares that people read refer to all added latency.
func TestShareOfAllLostTime(t *testing.T) {
	c := &Searches{table: &trace.Table{}, problems: &Problems{}}
	place := search.Suspect{Op: 5, Share: 0.9}
	v := &search.Investigation{
		Subject:  search.OfIncident(1),
		Status:   search.Located,
		Place:    place,
		Suspects: []search.Suspect{place, {Op: 6, Share: 0.1}},
	}
	suspects := []compare.Suspect{
		{Own: 0.6, Score: 0.7, Errors: 0.1},
		{In: 0.2, Score: 0.2},
		{Rest: 0.5, Score: 0.5, Opaque: true},
	}
	x := Incident{Incident: incident.Incident{ID: 1, Suspects: suspects}}
	if got := c.lostAt(&x.Incident, v); math.Abs(got-0.675) > 1e-9 { // 90 % of 0.6 of 0.8
		t.Errorf("the place carries %v, want 0.675", got)
	}
	if got := x.ShareOf(v, 0.1); math.Abs(got-0.075) > 1e-9 {
		t.Errorf("before it is remembered, another place carries %v, want 0.075", got)
	}
	x.Place = Place{Operation: 5, Share: 0.675}
	x.Suspects = suspects[:1] // the place keeps its share
	v.Suspects[0].Share, v.Place.Share = 0.95, 0.95
	if got := x.ShareOf(v, v.AnswerShare()); math.Abs(got-0.675) > 1e-9 {
		t.Errorf("the remembered place carries %v, want 0.675", got)
	}
	x.Place.Share = 0 // unknown
	if got := x.ShareOf(v, v.AnswerShare()); got != 0 {
		t.Errorf("a place with an unknown share carries %v", got)
	}
}

// Milestones don't change: problems are listed as they opened, and each place once when it was located, until another
// one is.
func TestMilestones(t *testing.T) {
	a := &affected{}
	a.addProblem(&detect.Problem{
		ID:     analysis.Hash{Lo: 1},
		Opened: 10,
		Kind:   detect.KindVariable,
		Onset:  detect.Changed,
	})
	a.addProblem(&detect.Problem{ID: analysis.Hash{Lo: 2}, Onset: detect.Chronic})
	for i, op := range []trace.Op{0, 7, 7, 0, 7, 8, 8, 7} {
		a.Place = Place{Operation: op, Share: float64(i)}
		a.addPlace(trace.Nanos(100 + i))
	}
	want := []Milestone{
		{At: 10, Problem: analysis.Hash{Lo: 1}, Kind: detect.KindVariable},
		{At: 101, Place: 7},
		{At: 105, Place: 8},
		{At: 107, Place: 7},
	}
	if diff := cmp.Diff(want, a.Milestones); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for i := range trace.Nanos(1000) {
		a.Place.Operation = trace.Op(1 + i%2)
		a.addPlace(i)
	}
	if n := len(a.Milestones); n > 1+maxPlaces {
		t.Errorf("%d milestones", n)
	}
}
