package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// epochEnd is the end of an epoch of the learning period.
type epochEnd struct {
	end  trace.Nanos
	seen uint64 // observations until then
}

// earlyBytes bounds the observations of the learning period, of about 200 bytes each.
const earlyBytes = 256 << 20

// observeEarly keeps a request until the learning period ends.
func (c *Core) observeEarly(o *observation.Observation) (requestType, group *group.Group) {
	c.types.Learn(o)
	if c.early.Bytes() < earlyBytes {
		c.seen++
		if err := c.early.Add(o); err != nil {
			panic(fmt.Sprintf("engine: %v", err)) // the spool stays in memory
		}
	} else {
		c.dropped++
	}
	return c.preview.Groups.Observe(o)
}

// OnLearned has f called when the learning period ends, for each request of it with its request type and group, of
// which either may be nil: Observe returned provisional ones. It keeps nothing of its arguments.
func (c *Core) OnLearned(f func(requestType, group *group.Group, o *observation.Observation)) {
	c.onLearned = f
}

// Dropped returns the number of requests of the learning period that were ignored because there were too many.
func (c *Core) Dropped() uint64 { return c.dropped }

// endEarly ends an epoch of the learning period.
func (c *Core) endEarly(now trace.Nanos) {
	c.preview.Groups.Close(now)
	if c.seen > 0 {
		c.began = cmp.Or(c.began, now.Add(-c.options.Epoch))
		c.epochs = append(c.epochs, epochEnd{now, c.seen})
	}
}

// pastEpochs is the number of epochs in which a recorded past arrives.
const pastEpochs = 2

// arrives reports whether the rest of a recorded past may follow: nothing is judged yet.
func (c *Core) arrives(now trace.Nanos) bool {
	return !c.learned && (c.began == 0 || now.Sub(c.began) < pastEpochs*c.options.Epoch)
}

// learning returns the time whose requests were seen until now: since the first epoch with a request or, if those of a
// past arrived at once, as from a replayed recording, since its beginning.
func (c *Core) learning(now trace.Nanos) time.Duration {
	switch elapsed := now.Sub(c.began); {
	case c.began == 0:
		return 0
	case c.arrives(now):
		return elapsed
	default:
		return max(elapsed, c.sites.Covered(now))
	}
}

// learn ends the learning period at time now. It freezes the request types, makes the requests before the onset of the
// open incidents the expectation, and judges the later ones, epoch by epoch.
func (c *Core) learn(now trace.Nanos) {
	c.types.Freeze()
	c.learned = true
	if c.splitter != nil {
		if err := c.splitter.LearnFrom(c.early.All(), c.detector.Groups, splitCoV); err != nil {
			panic(fmt.Sprintf("engine: %v", err)) // the spool stays in memory
		}
	}
	epochs := c.earlyEpochs(now)
	onset, at, expected := c.onset(now), 0, false
	pass := func(to int) { // ends the epochs before one
		for ; at < to; at++ {
			end := epochs.ends[at]
			if end <= onset {
				c.detector.Groups.Close(end)
				continue
			}
			if !expected {
				c.detector.Learn(c.detector.Groups.Closed(), c.options.Watch)
				expected = true
			}
			c.detector.Watch(end, c.options.Watch)
		}
	}
	for epoch, o := range c.early.InOrder(epochs.of) {
		pass(epoch)
		requestType, group := c.detector.Groups.Observe(o)
		if requestType != nil && !c.options.IncidentsOnly {
			c.observeTree(requestType.ID, o)
			c.kept.observe(requestType, group, o)
		}
		if c.onLearned != nil {
			c.onLearned(requestType, group, o)
		}
	}
	pass(len(epochs.ends) - 1)
	if !expected {
		c.detector.Groups.Close(now)
		c.detector.Learn(now, c.options.Watch)
	}
	c.early, c.epochs, c.preview = nil, nil, nil
}

// onset returns the earliest onset of the open incidents, or now if there is none.
func (c *Core) onset(now trace.Nanos) trace.Nanos {
	for _, x := range c.incidents.Incidents() {
		if x.IsOpen() {
			now = min(now, x.Onset)
		}
	}
	return now
}

// earlyEpochs divides the requests of the learning period into epochs: those in which they arrived or, if they are of a
// past that arrived at once, those in which they ended.
type earlyEpochs struct {
	ends    []trace.Nanos
	arrived []epochEnd
	length  time.Duration
	past    trace.Nanos // beginning of the past; 0: there is none
	seen    uint64      // requests whose epoch is known
}

// earlyEpochs returns the epochs of the learning period, which ends now.
func (c *Core) earlyEpochs(now trace.Nanos) *earlyEpochs {
	e := &earlyEpochs{arrived: c.epochs, length: c.options.Epoch}
	if c.sites.Covered(now) <= now.Sub(c.began) {
		for _, a := range c.epochs {
			e.ends = append(e.ends, a.end)
		}
		return e
	}
	e.past = c.sites.CoveredSince(now)
	for end := now; end > e.past; end = end.Add(-e.length) {
		e.ends = append(e.ends, end)
	}
	slices.Reverse(e.ends)
	return e
}

// of returns the epoch of the next request as an index of ends. A request that claims to have ended before the past or
// after its arrival has a wrong clock.
func (e *earlyEpochs) of(o *observation.Observation) int {
	for e.seen == e.arrived[0].seen {
		e.arrived = e.arrived[1:]
	}
	e.seen++
	at := e.arrived[0].end
	if ended := o.Start.Add(o.Duration); e.past != 0 && e.past < ended && ended <= at {
		at = ended
	}
	epoch, _ := slices.BinarySearch(e.ends, at)
	return epoch
}
