// Package incident turns the scores of services into incidents, epoch by epoch. There is one incident per cause, with
// its suspects, from the epoch that notices it until it is over. The package is pure: time and data are arguments.
package incident

import (
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident is a period when requests are slower, or fail more often, than the history of the installation can explain.
type Incident struct {
	ID      uint64       // hash of its first suspect or its objective, and of its opening time
	Onset   trace.Nanos  // estimated start of the change
	Seen    trace.Nanos  // end of the last epoch with evidence
	History []Transition // transitions, the opening first; not empty, and immutable
	// Weeks is 1 or 4 if the incident was found by a comparison with the same time one or four weeks earlier, because
	// the change took hours or days. It is 0 if the incident was found by a comparison with the hours before.
	Weeks int
	// Alerted is the first suspect when the incident opened or last reopened. All alerts about the incident use its
	// name.
	Alerted trace.Symbol
	// Suspects are the suspected services as of the epoch with the most evidence so far, the most likely cause first.
	// Their scores are means from the onset to the time when the total cost of the first suspect was highest. There is
	// at least one suspect.
	Suspects []compare.Suspect
	// Shared is the node or zone where the suspects are slow. It has no services if they don't share a place.
	Shared compare.SharedPlace
	// Objectives are the objectives that requests miss because of the incident, in the order they joined. If an
	// objective opened the incident and no service stands out, the only suspect is the service of the entry, with score
	// 0.
	Objectives []Missed

	Requests int     // number of traces in the time that Suspects covers
	Duration float64 // mean duration of a trace in the history in ns: the unit of the times in Suspects
	Mean     float64 // mean duration of these traces in ns
}

// Longer returns the growth of the mean duration relative to the history. It is negative if traces have become shorter.
func (x *Incident) Longer() float64 { return x.Mean/max(1, x.Duration) - 1 }

// leastShown is the smallest score that is not rounded to 0.00.
const leastShown = 0.005

// Shown returns the suspects that are worth showing: the first one, and others whose score doesn't round to 0.00.
func (x *Incident) Shown() []compare.Suspect {
	n := min(1, len(x.Suspects))
	for n < len(x.Suspects) && x.Suspects[n].Score >= leastShown {
		n++
	}
	return x.Suspects[:n]
}
