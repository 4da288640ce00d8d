package describe

import (
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Unequal returns a sentence about the instance u, which differs from its siblings in failures or durations.
func Unequal(n *Names, u *compare.UnequalInstance) Sentence {
	instance, key, service := n.text(u.Value), Phrase{Text: n.Text(u.Key)}, n.service(u.Service)
	siblings := Phrase{Text: "its " + units.Plural(u.Siblings, "sibling")}
	if u.Failed-u.UsualFailed > u.Nanos/max(1, u.Usual)-1 {
		return Say("%s of the calls of %s (%s) of %s fail, and %s of those of %s.",
			number(units.Percent(u.Failed)), instance, key, service, number(units.Percent(u.UsualFailed)), siblings)
	}
	ratio := number(units.Ratio(u.Nanos / max(1, u.Usual)))
	return Say("%s (%s) of %s takes %s times as long as %s: %s a call, they %s.",
		instance, key, service, ratio, siblings, number(units.Nanos(u.Nanos)), number(units.Nanos(u.Usual)))
}
