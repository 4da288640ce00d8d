package api

import (
	"math"
	"net/http"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// The parts of a diagnosis concatenate to it, and each refers to evidence in the answer of its problem.
func TestDiagnosisParts(t *testing.T) {
	w := newTroubled(t)
	w.play(t, 60, func() bool { // until a diagnosis names a cause or a location
		return slices.ContainsFunc(w.core.View().Problems.Open(), func(p detect.Problem) bool {
			return len(p.Explanations) > 0 && p.Explanations[0].Effect > 0.1 || w.core.View().Searches.Investigation(search.OfProblem(p.ID)).Answer() != 0
		})
	})
	seen := make(map[contract.EvidenceKind]bool)
	for _, p := range decode[contract.ProblemList](t, w.call(t, http.MethodGet, prefix+"/problems", nil)).Items {
		d := decode[contract.ProblemDetail](t, w.call(t, http.MethodGet, prefix+"/problems/"+p.ID, nil))
		text := ""
		for _, part := range p.DiagnosisParts {
			text += part.Text
			if part.Evidence != nil {
				seen[part.Evidence.Kind] = true
				checkDiagnosisEvidence(t, &d, part)
			}
		}
		if text != p.Diagnosis {
			t.Errorf("parts %q, diagnosis %q", text, p.Diagnosis)
		}
	}
	if !seen[contract.EvidenceKindLatency] || !seen[contract.EvidenceKindEdge] || len(seen) < 3 {
		t.Errorf("the diagnoses have only evidence of kinds %v", seen)
	}
}

func checkDiagnosisEvidence(t *testing.T, d *contract.ProblemDetail, part contract.DiagnosisPart) {
	t.Helper()
	e := part.Evidence
	fail := func(why string) { t.Errorf("%q with evidence %+v: %s", part.Text, *e, why) }
	if (e.Edge != nil) != (e.Kind == contract.EvidenceKindEdge) || (e.Operation != nil) != (e.Kind == contract.EvidenceKindLocation) {
		fail("the reference is missing or of another kind")
	}
	switch e.Kind {
	case contract.EvidenceKindEdge:
		if !slices.ContainsFunc(d.Edges, func(x contract.Edge) bool { return x.Place.Edge == *e.Edge }) {
			fail("the problem has no such edge")
		}
	case contract.EvidenceKindLocation:
		if !slices.ContainsFunc(d.Investigation.Investigation.Suspects, func(s contract.Suspect) bool { return s.Operation == *e.Operation }) {
			fail("the investigation has no such suspect")
		}
	case contract.EvidenceKindVariable:
		if e.Explanation == nil || *e.Explanation >= len(d.Explanations) {
			fail("the problem has no such explanation")
		}
	case contract.EvidenceKindBaseline:
		if d.Problem.ExpectedNs == nil {
			fail("the problem has no baseline")
		}
	case contract.EvidenceKindLatency, contract.EvidenceKindSize, contract.EvidenceKindCallFlow:
	default:
		fail("unknown kind")
	}
}

// Problems that changed come first, then those whose requests lose most time.
func TestRank(t *testing.T) {
	got := ranks([]detect.Problem{
		{Onset: detect.Chronic, Impact: 9},
		{Onset: detect.Changed, Impact: math.NaN()},
		{Onset: detect.Chronic, Impact: 37},
		{Onset: detect.Changed, Impact: 1},
		{Onset: detect.Changed, Impact: 2},
	})
	if want := []int{5, 3, 4, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("ranks %v, want %v", got, want)
	}
	for want, p := range map[string]*contract.Problem{
		"changed: significantly worse than its own history; by impact, 37 ns/s, rank 1":                  {Rank: 1, Onset: contract.OnsetChanged, Impact: new(37.0)},
		"chronic: high without a change, ranked after problems that changed; by impact, unknown, rank 2": {Rank: 2, Onset: contract.OnsetChronic},
	} {
		if got := why(p); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// Each state of an investigation has its next step.
func TestNext(t *testing.T) {
	w := newHarness(t)
	names, tried := w.renderer(w.core.View()), []trace.Symbol{1}
	for want, c := range map[string]struct {
		v       *search.Investigation
		advice  *string
		missing []string
	}{
		"Queued: too many other problems are being investigated.":                         {},
		"Just opened: tracepoints are chosen when the epoch ends, if any fit the budget.": {v: &search.Investigation{Status: search.Opened}},
		"1 tracepoint on: waiting for requests that show where the time goes.":            {v: &search.Investigation{Status: search.Investigating, Requested: make([]search.TracepointRequest, 1)}},
		"One place stands out.":                                                         {v: &search.Investigation{Status: search.Located, Reason: "one place stands out"}},
		"The available tracepoints show no more. All were tried.":                       {v: &search.Investigation{Status: search.Exhausted, Reason: "all were tried", Tried: tried}},
		"Add tracepoints within a b, c d: the existing ones show no more.":              {v: &search.Investigation{Status: search.Exhausted, Tried: tried}, missing: []string{"a b", "c d"}},
		"Add tracepoints within a b: Sibyl found none to try.":                          {v: &search.Investigation{Status: search.Exhausted}, missing: []string{"a b"}},
		"Add tracepoints where the time is lost: Sibyl found none to try.":              {v: &search.Investigation{Status: search.Exhausted}},
		"The available tracepoints show no more. None fits the budget.":                 {v: &search.Investigation{Status: search.Exhausted, Reason: "none fits the budget", BudgetStarved: 3}},
		"It is part of an incident, which Sibyl investigates as a whole. Roll it back.": {v: &search.Investigation{Status: search.Gone}, advice: new("Roll it back.")},
	} {
		if got := names.next(c.v, c.advice, c.missing); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
