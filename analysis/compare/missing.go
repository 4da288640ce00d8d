package compare

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Spans get lost: an exporter drops them under load, or a sampler decides by span. A call whose answer was lost looks
// like an unanswered call, and its own time is its whole duration. But neither the missing answer nor the time is
// evidence if the call took about as long as answered calls and did not fail, and if its callee is alive.

// missingAnswers holds the times of calls without answers at a site, above a limit in ns.
type missingAnswers struct {
	siteTime
	limit, soft float64
}

// unusuallyLong is the minimum ratio of the time of unanswered calls to the time of answered calls that counts as a
// loss.
const unusuallyLong = 2

// missesAnswers reports whether the calls at site `number` got no answer although the service that they call emits
// spans.
func (l *ledger) missesAnswers(number int32) bool {
	s, called := &l.sites[number], l.callee[number].Service
	if !s.Client || s.Border || called == 0 || called == s.Service || l.opaque[called] {
		return false
	}
	target := l.table.Target(s.Op)
	return target == 0 || l.table.Operation(target).Kind == trace.External
}

// chargeMissing charges the time of unanswered calls beyond the time of answered ones, which includes the work of the
// callee. If that work takes longer now, the answered calls are the evidence for it.
func (a *added) chargeMissing() {
	for i := range a.missing {
		m := &a.missing[i]
		if usual := a.answered(m.number); usual > 0 {
			if m.mean < unusuallyLong*usual {
				usual, m.soft = m.mean, 0
			}
			m.limit, m.usual = max(m.limit, usual), max(m.usual, usual)
			if m.before > 0 {
				m.before = max(m.before, usual)
			}
		}
		a.ledger.charge(&m.siteTime, m.limit, m.soft)
	}
}

// answered returns the inclusive time in ns of answered calls that are otherwise like the calls at site `number`, or 0
// if there are none. It is the larger of the usual and the present time, and the longest time if there are several
// callees.
func (a *added) answered(number int32) (longest float64) {
	for _, i := range a.alike(number) {
		t := a.inclusive(i)
		longest = max(longest, t.usual, t.now)
	}
	return longest
}

// alike returns the sites of answered calls that are otherwise like the unanswered calls at site `number`: calls of the
// same operation by the same caller, and to the same callee if its name is known.
func (l *ledger) alike(number int32) (sites []int32) {
	s, named := &l.sites[number], l.table.Target(l.sites[number].Op) != 0
	for _, i := range l.index.below.of(l.index.caller[number]) {
		x := &l.sites[i]
		if x.Base == s.Base && x.Client && !x.Border && l.callee[i].Service != 0 && !l.missesAnswers(i) &&
			(!named || l.callee[i].Service == l.callee[number].Service) {
			sites = append(sites, i)
		}
	}
	return sites
}

// countAnswered counts, for each operation with failures, the answered calls that are otherwise like its unanswered
// calls.
func (l *ledger) countAnswered() {
	for i := range l.sites {
		number := int32(i)
		c := l.called.known(l.callee[number])
		if c == nil || c.failed == 0 || !l.missesAnswers(number) {
			continue
		}
		for _, k := range l.alike(number) {
			now, _ := l.source.counts(k)
			c.answered += now
		}
	}
}

// callCounts holds numbers of calls in the window and before it.
type callCounts struct{ now, before float64 }

func (c *callCounts) add(now, before float64) { c.now, c.before = c.now+now, c.before+before }

// nameMissing sets the callees of unanswered calls that don't name a service. The callee is the service whose answers
// decreased most.
func (l *ledger) nameMissing() {
	callee := slices.Clone(l.callee)
	for i := range l.sites {
		number := int32(i)
		now, _ := l.source.counts(number)
		if now == 0 || !l.missesAnswers(number) || l.table.Target(l.sites[i].Op) != 0 {
			continue
		}
		var callers callCounts
		for _, k := range l.index.at.of(l.index.caller[number]) {
			callers.add(l.source.counts(k))
		}
		most := 0.0
		for _, k := range l.alike(number) {
			now, before := l.source.counts(k)
			if fewer := before/max(1, callers.before)*callers.now - now; fewer > most {
				most, callee[number] = fewer, l.callee[k]
			}
		}
	}
	l.callee = callee
}

// leastAlive is the minimum fraction of the calls to a service, relative to the usual fraction, that must reach it if
// it is to count as alive.
const leastAlive = 0.5

// isAlive reports whether a service, given by its number, is alive: it emits spans in the window for most of the calls
// to it, or for other requests. Calls to it that were not answered but did not fail are then no evidence against it.
// All calls of a proxy without CLIENT spans count as calls to the service behind it, answered or not.
func (l *ledger) isAlive(service int32) bool {
	alive, known := l.alive[service]
	if known {
		return alive
	}
	var reached, called callCounts
	for i := range l.sites {
		s := &l.sites[i]
		now, before := l.source.counts(int32(i))
		proxied := l.behind[i].Service == service
		switch {
		case s.Service == service && !s.Border && l.enters(s):
			reached.add(now, before)
		case s.Service == service:
		case proxied && !s.Border, l.callee[i].Service == service && (!proxied || !s.Border):
			called.add(now, before)
		}
	}
	usual := 1.0
	if reached.before > 0 && called.before > reached.before {
		usual = reached.before / called.before // some calls don't reach it, for example because a cache answers them
	}
	alive = reached.now > 0 && reached.now >= leastAlive*usual*called.now
	l.alive[service] = alive
	return alive
}

// enters reports whether the calls at s come from another service or from outside.
func (l *ledger) enters(s *history.Site) bool {
	kind := l.table.Operation(s.Base).Kind
	return !s.Client && (s.Parent == 0 || kind == trace.Server || kind == trace.Consumer ||
		l.table.Operation(s.Parent).Service != l.names[s.Service])
}
