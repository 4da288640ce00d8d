package epoch

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
)

// addObjectives adds the objectives of c to s, each with its open incident if there is one.
func (s *Snapshot) addObjectives(c *engine.View) {
	s.Objectives = []contract.Objective{}
	open := c.Incidents.All()
	for _, x := range c.Objectives() {
		s.Objectives = append(s.Objectives, ObjectiveOf(&x, open))
	}
}

// ObjectiveOf converts an objective to the type of the contract. If an open incident in all makes requests miss the
// objective, the result names the incident.
func ObjectiveOf(x *incident.ObjectiveStatus, all []engine.Incident) contract.Objective {
	d := contract.Objective{
		Name:      cmp.Or(x.Name, x.Entry),
		Entry:     x.Entry,
		Kind:      contract.ObjectiveKind(x.Kind()),
		Budget:    x.Budget(),
		Requests:  int64(x.Month.Requests),
		Missed:    int64(x.Month.Missed),
		From:      render.Instant(x.From),
		Remaining: x.Remaining,
		Burning:   render.Instant(x.Burning),
		Waived:    x.Waived,
		Windows:   make([]contract.BurnRate, 0, len(x.Rates)),
	}
	if x.Below > 0 {
		d.BelowNs, d.Percentile = new(x.Below.Nanoseconds()), &x.Percentile
	}
	for _, r := range x.Rates {
		d.Windows = append(d.Windows, contract.BurnRate{
			WindowNs: r.Window.Nanoseconds(),
			Requests: int64(r.Requests.Requests),
			Missed:   int64(r.Requests.Missed),
			Rate:     r.Rate,
			Alert:    r.Alert,
		})
	}
	for i := range all {
		if all[i].IsOpen() && slices.ContainsFunc(all[i].Objectives,
			func(m incident.Missed) bool { return m.SameRequests(&x.Objective) }) {
			d.Incident = new(render.Hex16(all[i].ID))
		}
	}
	return d
}

// missedObjective converts m, an objective that the requests of an incident miss, to the type of the contract. If over
// is set, the incident has ended, and the sentence is in the past tense.
func missedObjective(names *describe.Names, m *incident.Missed, over bool) contract.IncidentObjective {
	x := contract.IncidentObjective{
		Name:     cmp.Or(m.Name, m.Entry),
		Entry:    m.Entry,
		Kind:     contract.ObjectiveKind(m.Kind()),
		Budget:   m.Budget(),
		Share:    m.Requests.Share(),
		BurnRate: m.Rate,
		WindowNs: m.Window.Nanoseconds(),
		At:       render.At(m.At),
		Sentence: describe.MissedObjective(names, m, over).String() + ".",
	}
	if m.Below > 0 {
		x.BelowNs, x.Percentile = new(m.Below.Nanoseconds()), &m.Percentile
	}
	return x
}
