package yardstick

import (
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// question has two regions. The first holds candidates 1 to 20: 3 and 4 are variables, and even ones lie deeper. The
// second holds 21 and 22.
func question() *search.Question {
	q := &search.Question{Seed: 1, Regions: []search.Region{{Share: 0.6, To: 20}, {Share: 0.4, From: 20, To: 22}}}
	for i := range 22 {
		c := search.Candidate{Tracepoint: trace.Symbol(i + 1), Parent: -1, End: i + 1, Depth: 1 + i%2, Inside: true}
		if i == 2 || i == 3 {
			c.Kind, c.Depth = cct.VariablePoint, i-1
		}
		if i >= 20 {
			c.Region = 1
		}
		q.Candidates = append(q.Candidates, c)
	}
	return q
}

func picked(picks []search.Pick) []trace.Symbol {
	var list []trace.Symbol
	for _, p := range picks {
		list = append(list, p.Tracepoint)
	}
	return list
}

// TestPicks compares the picks of each strategy with picks worked out by hand. It checks only number and kind of random
// picks.
func TestPicks(t *testing.T) {
	want := map[string][]trace.Symbol{
		"breadth-first": {1, 5, 7, 9, 11, 13, 15, 17},
		"flat":          {2, 6, 8, 10, 13, 15, 17, 19},
		"variables":     {3},
	}
	for _, s := range Strategies() {
		got := picked(s.Pick(question()))
		if again := picked(s.Pick(question())); !slices.Equal(got, again) {
			t.Errorf("%s: %v, then %v", s.Name, got, again)
		}
		if s.Name == "random" {
			slices.Sort(got)
			if len(slices.Compact(slices.Clone(got))) != search.PicksAtOnce || slices.Contains(got, 3) ||
				slices.Contains(got, 4) {
				t.Errorf("random: %v, want %d different spans", got, search.PicksAtOnce)
			}
			continue
		}
		if !slices.Equal(got, want[s.Name]) {
			t.Errorf("%s: %v, want %v", s.Name, got, want[s.Name])
		}
	}
}

// TestVariablesWithoutAny: a question without attribute captures is answered like [search.Hierarchical].
func TestVariablesWithoutAny(t *testing.T) {
	q := question()
	q.Candidates[2].Kind, q.Candidates[3].Kind = cct.SpanPoint, cct.SpanPoint
	if got, want := picked(variables(q)), picked(search.Hierarchical(q)); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
