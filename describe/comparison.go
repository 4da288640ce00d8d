package describe

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Comparison holds the numbers that describe a comparison of a window with a baseline.
type Comparison struct {
	When     string            // a [Period], or text in its place
	Types    int               // number of request types in the window
	Slower   int               // number of slower request types
	Unjudged int               // number of request types with too few requests to compare
	Suspects []compare.Suspect // ranked
	Usual    []float64         // the highest scores in parts of the baseline as long as the window; empty if unknown
}

// leastScore is the smallest score that is not rounded to 0.00.
const leastScore = 0.005

// Sentence describes d: the number of slower request types, the evidence against the first suspect, and the reasons to
// doubt it.
func (d *Comparison) Sentence(n *Names) (s Sentence) {
	found := len(d.Suspects) > 0 && d.Suspects[0].Score >= leastScore
	switch {
	case !found && d.Unjudged == d.Types:
		s.Plain("Nothing can be compared: ")
		s.Plain("no request type has enough requests both in the window and in the baseline.")
		return s
	case !found && d.Slower == 0:
		s.Plain("Nothing stands out: no request type is clearly slower " + d.When + ", and ")
		s.Plain("no service takes longer or behaves otherwise than the baseline explains. ")
		s.Plain("The waits of messages, and requests that stopped, are not compared.")
	case !found:
		d.slowerTypes(&s)
		s.Plain(", but no service accounts for it.")
	case d.Slower == 0:
		d.slowerTypes(&s)
		s.Plain(", but ")
	default:
		d.slowerTypes(&s)
		s.Plain("; ")
	}
	mostlyTime := false
	if found {
		first := &d.Suspects[0]
		mostlyTime = 2*first.AddedTime() >= first.Score
		(&evidence{
			Sentence: &s,
			names:    n,
			suspects: d.Suspects,
			counted:  true,
			baseline: "in the baseline",
			longer:   d.Slower > 0 || mostlyTime,
		}).write()
		s.Plain(".")
	}
	switch {
	case len(d.Usual) == 0 && d.Slower == 0 && mostlyTime:
		s.Plain(" This may be chance: the baseline is too short to tell how much such scores vary.")
	case found && len(d.Usual) > 0 && d.Suspects[0].Score <= stats.Median(slices.Clone(d.Usual)):
		s.Plain(" This may be chance: half of the baseline scores as much.")
	}
	switch {
	case d.Unjudged == 1:
		s.Plain(" 1 other request type has too few requests to compare.")
	case d.Unjudged > 1:
		s.Plain(" " + units.Count(d.Unjudged) + " other request types have too few requests to compare.")
	}
	return s
}

// slowerTypes appends the number of slower request types.
func (d *Comparison) slowerTypes(s *Sentence) {
	switch d.Slower {
	case 0:
		s.Plain("No request type is clearly slower " + d.When)
	case 1:
		s.Strong("1 request type")
		s.Plain(" is slower " + d.When)
	default:
		s.Strong(units.Plural(d.Slower, "request type"))
		s.Plain(" are slower " + d.When)
	}
}
