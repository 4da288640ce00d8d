package live

import (
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// slowdown determines how fast the system clock catches up when the service's time is ahead: the service's time then
// advances by only 1 − 1/slowdown of the elapsed time.
const slowdown = 10

// steadyClock derives a time that never goes back or stops from a system clock that may be set, so that epochs keep
// ending and leases keep expiring. If the system clock is set forward, the time follows at once. If it is set back, the
// time advances more slowly until the system clock has caught up.
type steadyClock struct {
	now  trace.Nanos // never goes back
	last time.Time   // latest reading of the clock; zero before the first
}

// advance returns the time at clock, a reading of the system clock, which may lack a monotonic part.
func (s *steadyClock) advance(clock time.Time) trace.Nanos {
	return s.update(clock, trace.Nanos(clock.UnixNano()))
}

// update returns the time at which the system clock shows `shown`. The time elapsed since the last call is the
// difference between the two values of `passed`.
func (s *steadyClock) update(passed time.Time, shown trace.Nanos) trace.Nanos {
	elapsed := time.Duration(0)
	if !s.last.IsZero() {
		elapsed = max(0, passed.Sub(s.last))
	}
	s.last = passed
	s.now = max(s.now.Add(elapsed-elapsed/slowdown), shown)
	return s.now
}
