package describe

import (
	"strings"

	"github.com/sibyl-trace/sibyl/trace"
)

// Sentence is text made of phrases. Each phrase can be emphasized and refer to its evidence.
type Sentence []Phrase

// Phrase is a part of a sentence.
type Phrase struct {
	Text     string
	Strong   bool     // emphasized: a name or a number
	Evidence Evidence // may be zero
}

// Evidence refers to the data behind a phrase. The zero value refers to nothing.
type Evidence struct {
	Kind        EvidenceKind
	Edge        trace.Edge // of kind [EdgeEvidence]: one of the problem's edges; 0 is the remainder
	Operation   trace.Op   // of kind [LocationEvidence]
	Explanation int        // of kind [VariableEvidence], and [CallFlowEvidence] if Explained: index into the problem's explanations
	Explained   bool       // Explanation is set
}

// EvidenceKind is a kind of evidence, as named in the API.
type EvidenceKind string

// The kinds of evidence.
const (
	LatencyEvidence  EvidenceKind = "latency"   // the durations of the requests: mean, percentiles, CoV
	BaselineEvidence EvidenceKind = "baseline"  // the expected duration, from the history of the requests
	SizeEvidence     EvidenceKind = "size"      // the durations at equal size
	EdgeEvidence     EvidenceKind = "edge"      // one edge of the critical path
	LocationEvidence EvidenceKind = "location"  // the operation that the investigation located
	VariableEvidence EvidenceKind = "variable"  // an explanation: an attribute, such as a host or a version, a count, errors
	CallFlowEvidence EvidenceKind = "call_flow" // the paths that the requests take
)

// Plain appends text.
func (s *Sentence) Plain(text string) { *s = append(*s, Phrase{Text: text}) }

// Strong appends emphasized text.
func (s *Sentence) Strong(text string) { *s = append(*s, Phrase{Text: text, Strong: true}) }

// cite appends emphasized text with its evidence.
func (s *Sentence) cite(text string, e Evidence) {
	*s = append(*s, Phrase{Text: text, Strong: true, Evidence: e})
}

// mention appends text with its evidence.
func (s *Sentence) mention(text string, e Evidence) { *s = append(*s, Phrase{Text: text, Evidence: e}) }

// String returns the text of s, without emphasis and evidence.
func (s Sentence) String() string {
	var b strings.Builder
	for _, p := range s {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Parts returns s without emphasis, with adjacent phrases of the same evidence joined. The parts concatenate to the
// text of s. No part is empty.
func (s Sentence) Parts() Sentence {
	var parts Sentence
	for _, p := range s {
		switch last := len(parts) - 1; {
		case p.Text == "":
		case last >= 0 && parts[last].Evidence == p.Evidence:
			parts[last].Text += p.Text
		default:
			parts = append(parts, Phrase{Text: p.Text, Evidence: p.Evidence})
		}
	}
	return parts
}
