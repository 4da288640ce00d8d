package api

import (
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/search"
)

// The concatenated parts of a diagnosis are the diagnosis. Each part refers to evidence in the answer for its problem.
func TestDiagnosisParts(t *testing.T) {
	w := newTroubled(t)
	w.play(t, 60, func() bool { // until a diagnosis names a cause or a location
		return slices.ContainsFunc(w.problems(), func(p detect.Problem) bool {
			return len(p.Explanations) > 0 && p.Explanations[0].Effect > 0.1 ||
				w.core.View().Searches.Investigation(search.OfProblem(p.ID)).Answer() != 0
		})
	})
	seen := make(map[contract.EvidenceKind]bool)
	for _, p := range fetch[contract.ProblemList](t, w, prefix+"/problems").Items {
		d := fetch[contract.ProblemDetail](t, w, prefix+"/problems/"+p.ID)
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

func checkDiagnosisEvidence(t *testing.T, d *contract.ProblemDetail, part contract.Phrase) {
	t.Helper()
	e := part.Evidence
	fail := func(why string) { t.Errorf("%q with evidence %+v: %s", part.Text, *e, why) }
	if (e.Edge != nil) != (e.Kind == contract.EvidenceKindEdge) ||
		(e.Operation != nil) != (e.Kind == contract.EvidenceKindLocation) {
		fail("the reference is missing or of another kind")
	}
	switch e.Kind {
	case contract.EvidenceKindEdge:
		if !slices.ContainsFunc(d.Edges, func(x contract.Edge) bool { return x.Place.Edge == *e.Edge }) {
			fail("the problem has no such edge")
		}
	case contract.EvidenceKindLocation:
		named := func(s contract.Suspect) bool { return s.Operation == *e.Operation }
		if !slices.ContainsFunc(d.Investigation.Investigation.Suspects, named) {
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
