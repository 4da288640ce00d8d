package incident

import (
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// calls selects the calls that show whether an incident is still going on, namely the calls of operations of service.
// If operations is empty, it selects all calls of the service, and if service is 0, all requests.
type calls struct {
	service    trace.Symbol
	operations []trace.Op
}

// telling returns the calls that show whether x is still going on: the calls of the operations with evidence against
// its first suspect. If the suspect no longer gets or answers requests, it returns all requests.
func (x *tracked) telling() (c calls) {
	if len(x.Suspects) == 0 || x.unexplained() {
		return c
	}
	s := &x.Suspects[0]
	if s.Silent+s.Unanswered > 0 {
		return c
	}
	for i := range s.Operations {
		if o := &s.Operations[i]; o.Op != 0 && o.Score >= dominated*s.Operations[0].Score {
			c.operations = append(c.operations, o.Op)
		}
	}
	c.service = s.Service
	return c
}

// latest returns the time of the latest call that c selects, at most now, or 0 if there is no such call.
func (c calls) latest(now trace.Nanos, sites *history.Sites) trace.Nanos {
	if c.service == 0 {
		return sites.Requests.Latest(now)
	}
	return sites.LatestOf(c.service, c.operations, now)
}

// count returns the number of calls that c selects in the interval.
func (c calls) count(in history.Interval, sites *history.Sites) uint64 {
	if c.service == 0 {
		return sites.Requests.Total().Within(in.Slices()).Calls()
	}
	return sites.CallsOf(c.service, c.operations, in)
}

const (
	// leastSeen is the number of calls without evidence before an incident can be over. If three in ten calls fail, ten
	// calls in a row all succeed with a probability of only 1 in 35.
	leastSeen = 10
	// leastCertain is the number of calls without evidence that makes it certain that an incident is over.
	leastCertain = 100
	// leastStayedAway is the number of calls that must be missing, relative to the usual rate, before we say that calls
	// have stopped.
	leastStayedAway = 5
	// patience is the maximum time that an incident stays open without evidence.
	patience = 15 * quiet
)

// end closes x if it is over, if its calls have stopped, or if another service has taken over its calls, and reports
// whether it closed x. Call it only after a quiet time. While calls continue, x stays open until there are leastSeen
// calls without evidence, or leastCertain calls if they still show half of the cost, but no longer than patience.
func (x *tracked) end(now trace.Nanos, comparer *compare.Comparer) bool {
	if to := comparer.Successor(x.Suspects[0].Service, now); to != 0 {
		x.close(Transition{At: now, State: Closed, Why: Moved, Service: to})
		return true
	}
	c := x.telling()
	latest := c.latest(now, comparer.Sites)
	since := c.count(history.Interval{From: x.Seen, To: now}, comparer.Sites)
	past := history.Interval{From: x.Onset.Add(-time.Hour), To: x.Seen}
	usual := float64(c.count(past, comparer.Sites))
	stopped := latest <= now.Add(-quiet) &&
		(usual == 0 || usual*float64(now.Sub(latest)) >= leastStayedAway*float64(past.To.Sub(past.From)))
	mayWait := !stopped && now.Sub(x.Seen) < patience
	if mayWait && (since < leastSeen || since < leastCertain && x.goesOn(now, comparer)) {
		return false
	}
	if !stopped && since > 0 {
		x.close(Transition{At: now, State: Closed, Why: Recovered, Calls: since})
		return true
	}
	x.Seen = min(x.Seen, max(x.Opened(), latest)) // the window still had evidence after the last request
	why := Stopped
	if Silent(now, comparer.Sites) {
		why = NoTraces
	}
	x.close(Transition{At: now, State: Closed, Why: why})
	return true
}

// goesOn reports whether the score of x's first suspect since the last evidence is at least half of its score since the
// onset.
func (x *tracked) goesOn(now trace.Nanos, comparer *compare.Comparer) bool {
	since := comparer.Compare(history.Interval{From: x.Seen, To: now}, compare.Plain)
	for i := range since.Suspects {
		if s := &since.Suspects[i]; s.Service == x.Suspects[0].Service {
			return s.Score > 0 && s.Score >= keeping*x.Suspects[0].Score
		}
	}
	return false
}
