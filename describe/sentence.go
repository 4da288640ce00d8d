package describe

import (
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Sentence is text made of phrases. Each phrase can be emphasized and refer to its evidence.
type Sentence []Phrase

// Phrase is a part of a sentence.
type Phrase struct {
	Text     string
	Kind     PhraseKind
	Strong   bool        // emphasized: a name or a number
	Evidence Evidence    // may be zero
	At       trace.Nanos // time that Text gives in UTC; only of kind [TimePhrase]
}

// PhraseKind distinguishes the data in a sentence from its words. Its values are used in the API.
type PhraseKind string

// The kinds of phrases.
const (
	WordsPhrase    PhraseKind = "words"
	NamePhrase     PhraseKind = "name"     // of a service, an operation, an instance or a version, for example
	NumberPhrase   PhraseKind = "number"   // a figure that may change from epoch to epoch, with its unit
	TimePhrase     PhraseKind = "time"     // see [Phrase.At]
	IncidentPhrase PhraseKind = "incident" // the ID of an incident
)

// Evidence refers to the data behind a phrase. The zero value refers to nothing.
type Evidence struct {
	Kind      EvidenceKind
	Edge      trace.Edge // of kind [EdgeEvidence]: one of the problem's edges; 0 is the remainder
	Operation trace.Op   // of kind [LocationEvidence]
	// index into the problem's explanations; of kind [VariableEvidence], or [CallFlowEvidence] if Explained
	Explanation int
	Explained   bool // Explanation is set
}

// EvidenceKind is a kind of evidence, as named in the API.
type EvidenceKind string

// The kinds of evidence.
const (
	LatencyEvidence  EvidenceKind = "latency"  // the durations of the requests: mean, percentiles, CoV
	BaselineEvidence EvidenceKind = "baseline" // the expected duration, from the history of the requests
	SizeEvidence     EvidenceKind = "size"     // the durations at equal size
	EdgeEvidence     EvidenceKind = "edge"     // one edge of the critical path
	LocationEvidence EvidenceKind = "location" // the operation that the investigation located
	// VariableEvidence is an explanation: an attribute, such as a host or a version, a count, or errors.
	VariableEvidence EvidenceKind = "variable"
	CallFlowEvidence EvidenceKind = "call_flow" // the paths that the requests take
)

// Name returns an emphasized name.
func Name(text string) Phrase { return Phrase{Text: text, Kind: NamePhrase, Strong: true} }

// strong returns s with emphasis and evidence.
func (s Sentence) strong(e Evidence) Sentence {
	for i := range s {
		s[i].Strong, s[i].Evidence = true, e
	}
	return s
}

// quiet returns s without emphasis.
func (s Sentence) quiet() Sentence {
	for i := range s {
		s[i].Strong = false
	}
	return s
}

// quiet returns p without emphasis.
func (p Phrase) quiet() Phrase {
	p.Strong = false
	return p
}

// number returns a number without emphasis, and figure returns an emphasized number.
func number(text string) Phrase { return Phrase{Text: text, Kind: NumberPhrase} }
func figure(text string) Phrase { return Phrase{Text: text, Kind: NumberPhrase, Strong: true} }

// clock returns a time as a phrase; see [Clock].
func clock(t trace.Nanos, dated bool) Phrase {
	return Phrase{Text: Clock(t, dated), Kind: TimePhrase, At: t}
}

// Say returns format as a sentence, with each %s replaced by the next phrase.
func Say(format string, phrases ...Phrase) (s Sentence) {
	s.Say(format, phrases...)
	return s
}

// Say appends the result of the function [Say].
func (s *Sentence) Say(format string, phrases ...Phrase) {
	for _, p := range phrases {
		text, rest, _ := strings.Cut(format, "%s")
		s.Plain(text)
		*s = append(*s, p)
		format = rest
	}
	s.Plain(format)
}

// And returns s followed by t. It doesn't modify s.
func (s Sentence) And(t Sentence) Sentence { return append(slices.Clip(s), t...) }

// Add appends t.
func (s *Sentence) Add(t Sentence) { *s = append(*s, t...) }

// list appends the first `most` of several names: "cart, search and 3 other services". noun is the singular noun for
// the others.
func (s *Sentence) list(names []Phrase, most int, noun string) {
	rest := len(names) - most
	for i, name := range names[:min(most, len(names))] {
		switch {
		case i > 0 && i == len(names)-1:
			s.Plain(" and ")
		case i > 0:
			s.Plain(", ")
		}
		*s = append(*s, name)
	}
	if rest > 0 {
		s.Plain(" and " + units.Plural(rest, noun))
	}
}

// Plain appends text.
func (s *Sentence) Plain(text string) {
	if text != "" {
		*s = append(*s, Phrase{Text: text})
	}
}

// Strong appends emphasized text.
func (s *Sentence) Strong(text string) { *s = append(*s, Phrase{Text: text, Strong: true}) }

// with returns p with e as its evidence.
func (p Phrase) with(e Evidence) Phrase {
	p.Evidence = e
	return p
}

// String returns the text of s, without emphasis and evidence.
func (s Sentence) String() string {
	var b strings.Builder
	for _, p := range s {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Parts returns s without emphasis, with adjacent phrases of the same kind and evidence joined if they are words or
// numbers. The parts concatenate to the text of s. No part is empty.
func (s Sentence) Parts() Sentence {
	var parts Sentence
	for _, p := range s {
		p.Strong = false
		if p.Kind == "" {
			p.Kind = WordsPhrase
		}
		switch last := len(parts) - 1; {
		case p.Text == "":
		case last >= 0 && p.Kind == parts[last].Kind && p.Evidence == parts[last].Evidence &&
			(p.Kind == WordsPhrase || p.Kind == NumberPhrase):
			parts[last].Text += p.Text
		default:
			parts = append(parts, p)
		}
	}
	return parts
}
