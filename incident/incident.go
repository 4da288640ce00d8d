// Package incident turns the scores of services, epoch by epoch, into incidents: one for each cause, with its suspects,
// from the epoch in which it is noticed until it is over. It is pure, like package analysis.
package incident

import (
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident is a time in which requests are slower, or fail more often, than the history of the installation
// explains.
type Incident struct {
	ID      uint64       // hash of its first suspect and of its opening time
	Onset   trace.Nanos  // estimated beginning of the change
	Seen    trace.Nanos  // end of the last epoch with evidence
	History []Transition // its life: the opening first. Not empty, and immutable
	// Weeks is the number of weeks, 1 or 4, back to the times with which it was compared: it took hours or days to
	// grow. It is 0 if it was compared with the hours before.
	Weeks int
	// Alerted is the first suspect at the time when it opened, or opened again: alerts about it keep the name.
	Alerted trace.Symbol
	// Suspects are the services, the most likely cause first, as of the epoch with the most evidence so far. Their
	// scores are means from the onset to the time at which the first had cost most. There is at least one.
	Suspects []compare.Suspect
	// Shared is the node or zone where its suspects are slow; without services if they have no place in common.
	Shared compare.SharedPlace
	// Objectives are those that requests miss because of it, in the order in which they joined. If an objective opened
	// it and no service stands out, the only suspect is the service of the entry, with a score of 0.
	Objectives []Missed

	Requests int     // number of traces from the onset to that time
	Duration float64 // mean duration of a trace in the history in ns: the unit of the times in Suspects
	Mean     float64 // mean duration of those traces in ns
}

// Longer returns the mean duration of the traces above that of the history, relative to it: negative if they are
// shorter.
func (x *Incident) Longer() float64 { return x.Mean/max(1, x.Duration) - 1 }

// leastShown is the smallest score that is not rounded to 0.00.
const leastShown = 0.005

// Shown returns the suspects that are worth showing: the first, and the following ones with a score that is not rounded
// to 0.00.
func (x *Incident) Shown() []compare.Suspect {
	n := min(1, len(x.Suspects))
	for n < len(x.Suspects) && x.Suspects[n].Score >= leastShown {
		n++
	}
	return x.Suspects[:n]
}
