package eval

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
)

// Answer returns the investigation that an observer would act on, or nil if there is no investigation. Open incidents
// come before problems, and among incidents the highest score first, among problems the best rank. An investigation
// that located a cause comes before an active one, and an active one before others.
func Answer(core *engine.Core) *search.Investigation {
	var best *search.Investigation
	consider := func(v *search.Investigation) {
		if v != nil && (best == nil || conclusive(v) > conclusive(best)) {
			best = v
		}
	}
	view := core.View()
	incidents := slices.DeleteFunc(view.Incidents.All(), func(x engine.Incident) bool { return !x.IsOpen() })
	slices.SortStableFunc(incidents, func(a, b engine.Incident) int {
		return cmp.Compare(b.Suspects[0].Score, a.Suspects[0].Score)
	})
	for i := range incidents {
		consider(view.Searches.Investigation(search.OfIncident(incidents[i].ID)))
	}
	for _, p := range view.Problems.Open() {
		consider(view.Searches.Investigation(search.OfProblem(p.ID)))
	}
	return best
}

// conclusive orders investigations by their status, the most conclusive highest.
func conclusive(v *search.Investigation) int {
	switch v.Status {
	case search.Located, search.Explained:
		return 2
	case search.Opened, search.Investigating:
		return 1
	case search.Exhausted, search.Gone:
	}
	return 0
}
