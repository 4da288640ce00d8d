package engine

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/trace"
)

// Place is the place of an incident, as it was located: the numbers do not change with later requests.
type Place struct {
	Operation trace.Op // 0: none was located
	Share     float64  // of the lost time, or of the variance
	Variance  bool     // the share is of the variance
	At        trace.Nanos
	Of        analysis.Hash // problem whose investigation located it, perhaps that as which the search sees the incident
}

// rememberPlaces sets the places of the open incidents whose investigations have located one. A place is forgotten if
// the first suspect becomes another service.
func (c *Core) rememberPlaces(now trace.Nanos) {
	tracked := c.incidents.Incidents()
	for i := range tracked {
		x := &tracked[i]
		if a := c.affected[x.ID]; a != nil && x.Closed == 0 && len(x.Suspects) > 0 {
			a.Place = c.placeOf(x, a.Place, now)
		}
	}
}

func (c *Core) placeOf(x *incident.Incident, before Place, now trace.Nanos) Place {
	if v := c.Investigation(x.ID); v.Answer() != 0 && v.Answer() != before.Operation {
		p := c.Searched(v.Problem)
		return Place{v.Answer(), v.AnswerShare(), p != nil && p.Kind == detect.KindVariable, now, v.Problem}
	}
	if !c.concerns(before.Operation, x.Suspects[0].Service) {
		return Place{}
	}
	return before
}

// Searched returns a problem as the search saw it in the last epoch: that of an incident, or an open one; nil if it was
// neither.
func (c *Core) Searched(problem analysis.Hash) *detect.Problem {
	for _, s := range c.searches {
		if s.problem.ID == problem {
			return &s.problem
		}
	}
	for i := range c.problems {
		if c.problems[i].ID == problem {
			return &c.problems[i]
		}
	}
	return nil
}
