package describe

import (
	"cmp"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// MissedObjective describes the violated objective x in a sentence without a full stop. If over is set, it says "within
// an hour" instead of "in the last hour".
func MissedObjective(n *Names, x *incident.Missed, over bool) Sentence {
	failed := "failed"
	if x.Below > 0 {
		failed = "took " + units.Duration(x.Below) + " or longer"
	}
	window := units.Plural(int(x.Window/time.Hour), "hour")
	switch {
	case over && x.Window == time.Hour:
		window = "within an hour"
	case over:
		window = "within " + window
	case x.Window == time.Hour:
		window = "in the last hour"
	default:
		window = "in the last " + window
	}
	objective := Name(n.Clean(cmp.Or(x.Name, x.Entry))).quiet()
	return Say("%s: %s of the requests "+failed+" "+window+" (objective: %s)",
		objective, number(units.Percent(x.Requests.Share())), number(budget(x.Budget())))
}

// budget formats share as a percentage with up to six digits, so that it reads as configured.
func budget(share float64) string { return strconv.FormatFloat(share*100, 'g', 6, 64) + " %" }

// missed returns a sentence about the first objective that x violates and the number of other such objectives, or nil
// if x violates no objective.
func missed(n *Names, x *Incident) Sentence {
	if len(x.Objectives) == 0 {
		return nil
	}
	s := MissedObjective(n, &x.Objectives[0], !x.IsOpen())
	switch more := len(x.Objectives) - 1; more {
	case 0:
		s.Plain(".")
	case 1:
		s.Plain("; 1 more objective is missed.")
	default:
		s.Plain("; " + units.Count(more) + " more objectives are missed.")
	}
	return s
}
