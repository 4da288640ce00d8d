package services

import (
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Thresholds for the states of services, which only serve to sort a list. Incidents have thresholds of their own, which
// are stricter.
const (
	leastCalls       = 20   // calls now, to judge durations and errors
	leastMissing     = 30   // calls that would usually have come while a service is silent
	leastServiceFail = 0.02 // share of the calls, above the usual share
	leastLost        = 0.1  // the same, for calls that no span answers
	leastSlower      = 1.25 // times the usual median
	leastSlowerMean  = 2    // times the usual mean of own times, which varies more
	leastSlowerNanos = 1e6  // 1 ms
	leastFewSlower   = 2    // times the usual quantile; slower calls are not well, even if too few to judge

	leastTail           = 5 // spans longer than the usual 99th percentile, to judge it
	leastTailDeviations = 4 // standard deviations of their number

	leastAffectedSlower = 1.05 // times the usual mean, for a request type that an incident affects; as for incidents
)

// tail compares the number of latest spans that are longer than the usual 99th percentile with the expected number. It
// returns the excess, in standard deviations. It returns 0 if fewer than leastTail spans are longer, if there are no
// spans to compare, or if the table isn't live.
func (t *serviceTable) tail(latest, usual *stats.Ranks) float64 {
	if !t.live || latest.Count() == 0 || usual.Count() == 0 {
		return 0
	}
	n := float64(latest.Count())
	longer := n * (1 - latest.Below(int64(usual.Quantile(0.99))))
	if longer < leastTail {
		return 0
	}
	return (longer - n/100) / math.Sqrt(n/100)
}

// worse returns the figures that are clearly worse now than usual. The result is empty, but not nil, if usual is nil or
// there are too few calls to judge. tail is the result of [serviceTable.tail].
func worse(now, usual *contract.ServiceLoad, tail float64) []contract.ServiceFigure {
	all := []contract.ServiceFigure{}
	if usual == nil || now.Calls < leastCalls {
		return all
	}
	for _, x := range []struct {
		figure contract.ServiceFigure
		worse  bool
	}{
		{contract.ServiceFigureFailed, failsMore(now, usual)},
		{contract.ServiceFigureP50Ns, above(now.P50Ns, usual.P50Ns, leastSlower)},
		{contract.ServiceFigureP99Ns, above(now.P99Ns, usual.P99Ns, leastSlower) && tail >= leastTailDeviations},
		{contract.ServiceFigureOwnNs, above(now.OwnNs, usual.OwnNs, leastSlowerMean)},
	} {
		if x.worse {
			all = append(all, x.figure)
		}
	}
	return all
}

// without returns the figures of a service that are worse because one of its operations is, and all failures. If no
// operation takes longer than usual, other operations were called than usual, for example by a nightly job. Nothing is
// left out if most calls are of operations with too few calls to judge.
func (t *serviceTable) without(
	c *engine.View, x *history.ServiceUse, all []contract.ServiceFigure,
) []contract.ServiceFigure {
	if len(all) == 0 || all[len(all)-1] == contract.ServiceFigureFailed {
		return all
	}
	known, few, slower := 0, 0, false
	for i := range x.Operations {
		o := &x.Operations[i]
		latest, before := c.Spans.Latest(o.Op, t.onset), c.Spans.Usual(o.Op)
		now, usual := t.loads(&o.Use, &latest, &before)
		if usual == nil {
			continue
		}
		if known += now.Calls; now.Calls < leastCalls {
			few += now.Calls
		}
		slower = slower || slices.ContainsFunc(worse(&now, usual, t.tail(&latest, &before)), isTime)
	}
	if slower || 2*few > known {
		return all
	}
	return slices.DeleteFunc(all, isTime)
}

func isTime(x contract.ServiceFigure) bool { return x != contract.ServiceFigureFailed }

// above reports whether now is at least `least` times the usual time, and longer by at least leastSlowerNanos. It
// returns false if either time is unknown.
func above(now, usual *float64, least float64) bool {
	return now != nil && usual != nil && *now >= least**usual && *now-*usual >= leastSlowerNanos
}

// quiet returns the time since the last call, less x.Open, because calls within the latest x.Open may not be known yet.
// It returns 0 if there were no calls.
func (t *serviceTable) quiet(x *history.Use) time.Duration {
	if x.Last == 0 {
		return 0
	}
	return max(0, t.uses.Now.To.Sub(x.Last)-x.Open)
}

// stateOf returns the state of a service or an operation, and the reason for it. usual is nil if there is no history,
// worse lists the figures that are worse than usual, and quiet is the time without calls. The state is never well if
// there are too few calls to judge.
func stateOf(now, usual *contract.ServiceLoad, worse []contract.ServiceFigure,
	quiet time.Duration,
) (contract.ServiceState, string) {
	switch {
	case usual == nil && now.Calls == 0:
		return contract.ServiceStateIdle, "No calls."
	case usual == nil:
		return contract.ServiceStateNew, "There is no history to compare with yet."
	case now.Calls == 0 && usual.Rate*nowWindow.Seconds() >= leastMissing:
		return contract.ServiceStateSilent, noCalls(quiet, usual)
	case now.Calls == 0:
		return contract.ServiceStateIdle, noCalls(quiet, usual)
	case quiet >= incident.Window && usual.Rate*quiet.Seconds() >= leastMissing:
		return contract.ServiceStateSilent, noCalls(quiet, usual)
	case now.Calls < leastCalls && above(now.P50Ns, usual.P50Ns, leastFewSlower):
		return contract.ServiceStateIdle, tooFew(now.Calls, "median duration", *now.P50Ns, *usual.P50Ns)
	case now.Calls < leastCalls && above(now.P99Ns, usual.P99Ns, leastFewSlower):
		const tail = "99th percentile of the durations"
		return contract.ServiceStateIdle, tooFew(now.Calls, tail, *now.P99Ns, *usual.P99Ns)
	case now.Calls < leastCalls:
		return contract.ServiceStateIdle, fewCalls(now, usual, quiet)
	case len(worse) == 0 && quiet >= incident.Window:
		return contract.ServiceStateIdle, noCalls(quiet, usual)
	case len(worse) == 0:
		return contract.ServiceStateWell, ""
	case worse[0] == contract.ServiceFigureFailed:
		return contract.ServiceStateFailing, units.Percent(*now.Failed) + " of the calls fail, usually " +
			units.Percent(query.Value(usual.Failed, 0)) + "."
	}
	return contract.ServiceStateSlower, mostGrown(now, usual, worse)
}

// lostState returns the state of a service whose own spans look well, and the reason for it. The service isn't well if
// clearly more calls to it than usual lack a span of the service.
func (t *serviceTable) lostState(service trace.Symbol) (contract.ServiceState, string) {
	var now, usual history.Usage
	for i := range t.uses.Calls {
		if c := &t.uses.Calls[i]; c.Callee == service {
			now.Add(c.Now)
			usual.Add(c.Usual)
		}
	}
	lost, before := share(now.Unanswered, now.Calls), share(usual.Unanswered, usual.Calls)
	if now.Calls < leastCalls || lost < before+leastLost {
		return contract.ServiceStateWell, ""
	}
	if failed := share(now.Failed, now.Calls); failed >= share(usual.Failed, usual.Calls)+leastLost/2 {
		return contract.ServiceStateFailing, units.Percent(failed) + " of the calls to it fail, many before it " +
			"answers: check whether all of its instances run and can be reached."
	}
	return contract.ServiceStateSilent, units.Percent(lost) + " of the calls to it have no span of it, usually " +
		"" + units.Percent(before) + ": check whether all of its instances export spans."
}

func share(part, whole uint64) float64 { return float64(part) / float64(max(1, whole)) }

// noCalls returns a sentence that gives the time without calls and the usual rate.
func noCalls(quiet time.Duration, usual *contract.ServiceLoad) string {
	return "No calls for " + units.Coarse(quiet) + "; usually " + units.Rate(usual.Rate) + "."
}

// fewCalls returns a sentence saying that there are too few calls to judge. It mentions failures if they have
// increased.
func fewCalls(now, usual *contract.ServiceLoad, quiet time.Duration) string {
	text := "Too few calls to judge: " + units.Count(now.Calls) + " in ten minutes"
	if failed, before := query.Value(now.Failed, 0), query.Value(usual.Failed, 0); failed > before+leastServiceFail {
		text += ", of which " + units.Percent(failed) + " fail, usually " + units.Percent(before)
	}
	if quiet >= incident.Window {
		text += "; none for " + units.Coarse(quiet)
	}
	return text + "."
}

// mostGrown returns a sentence about the duration in worse that has grown most relative to its usual value, because
// that duration tells the most about the service.
func mostGrown(now, usual *contract.ServiceLoad, worse []contract.ServiceFigure) string {
	text, most := "", 0.0
	for _, x := range []struct {
		figure     contract.ServiceFigure
		what       string
		now, usual *float64
	}{
		{contract.ServiceFigureP50Ns, "The median duration", now.P50Ns, usual.P50Ns},
		{contract.ServiceFigureP99Ns, "The 99th percentile of the durations", now.P99Ns, usual.P99Ns},
		{contract.ServiceFigureOwnNs, "The mean own time", now.OwnNs, usual.OwnNs},
	} {
		if !slices.Contains(worse, x.figure) {
			continue
		}
		if growth := *x.now / max(1, *x.usual); growth > most {
			text, most = x.what+" is "+units.Nanos(*x.now)+", usually "+units.Nanos(*x.usual)+".", growth
		}
	}
	return text
}

// tooFew returns a sentence that explains why calls aren't judged although a quantile of their durations is longer than
// usual. The durations are in ns.
func tooFew(calls int, quantile string, now, usual float64) string {
	return "Too few calls to judge: the " + quantile + " of " + units.Count(calls) + " is " + units.Nanos(now) +
		", usually " + units.Nanos(usual) + "."
}

// affectedState returns the state of the operation op, and the reason for it. state and reason are the result for its
// own figures. If an open incident affects requests that start at op, the operation isn't well or idle, even if its own
// figures look so, because they include all calls of the last ten minutes.
func (t *serviceTable) affectedState(
	op trace.Op, state contract.ServiceState, reason string,
) (contract.ServiceState, string) {
	types := t.affected[op]
	if state != contract.ServiceStateWell && state != contract.ServiceStateIdle || len(types) == 0 {
		return state, reason
	}
	x := &types[0]
	since := " since the onset of an open incident, usually "
	if x.MeanNs >= leastAffectedSlower*x.UsualNs {
		return contract.ServiceStateSlower, "Requests of " + x.Name + " take " + units.Nanos(x.MeanNs) +
			" on average" + since + units.Nanos(x.UsualNs) + "."
	}
	return contract.ServiceStateFailing, units.Percent(x.Failed) + " of the requests of " + x.Name +
		" fail" + since + units.Percent(x.UsualFailed) + "."
}

// failsMore reports whether clearly more calls fail now than usual.
func failsMore(now, usual *contract.ServiceLoad) bool {
	failed, before, n := query.Value(now.Failed, 0), query.Value(usual.Failed, 0), float64(now.Calls)
	chance := 3 * math.Sqrt(max(before, 1/n)*(1-min(before, 1))/n)
	return failed*n >= leastAffectedCalls && failed-before > max(leastServiceFail, chance)
}

const leastAffectedCalls = 3 // failed calls

// urgency is the order of states in lists.
var urgency = []contract.ServiceState{
	contract.ServiceStateIncident, contract.ServiceStateFailing, contract.ServiceStateSilent,
	contract.ServiceStateSlower,
	contract.ServiceStateNew, contract.ServiceStateWell, contract.ServiceStateIdle,
}
