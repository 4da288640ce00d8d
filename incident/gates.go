package incident

import "time"

// Gates are the smallest changes that are worth an incident. A change must also exceed the record of its service or
// operation: gates only hide changes and never make detection more sensitive.
type Gates struct {
	// Growth is the growth of the own time of an operation relative to its usual own time, and Time the added latency
	// per call.
	Growth float64
	Time   time.Duration
	// Lost is the time that all calls of the operation lose in a second. In a small installation, less is enough; see
	// lostPart.
	Lost    time.Duration
	Failing float64 // share of the calls of an operation that fail
	// Score is the score of a service: the part of their usual time that requests lose there, or the share that fails.
	Score float64
}

// DefaultGates returns the gates that suit most installations.
func DefaultGates() Gates {
	return Gates{Growth: 0.1, Time: time.Millisecond, Lost: time.Millisecond, Failing: 0.05, Score: 0.02}
}

// small is the total time of requests per second below which an installation counts as small.
const small = 400 * time.Millisecond

// lostPart returns the share of the time of all requests that replaces Lost in a small installation.
func (g *Gates) lostPart() float64 { return float64(g.Lost) / float64(small) }

// SetGates replaces the gates by g. The zero value stands for [DefaultGates], because settings of earlier versions have
// no gates.
func (t *Tracker) SetGates(g Gates) {
	if t.baseline.gates = g; g == (Gates{}) {
		t.baseline.gates = DefaultGates()
	}
}
