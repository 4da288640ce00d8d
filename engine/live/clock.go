package live

import (
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// slowdown sets how fast the system clock catches up when the service's time is ahead: by 1/slowdown of the elapsed
// time.
const slowdown = 10

// steadyClock derives a time that never goes back or stops from a system clock that may be set, so that epochs keep
// ending and leases keep expiring. If the clock is set forward, it follows at once. If the clock is set back, the time
// advances a little more slowly until the clock has caught up.
type steadyClock struct {
	now  trace.Nanos // never goes back
	last time.Time   // latest reading of the clock; zero before the first
}

// advance returns the time for clock, a reading of the system clock, which may have a monotonic part.
func (s *steadyClock) advance(clock time.Time) trace.Nanos {
	return s.update(clock, trace.Nanos(clock.UnixNano()))
}

// update returns the time when the system clock shows shown. Elapsed time is the difference between successive values
// of passed.
func (s *steadyClock) update(passed time.Time, shown trace.Nanos) trace.Nanos {
	elapsed := time.Duration(0)
	if !s.last.IsZero() {
		elapsed = max(0, passed.Sub(s.last))
	}
	s.last = passed
	s.now = max(s.now.Add(elapsed-elapsed/slowdown), shown)
	return s.now
}
