package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/engine/spool"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/trace"
)

// epochEnd records how many requests had arrived by the end of an epoch of the learning period.
type epochEnd struct {
	end  trace.Nanos
	seen uint64 // number of requests until then
}

// learning holds the state of the learning period. It keeps requests, up to Options.EarlyBytes, until the period ends,
// because the final request types are not known earlier. Until then, statistics are provisional.
type learning struct {
	over     bool
	epoch    time.Duration    // time between two decisions
	limit    int              // maximum size of requests in bytes
	began    trace.Nanos      // start of the first epoch with a request; 0 before the first request
	requests *spool.Spool     // nil after the learning period
	preview  *detect.Detector // provisional groups of the requests; nil after the learning period
	epochs   []epochEnd
	seen     uint64 // number of requests
	dropped  uint64 // requests dropped because there was no room
	added    int    // bytes added to requests since the last snapshot
}

// observe stores o, or drops it if the limit is reached, and returns its provisional request type and group.
func (l *learning) observe(o *observation.Observation) (requestType, group *group.Group) {
	l.preview.Groups.Types.Learn(o)
	if l.requests.Bytes() < l.limit {
		l.seen++
		before := l.requests.Bytes()
		if err := l.requests.Add(o); err != nil {
			panic(fmt.Sprintf("engine: %v", err)) // the spool is in memory only
		}
		l.added += l.requests.Bytes() - before
	} else {
		l.dropped++
	}
	return l.preview.Groups.Observe(o)
}

// endEpoch ends an epoch of the provisional groups, and records it once the first request has arrived.
func (l *learning) endEpoch(now trace.Nanos) {
	l.preview.Groups.EndEpoch(now)
	if l.seen > 0 {
		l.began = cmp.Or(l.began, now.Add(-l.epoch))
		l.epochs = append(l.epochs, epochEnd{now, l.seen})
	}
}

// pastEpochs is the number of epochs within which a recorded past must have arrived completely.
const pastEpochs = 2

// arrives reports whether more of a recorded past may still arrive. Nothing can be judged until all of it has arrived.
func (l *learning) arrives(now trace.Nanos) bool {
	return !l.over && (l.began == 0 || now.Sub(l.began) < pastEpochs*l.epoch)
}

// elapsed returns the time that the requests seen until now cover, or 0 before the first request. It counts from the
// first epoch with a request or, if a recorded past arrived at once, from the start of that past.
func (l *learning) elapsed(now trace.Nanos, sites *history.Sites) time.Duration {
	switch elapsed := now.Sub(l.began); {
	case l.began == 0:
		return 0
	case l.arrives(now):
		return elapsed
	default:
		return max(elapsed, sites.Requests.Covered(now))
	}
}

// learn ends the learning period at time now. It freezes the request types, learns the expectation from requests before
// the onset of any open incident, and judges later requests epoch by epoch.
func (c *Core) learn(now trace.Nanos) {
	c.types.Freeze()
	c.learning.over = true
	epochs := c.learning.divide(now, c.calls.Sites)
	onset, at, expected := onsetOf(c.incidents.tracker.Incidents(), now), 0, false
	pass := func(to int) { // closes the epochs before to
		for ; at < to; at++ {
			end := epochs.ends[at]
			if end <= onset {
				c.detector.Groups.EndEpoch(end)
				continue
			}
			if !expected {
				c.detector.Learn(c.detector.Groups.Closed(), c.options.Watch)
				expected = true
			}
			c.detector.Watch(end, c.options.Watch)
		}
	}
	for epoch, o := range c.learning.requests.InOrder(epochs.of) {
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
		c.detector.Groups.EndEpoch(now)
		c.detector.Learn(now, c.options.Watch)
	}
	c.learning.requests, c.learning.epochs, c.learning.preview = nil, nil, nil
}

// onsetOf returns the earliest onset of any open incident, or now if no incident is open.
func onsetOf(incidents []incident.Incident, now trace.Nanos) trace.Nanos {
	for _, x := range incidents {
		if x.IsOpen() {
			now = min(now, x.Onset)
		}
	}
	return now
}

// earlyEpochs divides the requests of the learning period into epochs. It assigns live requests by arrival time, and
// requests of a recorded past, which arrives at once, by end time.
type earlyEpochs struct {
	ends    []trace.Nanos
	arrived []epochEnd
	length  time.Duration
	past    trace.Nanos // start of the past; 0 for live requests
	seen    uint64      // requests already assigned to an epoch
}

// divide returns the epochs of the learning period. The period must end at time now.
func (l *learning) divide(now trace.Nanos, sites *history.Sites) *earlyEpochs {
	e := &earlyEpochs{arrived: l.epochs, length: l.epoch}
	if sites.Requests.Covered(now) <= now.Sub(l.began) {
		for _, a := range l.epochs {
			e.ends = append(e.ends, a.end)
		}
		return e
	}
	e.past = sites.Requests.CoveredSince(now).Start()
	for end := now; end > e.past; end = end.Add(-e.length) {
		e.ends = append(e.ends, end)
	}
	slices.Reverse(e.ends)
	return e
}

// of returns the epoch of o, the next request, as an index of e.ends. If o claims to have ended before the past started
// or after o itself arrived, its clock is wrong, and of uses its arrival instead.
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

// savedMark is the saved form of an epochEnd.
type savedMark struct {
	End  trace.Nanos
	Seen uint64
}

// save implements section. It doesn't save the requests.
func (l *learning) save(s *savedCore) {
	s.Learned, s.Began, s.Seen, s.Dropped = l.over, l.began, l.seen, l.dropped
	for _, m := range l.epochs {
		s.Epochs = append(s.Epochs, savedMark{m.end, m.seen})
	}
}

// appendRequests appends the requests of the learning period with their provisional groups. It appends nothing after
// the learning period.
func (l *learning) appendRequests(b []byte) []byte {
	if l.over {
		return b
	}
	b = codec.AppendSection(b, l.preview.AppendBinary)
	return l.requests.AppendBinary(b)
}

// restore implements section.
func (l *learning) restore(s *savedCore) error {
	l.over, l.began, l.seen, l.dropped = s.Learned, s.Began, s.Seen, s.Dropped
	for _, m := range s.Epochs {
		l.epochs = append(l.epochs, epochEnd{m.End, m.Seen})
	}
	return nil
}

// restoreRequests is the inverse of appendRequests. Errors wrap [codec.ErrCorrupt].
func (l *learning) restoreRequests(b []byte, decode func([]byte) (*detect.Detector, error)) (err error) {
	if l.over {
		l.requests, l.preview = nil, nil
		return nil
	}
	r := codec.NewReader(b)
	preview := r.Section()
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: observations of the learning period", err)
	}
	if l.preview, err = decode(preview); err != nil {
		return err
	}
	l.requests, err = spool.Decode(r.Rest())
	return err
}
