package engine

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Requests that changed their call flow and lose no time are not searched, unless their search has begun.
func TestSearchedProblemsLoseTime(t *testing.T) {
	problem := func(id uint64, kind detect.ProblemKind, impact float64) detect.Problem {
		return detect.Problem{ID: analysis.Hash{Lo: id}, Kind: kind, Impact: impact}
	}
	c := &Core{problems: []detect.Problem{
		problem(1, detect.KindShifted, 0), problem(2, detect.KindShifted, 1e6), problem(3, detect.KindShifted, 0), problem(4, detect.KindVariable, 0),
	}}
	c.state.Investigations = []search.Investigation{{Problem: analysis.Hash{Lo: 3}}}
	var got []uint64
	problems, _ := c.searchedProblems()
	for i := range problems {
		got = append(got, problems[i].ID.Lo)
	}
	if len(got) != 3 || got[0] != 2 || got[1] != 3 || got[2] != 4 {
		t.Errorf("searched %v, want 2, 3 and 4", got)
	}
}

// An operation that healthy requests of the type did not run costs all of its time; without healthy requests it is no
// evidence.
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
