package notify

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/search"
)

// Change is something to be told.
type Change struct {
	Type     Type
	Problem  analysis.Hash    // zero: none
	Decision *search.Decision // nil: there was none
}

// Changes returns what happened between two states of the search, in the order in which it should be told: problems that opened or
// opened again, then every decision, each followed by what it says of its problem.
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
		if t := told(d); t != "" {
			list = append(list, Change{t, d.Investigation, d})
		}
	}
	return list
}

// told returns what a decision says of its problem; empty: nothing new.
func told(d *search.Decision) Type {
	if d.From == d.To || d.Investigation.IsZero() {
		return ""
	}
	return tellings[d.To]
}

// tellings are the states of an investigation that are events of its problem.
var tellings = map[search.Status]Type{search.Located: ProblemLocated, search.Explained: ProblemExplained, search.Gone: ProblemClosed}
