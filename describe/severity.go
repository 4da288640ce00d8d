package describe

import (
	"cmp"
	"math"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// severity describes the figure that gives x its severity, with the bound that it reaches.
func severity(n *Names, x *engine.Incident) Sentence {
	g := x.Grounds()
	is, lowest := g.Severity.String()+".", g.Severity == engine.Minor
	if m := g.Objective; m != nil {
		objective := Name(n.Clean(cmp.Or(m.Name, m.Entry))).quiet()
		if m.Fast() {
			const fast = "Requests miss the objective %s so fast that its error budget of 30 days is spent within two: "
			return Say(fast+is, objective)
		}
		return Say("Requests miss the objective %s: "+is, objective)
	}
	bound := number(units.Percent(g.Bound))
	if t := g.Failing; t != nil {
		return Say("%s of the requests of %s fail, usually %s. "+
			"From %s percentage points more on an incident is "+is,
			number(units.Percent(t.Failed)), Name(n.Clean(affectedType(n, t))).quiet(),
			number(units.Percent(t.UsualFailed)), number(units.Count(int(math.Round(100*g.Bound)))))
	}
	if len(x.Suspects) == 0 {
		return nil
	}
	first := &x.Suspects[0]
	service := n.text(first.Service).quiet()
	if first.Queue() != nil && !lowest {
		return Say("Messages wait for %s, but no request waits for them: "+is, service)
	}
	s := Say("Averaged over all requests, affected or not, %s costs a request %s of its usual time; "+
		"a failed request loses all of it. ", service, number(units.Percent(first.Score)))
	if lowest {
		s.Say("Below %s, without a missed objective, an incident is "+is, bound)
	} else {
		s.Say("From %s on an incident is "+is, bound)
	}
	return s
}
