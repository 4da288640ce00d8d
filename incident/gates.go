package incident

import "time"

// Gates are the smallest changes that are worth an incident. A change must also exceed the record of its service or
// operation: gates only hide changes and never make detection more sensitive.
type Gates struct {
	// Growth is the growth of the own time of an operation relative to its usual own time, and Time the added latency
	// per call.
	Growth float64
	Time   time.Duration
	// Lost is the added latency of all calls of the operation per second. LostPart is the part of the time of all
	// requests that is enough instead in a small installation.
	Lost     time.Duration
	LostPart float64
	Failing  float64 // share of the calls of an operation that fail
	// Score is the score of a service: its added latency as a part of the usual time of requests, or the share of
	// requests that fails.
	Score float64
}

// DefaultGates returns the gates that suit most installations.
func DefaultGates() Gates {
	return Gates{Growth: 0.1, Time: time.Millisecond, Lost: time.Millisecond, LostPart: 1. / 400, Failing: 0.05, Score: 0.02}
}

// SetGates replaces the gates. The zero value stands for [DefaultGates], as in settings of earlier versions.
func (t *Tracker) SetGates(g Gates) {
	if t.gates = g; g == (Gates{}) {
		t.gates = DefaultGates()
	}
}
