package incident

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// raise opens an incident for e.service, unless e belongs to an incident that is open or has just closed.
func (t *Tracker) raise(now trace.Nanos, e evidence, comparer *compare.Comparer) {
	before := t.incidents.openOf(e.service)
	replaces := before != nil && before.hides(now, &e)
	if !replaces && (t.renew(now, e) || t.joins(now, e, comparer)) {
		return
	}
	w := e.from.window
	x := &tracked{evidence: evidence{service: e.service}, current: e, every: e.from.every, symptoms: e.symptoms}
	x.Onset = comparer.Onset(e.service, e.addedCalls(), history.Interval{From: w.From.Add(-w.To.Sub(w.From)), To: now})
	x.Seen, x.Weeks = now, e.from.weeks
	t.open(now, uint64(e.service), x, comparer)
	if replaces {
		x.before = &before.Suspects[0]
		before.Seen = now
		before.close(Transition{At: now, State: Closed, Why: Replaced, Into: x.ID})
	}
}

// unfolding is the time for which the evidence of an incident may keep growing in size and kind, as windows fill and
// queues grow. Evidence that appears later is another fault.
const unfolding = 5 * time.Minute

// larger is the factor by which a score must grow, after a time without growth, to count as another fault.
const larger = 3

// hides reports whether the open incident x would hide another fault of its service, namely e: evidence of a different
// kind or size that appears after the evidence of x has unfolded.
func (x *tracked) hides(now trace.Nanos, e *evidence) bool {
	if x.unexplained() || now.Sub(x.LastOpened()) < unfolding || x.Suspects[0].Service != e.service {
		return false
	}
	level := x.plateau
	if now.Sub(x.grown) >= unfolding {
		level = x.settled
	}
	return e.symptoms&^x.symptoms != 0 || level > 0 && e.score >= larger*level
}

// open adds x, which starts now. Its ID is a hash of `of` and now.
func (t *Tracker) open(now trace.Nanos, of uint64, x *tracked, comparer *compare.Comparer) {
	x.ID = trace.Mix(of, uint64(now))
	x.affected, x.skipFrom = comparer.Services.Callers(x.service), skippedFrom(x.Onset, now)
	x.Enter(Transition{At: now})
	t.incidents = append(t.incidents, x)
	for i := range t.baseline.scales {
		t.baseline.scales[i].forget(func(s trace.Symbol) bool { return t.incidents.affects(s, now) })
	}
}

// renew adds e to the incident of e.service that is open or may reopen, reopening it if necessary. It reports whether
// there is such an incident.
func (t *Tracker) renew(now trace.Nanos, e evidence) bool {
	for _, x := range slices.Backward(t.incidents) {
		within := t.baseline.returning() + returningWindows*min(x.every, e.from.every)
		if x.service != e.service || !x.IsOpen() && (!x.mayReturn() || now.Sub(x.Closed()) > within) {
			continue
		}
		if !x.IsOpen() {
			if now.Sub(x.Closed()) > returning {
				x.every = max(x.every, returningLonger) // the evidence comes and goes
			}
			x.reopen(now, e.from.window.From)
		}
		x.Seen, x.current, x.every = now, e, max(x.every, e.from.every)
		x.symptoms |= e.symptoms
		return true
	}
	return false
}

// joins reports whether e belongs to an open incident of another service because one service explains the other. If so,
// the incident stays open, and it becomes an incident of e.service if e is the explanation.
func (t *Tracker) joins(now trace.Nanos, e evidence, comparer *compare.Comparer) bool {
	for _, x := range t.incidents {
		if !x.IsOpen() {
			continue
		}
		sameTime, isNew := t.exceededSince(e.service, now).Sub(x.Opened()) < settling, now.Sub(x.Opened()) < settling
		switch {
		case x.stopsWith(&e, now, comparer):
			if e.score > x.strongest().score {
				x.evidence, x.current = evidence{service: e.service}, e
			}
		case x.silences(&e, now, comparer): // x is the explanation, however much the stopped requests weigh
		case x.Shared.Has(e.service) || explained(e, x.strongest(), sameTime, comparer):
		case explained(x.strongest(), e, sameTime, comparer):
			x.evidence, x.current, x.symptoms = evidence{service: e.service}, e, e.symptoms
		case isNew && comparer.Services.Related(x.service, e.service): // we don't know yet which service is the cause
		default:
			continue
		}
		x.Seen = now
		return true
	}
	return false
}

// stopping is the maximum time between the last requests of services that stopped for the same reason.
const stopping = time.Minute

// stopsWith reports whether the services of x and e got their last requests at the same time, and so stopped for the
// same reason, like a service and the consumer of its queue. The times when the services exceed their thresholds don't
// show this: the rarer the requests are, the later we notice that they are missing.
func (x *tracked) stopsWith(e *evidence, now trace.Nanos, comparer *compare.Comparer) bool {
	return x.symptoms == stops && e.symptoms == stops && e.stopped(now, comparer).Sub(x.Onset).Abs() <= stopping
}

// silences reports whether the service of e got its last requests when those of x began to fail. What successful
// requests cause, such as the messages that they send, then stops with them.
func (x *tracked) silences(e *evidence, now trace.Nanos, comparer *compare.Comparer) bool {
	return x.symptoms&fails != 0 && e.symptoms == stops && e.stopped(now, comparer).Sub(x.Onset).Abs() <= stopping
}

// stopped returns the time of the last request to the operations of e.service that have stopped, or 0 if no operation
// has stopped.
func (e *evidence) stopped(now trace.Nanos, comparer *compare.Comparer) trace.Nanos {
	var of []trace.Op
	for i := range e.from.Suspects {
		if s := &e.from.Suspects[i]; s.Service == e.service {
			for k := range s.Operations {
				if o := &s.Operations[k]; o.Stopped > 0 {
					of = append(of, o.Op)
				}
			}
		}
	}
	if len(of) == 0 {
		return 0
	}
	return comparer.LatestOf(e.service, of, now)
}

// addedCalls returns the calls that e.service adds.
func (e *evidence) addedCalls() []compare.AddedCall {
	for i := range e.from.Suspects {
		if s := &e.from.Suspects[i]; s.Service == e.service {
			return s.AddedCalls
		}
	}
	return nil
}

// skippedFrom returns the time from which to exclude calls from the history when an incident opens now. Until we know
// which services it affects, we exclude the calls of all services, so half of their history must remain even if the
// onset was long ago.
func skippedFrom(onset, now trace.Nanos) trace.Nanos {
	return max(min(onset, now.Add(-Window)), now.Add(-history.Span/2))
}

// reopen reopens x, with evidence from since on. Calls made while x was closed stay in the history, because after hours
// without them the history would be empty.
func (x *tracked) reopen(now, since trace.Nanos) {
	x.skipFrom = max(x.Closed(), since)
	x.Enter(Transition{At: now, Why: Returned})
	x.grown, x.Alerted = now, x.Suspects[0].Service
}

// mayReturn reports whether new evidence soon after the end of x may reopen it.
func (x *tracked) mayReturn() bool {
	last := x.Last()
	return last.State == Closed && last.Why != Replaced && last.Why != Moved
}

// returningWindows is the number of windows of a slower scale that may reopen an incident after its end.
const returningWindows = 4

// strongest returns the strongest evidence against the service of x so far.
func (x *tracked) strongest() evidence {
	if x.current.score > x.score {
		return x.current
	}
	return x.evidence
}

// explained reports whether victim is slow or fails because of cause. Stronger evidence explains weaker evidence
// against the same service. If the services differ:
//
//   - A service that emits no spans and its callers are charged with the same time.
//   - A neighbour with a much lower score is a victim, unless it has enough evidence apart from the calls between the
//     two and from the operations that call the cause.
//   - Services that don't call each other must be at fault since about the same time and share callers. One service
//     may then be waiting for the other without a span.
func explained(victim, cause evidence, sameTime bool, comparer *compare.Comparer) bool {
	switch {
	case victim.service == cause.service:
		return victim.score <= cause.score
	case comparer.Services.Adjacent(victim.service, cause.service):
		sameNanos := victim.opaque != cause.opaque && victim.score <= cause.score
		return sameNanos || victim.score < dominated*cause.score && !victim.apart(cause.service)
	default:
		return sameTime && victim.waits && victim.score < waiting*cause.score &&
			comparer.Services.Related(victim.service, cause.service)
	}
}

// exceededSince returns the time when service first exceeded its threshold, or now if a slower scale raised the
// incident.
func (t *Tracker) exceededSince(service trace.Symbol, now trace.Nanos) trace.Nanos {
	if since, ok := t.exceeded[service]; ok {
		return since
	}
	return now
}
