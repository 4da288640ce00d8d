package incident

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// State is a state in the life of an incident.
type State uint8

// The states of an incident. An incident in state Open or Steady is open; see [State.IsOpen].
const (
	Open     State = iota // requests are slower, or fail more often, than usual
	Steady                // open for a [Day] without getting worse: we propose to accept it as normal
	Closed                // over, or the cause can no longer be observed: see Why
	Merged                // has the same cause as another incident, which continues
	Accepted              // a person accepted the behaviour since the onset as normal
)

// IsOpen reports whether an incident in state s is open.
func (s State) IsOpen() bool { return s <= Steady }

// Why is the reason for a transition.
type Why uint8

// The reasons for transitions. Merged and Accepted have one reason each.
const (
	Noticed   Why = iota // Open: its evidence exceeded a threshold
	Returned             // Open: evidence returned soon after the incident ended
	Grew                 // Open, no longer Steady: the evidence grew
	Unchanged            // Steady
	Recovered            // Closed: requests are back to normal
	Stopped              // Closed: its requests stopped, so nobody knows whether its cause is gone
	NoTraces             // Closed: no traces arrived, so nobody knows whether its cause is gone
	Replaced             // Closed: another incident with different evidence replaced it
	Moved                // Closed: its requests go to another service
	SameCause            // Merged
	ByPerson             // Accepted
)

// Transition is the entry into a state.
type Transition struct {
	At    trace.Nanos // end of the epoch
	State State
	Why   Why

	Into     uint64       // the incident that continues, for SameCause and Replaced
	Service  trace.Symbol // the service that gets the requests now, for Moved
	Calls    uint64       // number of calls since the end of the evidence, for Recovered
	By, Text string       // for ByPerson: the person, or "" if unknown, and their note
}

// Day is the time that an incident must stay unchanged before we propose to accept it as normal. By then people know
// about it, and it is neither a peak nor a nightly job.
const Day = 24 * time.Hour

// maxTransitions is the maximum length of a history. If there are more transitions, the history keeps the first and the
// latest ones.
const maxTransitions = 50

// Enter appends a transition to the history of x. It never modifies a history that [Tracker.Incidents] has returned.
func (x *Incident) Enter(t Transition) {
	h := slices.Clip(x.History)
	if len(h) == maxTransitions {
		h = slices.Delete(slices.Clone(h), 1, 2)
	}
	x.History = append(h, t)
}

// Last returns the latest transition of x, or the zero value if x has no history.
func (x *Incident) Last() Transition {
	if len(x.History) == 0 {
		return Transition{}
	}
	return x.History[len(x.History)-1]
}

// IsOpen reports whether x is open.
func (x *Incident) IsOpen() bool { return x.Last().State.IsOpen() }

// IsSteady reports whether x has been open for a day without getting worse.
func (x *Incident) IsSteady() bool { return x.Last().State == Steady }

// Opened returns the end of the epoch that noticed x.
func (x *Incident) Opened() trace.Nanos {
	if len(x.History) == 0 {
		return 0
	}
	return x.History[0].At
}

// Reopened returns the end of the epoch when x last reopened, or 0 if it never did.
func (x *Incident) Reopened() trace.Nanos { return x.latest(Returned) }

// LastOpened returns the end of the epoch when x opened or last reopened.
func (x *Incident) LastOpened() trace.Nanos { return max(x.Opened(), x.Reopened()) }

// Proposed returns the end of the epoch when we last proposed to accept x, or 0 if we never did.
func (x *Incident) Proposed() trace.Nanos { return x.latest(Unchanged) }

// Closed returns the end of the epoch when x closed, or 0 while it is open.
func (x *Incident) Closed() trace.Nanos {
	if x.IsOpen() {
		return 0
	}
	return x.Last().At
}

// Into returns the ID of the incident that x was merged into, or 0 if x was not merged.
func (x *Incident) Into() uint64 {
	if last := x.Last(); last.State == Merged {
		return last.Into
	}
	return 0
}

// latest returns the time of the latest transition with reason why, or 0 if there is no such transition.
func (x *Incident) latest(why Why) trace.Nanos {
	for _, t := range slices.Backward(x.History) {
		if t.Why == why {
			return t.At
		}
	}
	return 0
}

// End returns the time when the evidence of a closed incident ended, or 0 while x is open. An incident closes some time
// later, in case the evidence returns.
func (x *Incident) End() trace.Nanos {
	if x.IsOpen() {
		return 0
	}
	return min(x.Seen, x.Closed())
}

// Lasted returns the time from the onset of x to its end, or to now while it is open.
func (x *Incident) Lasted(now trace.Nanos) time.Duration {
	if !x.IsOpen() {
		now = x.End()
	}
	return max(0, now.Sub(x.Onset))
}

// NobodyKnows reports whether x was closed without a sign that its cause is gone.
func (x *Incident) NobodyKnows() bool {
	why := x.Last().Why
	return !x.IsOpen() && (why == Stopped || why == NoTraces)
}
