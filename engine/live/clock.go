package live

import (
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// slower is by how much, one in so many, the service's time runs slower than the clock while it is ahead of it.
const slower = 10

// steady makes of a clock that somebody may set a time that neither goes back nor stands still: epochs go on ending, and leases with them.
// A clock that is set forward is followed at once; one that is set back is waited for, at a little less than its pace.
type steady struct {
	now  trace.Nanos // never goes back
	last time.Time   // when the clock was looked at; zero: never
}

// advance looks at the clock, whose times may carry a monotonic reading.
func (s *steady) advance(clock time.Time) trace.Nanos {
	return s.set(clock, trace.Nanos(clock.UnixNano()))
}

// set says what the clock shows, and in passed a time from which, unlike what it shows, follows how much time passed.
func (s *steady) set(passed time.Time, shown trace.Nanos) trace.Nanos {
	elapsed := time.Duration(0)
	if !s.last.IsZero() {
		elapsed = max(0, passed.Sub(s.last))
	}
	s.last = passed
	s.now = max(s.now.Add(elapsed-elapsed/slower), shown)
	return s.now
}
