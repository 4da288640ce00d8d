// Package incident turns the scores of services, epoch by epoch, into incidents: one for each cause, with its suspects,
// from the epoch in which it is noticed until it is over. It is pure, like package analysis.
package incident

import (
	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
	"github.com/sibyl-trace/sibyl/trace"
)

// Incident is a time in which requests lose more time, or fail more often, than the history of the installation
// explains.
type Incident struct {
	ID     uint64      // hash of its first suspect and of its opening time
	Onset  trace.Nanos // estimated beginning of the change
	Opened trace.Nanos // end of the epoch in which it was noticed
	Closed trace.Nanos // 0: still open
	// Suspects are the services in the window with the highest score so far, the most likely cause first. There is at
	// least one.
	Suspects []baselinediff.Suspect
	Requests int     // number of traces in that window
	Duration float64 // mean duration of a trace in the history in ns: the unit of the times in Suspects
}
