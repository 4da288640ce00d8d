package incident

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/trace"
)

// incidents holds the incidents of a tracker in the order of opening.
type incidents []*tracked

// openOf returns the open incident of service, or nil if it has no open incident.
func (all incidents) openOf(service trace.Symbol) *tracked {
	for _, x := range all {
		if x.IsOpen() && x.service == service {
			return x
		}
	}
	return nil
}

// affects reports whether service is affected by an incident that is open or had evidence after `since`.
func (all incidents) affects(service trace.Symbol, since trace.Nanos) bool {
	return slices.ContainsFunc(all, func(x *tracked) bool {
		if !x.IsOpen() && x.Seen <= since {
			return false
		}
		_, found := slices.BinarySearch(x.affected, service)
		return found
	})
}

// raisedBy reports whether service has an open incident that was raised by windows at least `every` apart.
func (all incidents) raisedBy(service trace.Symbol, every time.Duration) bool {
	x := all.openOf(service)
	return x != nil && x.every >= every
}

// rank returns the rank of s among the suspects of x: 0 for the service that x is about, 2 for services with an open
// incident of their own, and 1 for all others.
func (all incidents) rank(x *tracked, s *compare.Suspect) int {
	if s.Service == x.service {
		return 0
	}
	for _, y := range all {
		if y != x && y.IsOpen() && y.service == s.Service {
			return 2
		}
	}
	return 1
}

// onset returns the earliest onset of an open incident, or now if no incident is open.
func (all incidents) onset(now trace.Nanos) trace.Nanos {
	for _, x := range all {
		if x.IsOpen() {
			now = min(now, x.Onset)
		}
	}
	return now
}

// inWindow reports whether the window that ends now has evidence of an incident that wasn't accepted and doesn't stay
// unexplained.
func (all incidents) inWindow(now trace.Nanos) bool {
	return slices.ContainsFunc(all, func(x *tracked) bool {
		return x.Last().State != Accepted && x.Seen > now.Add(-Window) && !x.staysUnexplained(now)
	})
}
