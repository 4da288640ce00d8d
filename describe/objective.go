package describe

import (
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/internal/units"
)

// Objective holds the numbers that describe an objective that requests violate.
type Objective struct {
	Name   string        // its name in the configuration, or the entry of the requests
	Entry  string        // of the requests
	Below  time.Duration // duration that requests must not reach; 0 if the objective is about failures
	Budget float64       // share of the requests that may miss it
	Share  float64       // share that missed it in the window
	Window time.Duration
}

// Missed describes the violated objective x in a sentence without a full stop. If over is set, it says "within an hour"
// instead of "in the last hour".
func (n *Names) Missed(x *Objective, over bool) string {
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
	return n.Clean(x.Name) + ": " + units.Percent(x.Share) + " of the requests " + failed + " " + window + " (objective: " + budget(x.Budget) + ")"
}

// budget returns share as a percentage with up to six digits, so that it reads as it was configured.
func budget(share float64) string { return strconv.FormatFloat(share*100, 'g', 6, 64) + " %" }

// missed appends the first objective that x violates, and the number of the others. It appends nothing if x violates
// none.
func (n *Names) missed(s *Sentence, x *Incident) {
	if len(x.Objectives) == 0 {
		return
	}
	s.Plain(n.Missed(&x.Objectives[0], x.Over))
	switch more := len(x.Objectives) - 1; more {
	case 0:
		s.Plain(".")
	case 1:
		s.Plain("; 1 more objective is missed.")
	default:
		s.Plain("; " + units.Count(more) + " more objectives are missed.")
	}
}
