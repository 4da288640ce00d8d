package eval

import (
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
)

// Answer returns the investigation that an observer would act on: of the best-ranked problem with a located cause, or
// else of the best-ranked one with an active investigation, or else of the best-ranked one with any. It returns nil
// if there are none.
func Answer(core *engine.Core) *search.Investigation {
	var best *search.Investigation
	state := core.State()
	for i := range core.Problems() {
		v := state.Investigation(core.Problems()[i].ID)
		if v != nil && (best == nil || conclusive(v) > conclusive(best)) {
			best = v
		}
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
