package describe

import (
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Unequal returns a sentence about the instance u, which differs from its siblings in its failures or durations.
func Unequal(n *Names, u *compare.UnequalInstance) string {
	name := n.Text(u.Value) + " (" + n.Text(u.Key) + ") of " + n.NamedService(u.Service)
	siblings := "its " + units.Plural(u.Siblings, "sibling")
	ratio := u.Nanos / max(1, u.Usual)
	if u.Failed-u.UsualFailed > ratio-1 {
		return units.Percent(u.Failed) + " of the calls of " + name + " fail, " +
			"and " + units.Percent(u.UsualFailed) + " of those of " + siblings + "."
	}
	return name + " takes " + units.Ratio(ratio) + " times as long as " + siblings + ": " +
		units.Nanos(u.Nanos) + " a call, they " + units.Nanos(u.Usual) + "."
}
