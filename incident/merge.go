package incident

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

// merge joins incidents with the same cause: if one of two incidents explains the other, the younger is merged into the
// older. The younger incident is closed if it was reported in an earlier epoch; otherwise it is deleted.
func (t *Tracker) merge(now trace.Nanos, comparer *compare.Comparer) {
	t.incidents = slices.DeleteFunc(t.incidents, func(y *tracked) bool {
		for _, x := range t.incidents {
			if x == y {
				return false // x and all incidents after it are younger
			}
			if !x.IsOpen() || !y.IsOpen() || x.unexplained() || y.unexplained() {
				continue
			}
			a, b, sameTime := x.strongest(), y.strongest(), t.exceededSince(y.service, now).Sub(x.Opened()) < settling
			switch {
			case explained(b, a, sameTime, comparer):
			case explained(a, b, sameTime, comparer):
				x.evidence, x.current, x.symptoms = y.evidence, y.current, y.symptoms
			default:
				continue
			}
			return x.absorb(now, y)
		}
		return false
	})
}

// absorb adds y, which has the same cause, to x. It reports whether y can be deleted because it hasn't been reported
// yet; otherwise it closes y.
func (x *tracked) absorb(now trace.Nanos, y *tracked) (disappears bool) {
	x.Seen = max(x.Seen, y.Seen)
	x.miss(y.Objectives...)
	if y.Opened() == now {
		return true
	}
	y.close(Transition{At: now, State: Merged, Why: SameCause, Into: x.ID})
	return false
}
