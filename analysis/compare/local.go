package compare

import (
	"math"

	"github.com/sibyl-trace/sibyl/analysis/history"
)

// A deploy may add, rename or remove spans inside a service. Own time then moves between its sites: to new sites
// without a history, or to sites that had less of it before. Neither move says anything about the work of the service.
// If the inner spans of a service have become more or less frequent than in its history, we judge the service by local
// times, which contain the inner spans (see [history.Series]), until they are as frequent in its history as in the
// window.

// Constants of [liveWindow.chooseTimes]. They are ratios, so they don't depend on the application.
const (
	// moved is the minimum change in the number of calls at an inner site, relative to the larger number, that counts
	// as moving own times. A deploy that replaces four pods one after another exceeds it with the second pod.
	moved = 0.25
	// movedErrors is the number of standard deviations of a Poisson distribution that the change must exceed.
	movedErrors = 3
	// leastMoved is the minimum fraction of the local time of a service that its moved inner spans must take. If they
	// take less, they can neither hide nor fake a relevant change.
	leastMoved = 0.05
)

// callsOfService sums up the calls of a service at sites that are neither inner nor on the wire.
type callsOfService struct {
	inner       bool    // it has inner sites
	before, now float64 // calls in the history and in the window
	nanos       float64 // local time in the window
	moved       float64 // time of inner sites that are called more or less often than before
}

// chooseTimes decides for each service whether it is judged by local times.
func (c *liveWindow) chooseTimes() {
	c.local = nil
	services := make([]callsOfService, len(c.h.Services.Names()))
	for i := range c.h.All() {
		if s := &c.h.All()[i]; s.Inner {
			services[s.Service].inner = true
		}
	}
	for i := range c.h.All() {
		if s := &c.h.All()[i]; services[s.Service].inner && !s.Inner && !s.Client {
			services[s.Service].add(c, int32(i))
		}
	}
	for i := range c.h.All() {
		if s := &c.h.All()[i]; s.Inner {
			services[s.Service].addInner(c, int32(i))
		}
	}
	for i, s := range services {
		if s.moved > 0 && s.moved >= leastMoved*s.nanos {
			if c.local == nil {
				c.local = make([]bool, len(services))
			}
			c.local[i] = true
		}
	}
}

// add adds the calls at site `number`.
func (s *callsOfService) add(c *liveWindow, number int32) {
	c.skip(c.h.All()[number].Service)
	times := c.h.Series(number).LocalTimes()
	before, _ := times.Before(c.window.From, c.skipped, &c.h.Changes)
	now := times.InWindow(c.window, c.screening.now)
	c.screening.now = now[:0]
	s.before += float64(before)
	s.now += float64(now.Calls())
	s.nanos += float64(now.Own())
}

// addInner adds the time of inner site `number` if it is called more or less often than before. All sites that are not
// inner must have been added.
func (s *callsOfService) addInner(c *liveWindow, number int32) {
	if s.before == 0 || s.now == 0 {
		return
	}
	c.skip(c.h.All()[number].Service)
	times := &c.h.Series(number).Times
	before, _ := times.Before(c.window.From, c.skipped, &c.h.Changes)
	cells := times.InWindow(c.window, c.screening.now)
	c.screening.now = cells[:0]
	now, expected := float64(cells.Calls()), float64(before)*s.now/s.before
	most, change := max(now, expected), math.Abs(now-expected)
	if change <= moved*most || change <= movedErrors*math.Sqrt(most) {
		return
	}
	nanos := float64(cells.Own())
	if expected > now {
		c.site.Cells = times.Unpack(c.site.Cells)
		nanos = float64(c.past(c.site.Cells, &c.kept).Own()) * s.now / s.before
	}
	s.moved += nanos
}

// byLocal reports whether a service is judged by local times.
func (c *liveWindow) byLocal(service int32) bool { return c.local != nil && c.local[service] }

// inside reports whether the own time of site `number` is judged as a part of the local time of another site.
func (c *liveWindow) inside(number int32) bool {
	s := &c.h.All()[number]
	return s.Inner && c.byLocal(s.Service)
}

// times returns the times to judge site `number` by: local times or own times.
func (c *liveWindow) times(number int32) *history.Times {
	if c.byLocal(c.h.All()[number].Service) {
		return c.h.Series(number).LocalTimes()
	}
	return &c.h.Series(number).Times
}

// usualTime returns the mean that calls at a site usually reach at the hour of the window, in ns, or 0 if it is
// unknown. The week holds local times, so the usual own time is computed by subtracting the mean time of the spans
// inside.
func (c *liveWindow) usualTime(number int32) float64 {
	s := c.h.Series(number)
	usual := s.Week.Usual(c.window.To - 1)
	local := s.LocalTimes()
	if usual == 0 || c.times(number) == local {
		return usual
	}
	own := c.past(s.Unpack(nil), &c.keptShape)
	inner := -own.Own()
	inner += c.past(local.Unpack(nil), &c.keptShape).Own()
	return max(1, usual-float64(inner)/float64(max(1, own.Calls())))
}
