package notify

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/search"
)

// Change is a decision, or a change of a problem or an incident. Each Change causes an event.
type Change struct {
	Type     Type
	Subject  search.Subject   // may be zero
	Decision *search.Decision // nil if the change is not a decision
}

// Changes returns the changes in an epoch in the order of their events: first problems that opened, then each decision
// followed by the change of its problem or incident, if any, and finally problems that closed. Problems open and close
// whether or not they are investigated.
func Changes(before, after []detect.Problem, decisions []search.Decision) []Change {
	var list []Change
	for _, p := range Missing(after, before) {
		list = append(list, Change{ProblemOpened, search.OfProblem(p.ID), nil})
	}
	for i := range decisions {
		d := &decisions[i]
		list = append(list, Change{Decided, d.Subject, d})
		if t := typeOf(d); t != "" {
			list = append(list, Change{t, d.Subject, d})
		}
	}
	for _, p := range Missing(before, after) {
		list = append(list, Change{ProblemClosed, search.OfProblem(p.ID), nil})
	}
	return list
}

// Missing returns the elements of problems that aren't in others, in the same order.
func Missing(problems, others []detect.Problem) []*detect.Problem {
	known := make(map[analysis.Hash]bool, len(others))
	for i := range others {
		known[others[i].ID] = true
	}
	var missing []*detect.Problem
	for i := range problems {
		if p := &problems[i]; !known[p.ID] {
			missing = append(missing, p)
		}
	}
	return missing
}

// typeOf returns the type of the event for a decision that changes the status of its problem or incident. It returns ""
// if the decision doesn't change the status, or if there is no event for the new status.
func typeOf(d *search.Decision) Type {
	if d.From == d.To || d.Subject.IsZero() {
		return ""
	}
	if _, about := d.Subject.Incident(); about {
		return incidentEvents[d.To]
	}
	return problemEvents[d.To]
}

// Types of events about problems and incidents, by the new status of the investigation.
var (
	problemEvents  = map[search.Status]Type{search.Located: ProblemLocated, search.Explained: ProblemExplained}
	incidentEvents = map[search.Status]Type{search.Located: IncidentLocated}
)
