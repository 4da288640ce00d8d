// Package incident turns the scores of services, epoch by epoch, into incidents: one for each cause, with its suspects,
// from the epoch in which it is noticed until it is over. It is pure, like package analysis.
package incident

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident is a time in which requests lose more time, or fail more often, than the history of the installation
// explains.
type Incident struct {
	ID     uint64      // hash of its first suspect and of its opening time
	Onset  trace.Nanos // estimated beginning of the change
	Opened trace.Nanos // end of the epoch in which it was noticed
	// Reopened is the end of the epoch in which it last returned after it had closed; 0: never.
	Reopened trace.Nanos
	Seen     trace.Nanos // end of the last epoch with evidence
	Closed   trace.Nanos // 0: still open
	// Weeks is the number of weeks, 1 or 4, back to the times with which it was compared: it took hours or days to
	// grow. It is 0 if it was compared with the hours before.
	Weeks int
	// Steady is the end of the epoch since which its evidence has neither grown by a quarter nor returned after an end.
	Steady trace.Nanos
	// Proposed is the end of the epoch in which it had first been steady for [Day]; 0: it has not been.
	Proposed trace.Nanos
	Into     uint64 // the incident that it was merged into, which closed it; 0: none
	// Accepted reports that a person accepted the behaviour since the onset as normal, which closes it. AcceptedBy is
	// that person's name, "" if it is unknown, and AcceptedText a note of that person.
	Accepted     bool
	AcceptedBy   string
	AcceptedText string
	// Unseen reports that no traces arrived when it closed: nobody knows whether it is over.
	Unseen bool
	// Alerted is the first suspect at the time when it opened, or opened again: alerts about it keep the name.
	Alerted trace.Symbol
	// Suspects are the services, the most likely cause first, as of the epoch with the most evidence so far. Their
	// scores are means from the onset to the time at which the first had cost most. There is at least one.
	Suspects []baselinediff.Suspect
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

// End returns the end of the evidence of a closed incident; 0 while it is open. Incidents close some time later, in
// case the evidence returns.
func (x *Incident) End() trace.Nanos {
	if x.Seen == 0 {
		return x.Closed // of an earlier version, which did not keep it
	}
	return min(x.Seen, x.Closed)
}

// Lasted returns the time from the onset of x to its end or, while it is open, until now.
func (x *Incident) Lasted(now trace.Nanos) time.Duration {
	if x.Closed != 0 {
		now = x.End()
	}
	return max(0, now.Sub(x.Onset))
}

// Day is the time for which an open incident must be steady before accepting it as normal is proposed. After a day
// people know of it, and it is neither a peak nor a nightly job.
const Day = 24 * time.Hour

// IsSteady reports whether an open incident has been steady for a day.
func (x *Incident) IsSteady(now trace.Nanos) bool {
	return x.Closed == 0 && x.Steady != 0 && now.Sub(x.Steady) >= Day
}

// leastShown is the smallest score that is not rounded to 0.00.
const leastShown = 0.005

// Shown returns the suspects that are worth showing: the first, and the following ones with a score that is not rounded
// to 0.00.
func (x *Incident) Shown() []baselinediff.Suspect {
	n := min(1, len(x.Suspects))
	for n < len(x.Suspects) && x.Suspects[n].Score >= leastShown {
		n++
	}
	return x.Suspects[:n]
}
