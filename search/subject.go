package search

import (
	"cmp"
	"fmt"

	"github.com/sibyl-trace/sibyl/analysis"
)

// Subject identifies the problem or the incident that is searched. The zero Subject is neither.
type Subject struct {
	Kind SubjectKind
	ID   analysis.Hash // the number of an incident is in Lo
}

// SubjectKind distinguishes problems from incidents.
type SubjectKind uint8

// The kinds of subjects.
const (
	NoSubject SubjectKind = iota
	ProblemSubject
	IncidentSubject
)

// OfProblem returns the subject for the problem with the given id.
func OfProblem(id analysis.Hash) Subject { return Subject{ProblemSubject, id} }

// OfIncident returns the subject for the incident with the given number.
func OfIncident(id uint64) Subject { return Subject{IncidentSubject, analysis.Hash{Lo: id}} }

// Incident returns the number of the incident that s identifies. ok is false if s isn't an incident.
func (s Subject) Incident() (id uint64, ok bool) { return s.ID.Lo, s.Kind == IncidentSubject }

// IsZero reports whether s is neither a problem nor an incident.
func (s Subject) IsZero() bool { return s == Subject{} }

// Valid reports whether the kind of s exists.
func (s Subject) Valid() bool { return s.Kind <= IncidentSubject }

// Compare orders subjects by kind, then by ID.
func (s Subject) Compare(o Subject) int {
	return cmp.Or(cmp.Compare(s.Kind, o.Kind), s.ID.Compare(o.ID))
}

// String returns the ID of s in the form that the API uses: 32 hexadecimal digits for a problem, 16 for an incident.
func (s Subject) String() string {
	if id, ok := s.Incident(); ok {
		return fmt.Sprintf("%016x", id)
	}
	return s.ID.String()
}
