package eval

import (
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
)

// Answer returns what somebody who watches would be told: the first-ranked problem's investigation among those that located a
// cause; where none has, among those that go on; then any. Nil if nothing is investigated.
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

// conclusive orders the states of an investigation by how much they say.
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
