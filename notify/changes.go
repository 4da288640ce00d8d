package notify

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/search"
)

// Change is an event of a problem or a decision.
type Change struct {
	Type     Type
	Problem  analysis.Hash    // zero: none
	Decision *search.Decision // nil: there was none
}

// Changes returns the changes between two states of the search in the order of their events: problems that opened or
// opened again, then each decision, followed by the change of its problem, if any.
func Changes(before, after *search.State, decisions []search.Decision) []Change {
	var list []Change
	for i := range after.Investigations {
		v := &after.Investigations[i]
		old := before.Investigation(v.Problem)
		if v.Status != search.Gone && (old == nil || old.Status == search.Gone) {
			list = append(list, Change{ProblemOpened, v.Problem, nil})
		}
	}
	for i := range decisions {
		d := &decisions[i]
		list = append(list, Change{Decided, d.Investigation, d})
		if t := typeOf(d); t != "" {
			list = append(list, Change{t, d.Investigation, d})
		}
	}
	return list
}

// typeOf returns the type of the event in which a decision changes its problem; empty: there is none.
func typeOf(d *search.Decision) Type {
	if d.From == d.To || d.Investigation.IsZero() {
		return ""
	}
	return problemEvents[d.To]
}

// problemEvents are the events of a problem by the new status of its investigation.
var problemEvents = map[search.Status]Type{search.Located: ProblemLocated, search.Explained: ProblemExplained, search.Gone: ProblemClosed}
