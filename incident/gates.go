package incident

import (
	"slices"
	"time"
)

// Gates are the smallest changes that are worth an incident. A change must also exceed the record of its service or
// operation, so gates only hide changes and never make detection more sensitive.
type Gates struct {
	// Growth is the growth of an operation's own time relative to its usual own time, and Time is the added latency per
	// call.
	Growth float64
	Time   time.Duration
	// Lost is the latency added to all calls of the operation together, per second. Less is enough in a small
	// installation; see lostPart.
	Lost    time.Duration
	Failing float64 // fraction of an operation's calls that fail
	// Score is the score of a service: the latency that it adds to requests as a fraction of their usual time, or the
	// fraction that fails there.
	Score float64
}

// DefaultGates returns the gates that suit most installations.
func DefaultGates() Gates {
	return Gates{Growth: 0.1, Time: time.Millisecond, Lost: time.Millisecond, Failing: 0.05, Score: 0.02}
}

// small is the total time of requests per second below which an installation counts as small.
const small = 400 * time.Millisecond

// lostPart returns the fraction of the time of all requests that replaces Lost in a small installation.
func (g *Gates) lostPart() float64 { return float64(g.Lost) / float64(small) }

// SetGates replaces the gates with g, or with [DefaultGates] if g is the zero value, because settings of earlier
// versions have no gates.
func (t *Tracker) SetGates(g Gates) {
	if t.baseline.gates = g; g == (Gates{}) {
		t.baseline.gates = DefaultGates()
	}
}

// Passes reports whether the figures of x reach g. The figures are those of the time with the most evidence. Records
// don't count, because x exceeded them when it opened, and incidents of objectives pass all gates.
func (x *Incident) Passes(g Gates) bool {
	if len(x.Objectives) > 0 {
		return true
	}
	j := judge{gates: g, of: fine, share: 1, started: func() bool { return false }}
	lost := float64(g.Lost) * x.Seen.Sub(x.Onset).Seconds()
	j.enough = max(1, min(lost, g.lostPart()*float64(x.Requests)*x.Duration))
	for i := range x.Suspects {
		s := &x.Suspects[i]
		for k, level := range levelsOf(s) {
			if kind(k) != flow && level >= g.Score {
				return true
			}
		}
		for _, o := range append(slices.Clip(s.Operations), s.Whole) {
			if m := j.multiples(&o, growth{}); max(m.slower, m.risen, m.failing, m.adding) >= 1 {
				return true
			}
		}
	}
	return false
}
