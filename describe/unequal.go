package describe

import (
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Unequal returns a sentence about the instance u, which differs from its siblings in its failures or durations.
func (n *Names) Unequal(u *compare.UnequalInstance) string {
	name := n.Clean(n.Table.Text(u.Value)) + " (" + n.Clean(n.Table.Text(u.Key)) + ") of " + n.NamedService(u.Service)
	siblings := "its " + units.Plural(u.Siblings, "sibling")
	if u.Failed-u.UsualFailed > u.Nanos/max(1, u.Usual)-1 {
		return units.Percent(u.Failed) + " of the calls of " + name + " fail, and " + units.Percent(u.UsualFailed) + " of those of " + siblings + "."
	}
	return name + " takes " + units.Ratio(u.Nanos/max(1, u.Usual)) + " times as long as " + siblings + ": " + units.Nanos(u.Nanos) + " a call, they " + units.Nanos(u.Usual) + "."
}
