package render

import (
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/describe"
)

// Sentence returns the parts of a sentence with references to their evidence. The result isn't nil, because JSON
// encodes nil as null.
func Sentence(names *describe.Names, s describe.Sentence) contract.Sentence {
	parts := s.Parts()
	all := make(contract.Sentence, 0, len(parts))
	for _, p := range parts {
		x := contract.Phrase{Text: p.Text, Kind: contract.PhraseKind(p.Kind), Evidence: evidence(names, p.Evidence)}
		if p.Kind == describe.TimePhrase {
			x.At = new(At(p.At))
		}
		all = append(all, x)
	}
	return all
}

func evidence(names *describe.Names, e describe.Evidence) *contract.DiagnosisEvidence {
	if e.Kind == "" {
		return nil
	}
	x := &contract.DiagnosisEvidence{Kind: contract.EvidenceKind(e.Kind)}
	switch {
	case e.Kind == describe.EdgeEvidence:
		x.Edge = new(EdgeID(e.Edge))
	case e.Kind == describe.LocationEvidence:
		x.Operation = new(names.Op(e.Operation))
	case e.Explained:
		x.Explanation = &e.Explanation
	}
	return x
}
