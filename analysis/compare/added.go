package compare

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// AddedCall is a call that an operation makes more often than before.
type AddedCall struct {
	Op          trace.Op // the operation called; a step of the caller if no other service is known to answer
	Caller      trace.Op // a step
	Before, Now float64  // calls per call of Caller
	// Nanos is the time in ns that these calls add to a call of Caller, minus the time that Caller saves by making
	// other calls less often. Calls that are slower than usual count with their usual time.
	Nanos float64
}

// callSum holds the number of calls and the sum of their own times.
type callSum struct {
	calls float64
	nanos float64 // own time
}

func (s *callSum) add(o callSum) { s.calls, s.nanos = s.calls+o.calls, s.nanos+o.nanos }

func (s callSum) mean() float64 { return s.nanos / max(1, s.calls) }

// leastMore is the factor by which the calls per call of the caller must grow before they may count as added.
const leastMore = 1.1

// added looks for calls that callers make more often than before. Own times are compared per call, so they don't show
// that a caller repeats a fast call.
//
// The calls at a site are counted per call of the caller's step. If a site has more calls, the sites below it don't
// have more per call of their own caller, so only the topmost change is charged, to the caller. The charge is the
// inclusive time of a usual call: own times at the site and at all sites below it. If calls take longer than usual, the
// difference is already charged as own time. If they take less, because they now run in parallel or do less, only the
// shorter time is charged.
type added struct {
	*ledger
	of   source
	x    *siteIndex
	sums map[int32][2]callSum  // by site: now and before
	memo map[int32]*inclusives // by step
}

// inclusives holds inclusive times of calls in ns, or numbers of calls: the usual value, the present value, and the
// smaller of the two.
type inclusives struct{ usual, now, least float64 }

var once = inclusives{1, 1, 1}

func (t *inclusives) add(o, times inclusives) {
	t.usual += times.usual * o.usual
	t.now += times.now * o.now
	t.least += times.least * o.least
}

// moreCalls is a site with more calls than before. Numbers of calls are per call of the caller. Calls up to limit are
// within the variation of the history.
type moreCalls struct {
	site               int32
	before, now, limit float64
	nanos              float64
}

// chargeAdded charges the calls that callers make more often than before.
func (a *added) chargeAdded() {
	for _, caller := range a.callers() {
		a.judgeCaller(caller)
	}
}

// callers returns the steps that seem to make more calls than before, not only by chance, ordered by operation.
func (a *added) callers() (steps []int32) {
	now, before := make([]float64, a.x.steps), make([]float64, a.x.steps)
	for i := int32(1); int(i) < len(a.sites); i++ {
		if !a.sites[i].Border {
			n, b := a.of.counts(i)
			now[a.x.step[i]] += n
			before[a.x.step[i]] += b
		}
	}
	for i := int32(1); int(i) < len(a.sites); i++ {
		n, b := a.of.counts(i)
		caller := a.x.caller[i]
		if n == 0 || before[caller] < history.MinHistory {
			continue
		}
		expected := b / before[caller] * now[caller]
		if n > leastMore*expected && n > expected+2*math.Sqrt(expected) && a.own(i) {
			steps = append(steps, caller)
		}
	}
	sorting.Slice(steps, func(s, t int32) int { return cmp.Compare(a.op(s), a.op(t)) })
	return slices.Compact(steps)
}

// op returns the operation of step, which must have sites.
func (a *added) op(step int32) trace.Op { return a.sites[a.x.at.of(step)[0]].Op }

// own reports whether the caller itself makes the calls at site. The calls at other sites answer its calls, or take
// messages whose sender we know.
func (a *added) own(site int32) bool {
	s := &a.sites[site]
	return s.Parent != 0 && !s.Queue && (s.Border || a.table.Operation(s.Parent).Service == a.names[s.Service])
}

// below returns the sites that a step calls, in the order of their keys.
func (a *added) below(step int32) []int32 {
	below := slices.Clone(a.x.below.of(step))
	sorting.Slice(below, func(i, k int32) int { return a.sites[i].SiteKey.Compare(a.sites[k].SiteKey) })
	return below
}

// judgeCaller charges the calls that a step makes more often than before, beyond the variation of the history. If the
// step makes them instead of other calls, or within a new span, the time that it saves is subtracted.
func (a *added) judgeCaller(step int32) {
	now, before := a.step(step)
	if now.calls == 0 || before.calls < history.MinHistory {
		return
	}
	var more []moreCalls
	saved, fewer := max(0, before.mean()-now.mean()), make(map[trace.Op]float64)
	for _, i := range a.below(step) {
		if !a.own(i) {
			continue
		}
		n, b := a.site(i)
		m := moreCalls{site: i, before: b.calls / before.calls, now: n.calls / now.calls}
		if m.now < m.before {
			saved += (m.before - m.now) * a.inclusive(i).usual
			fewer[a.sites[i].Base] += m.before - m.now
		} else if m.now > leastMore*m.before && a.beyond(&m, now.calls) {
			more = append(more, m)
		}
	}
	total := 0.0
	for k := range more {
		m := &more[k]
		base := a.sites[m.site].Base
		same := min(fewer[base], m.now-m.limit) // the same operation with another target, or without an answer
		fewer[base] -= same
		t := a.inclusive(m.site)
		m.nanos = max(0, (m.now-same)*t.least-m.limit*t.usual)
		total += m.nanos
	}
	for k := range more {
		if m := &more[k]; total > saved && m.nanos > 0 {
			m.nanos *= 1 - saved/total
			a.charge(m, now.calls)
		}
	}
}

// beyond reports whether the calls at m.site exceed the variation of the history. If they exceed the upper quartile of
// the history, it also sets m.before, m.now and m.limit. callers is the number of calls of the caller. Additional
// failed calls don't count, because they may be retries.
func (a *added) beyond(m *moreCalls, callers float64) bool {
	rate, usual, pieces := a.of.perCall(m.site)
	rate -= a.failing[m.site] / callers
	if len(pieces) == 0 || atMost(rate, pieces, upperQuartile) {
		return false
	}
	_, limit := a.fence(pieces)
	m.now, m.before, m.limit = rate, usual, max(limit, usual)
	return m.now > m.limit
}

// charge charges the added calls of m to the operation that makes them. callers is the number of calls of that
// operation.
func (a *added) charge(m *moreCalls, callers float64) {
	s := &a.sites[m.site]
	part := m.nanos * callers / a.requests / a.unit(m.site)
	op := s.Op
	if called := a.callee[m.site]; called.Service != s.Service && called.Op != 0 {
		op = called.Op
	}
	e := &a.evidence[s.Service]
	e.added += part
	e.calls = append(e.calls, AddedCall{Op: op, Caller: s.Parent, Before: m.before, Now: m.now, Nanos: m.nanos})
	caller := history.Callee{Service: s.Service, Op: s.Parent}
	a.ops[caller] += part
	a.ledger.own[caller] += part
	t := a.adding[caller]
	a.adding[caller] = Addition{callers, t.Nanos + m.nanos, a.whole(a.x.caller[m.site]).usual}
}

// whole returns the inclusive times of a call of a step.
func (a *added) whole(step int32) inclusives {
	t := ownTimes(a.step(step))
	t.add(a.inBelow(step), once)
	return t
}

// site returns the calls at site i in the window and before it, and caches them.
func (a *added) site(i int32) (now, before callSum) {
	s, known := a.sums[i]
	if !known {
		s[0], s[1] = a.of.sums(i)
		a.sums[i] = s
	}
	return s[0], s[1]
}

// step returns the calls of step under all callers, in the window and before it.
func (a *added) step(step int32) (now, before callSum) {
	for _, i := range a.x.at.of(step) {
		n, b := a.site(i)
		now.add(n)
		before.add(b)
	}
	return now, before
}

// inclusive returns the inclusive times of a call at a site. The own time of a border is only the time on the wire, so
// the own time of the span that answers is added.
func (a *added) inclusive(site int32) inclusives {
	t := ownTimes(a.site(site))
	step := a.x.step[site]
	if a.sites[site].Border {
		t.add(ownTimes(a.step(step)), once)
	}
	t.add(a.inBelow(step), once)
	return t
}

// ownTimes returns the mean own times of calls now and before. If there are calls on one side only, that side counts
// for both.
func ownTimes(now, before callSum) inclusives {
	switch {
	case before.calls == 0:
		return inclusives{now.mean(), now.mean(), now.mean()}
	case now.calls == 0:
		return inclusives{before.mean(), before.mean(), before.mean()}
	}
	return inclusives{before.mean(), now.mean(), min(before.mean(), now.mean())}
}

// inBelow returns the time that a call of a step spends at the sites below.
func (a *added) inBelow(step int32) inclusives {
	if t, known := a.memo[step]; known {
		return *t // still 0 if the step is below itself
	}
	t := &inclusives{}
	a.memo[step] = t
	now, before := a.step(step)
	sum := inclusives{}
	for _, i := range a.below(step) {
		if a.sites[i].Queue {
			continue // its time passes before its caller starts
		}
		n, b := a.site(i)
		rates := ownTimes(callSum{now.calls, n.calls}, callSum{before.calls, b.calls})
		if !a.own(i) { // a caller may have a longer history than the service that answers
			rates = inclusives{min(1, rates.usual), min(1, rates.now), min(1, rates.least)}
		}
		times := ownTimes(n, b)
		if !a.sites[i].Border {
			times.add(a.inBelow(a.x.step[i]), once)
		}
		sum.add(times, rates)
	}
	*t = sum
	return sum
}

// byTime sorts calls in place, in descending order of Nanos, and returns them. Ties are ordered by caller and
// operation.
func byTime(calls []AddedCall) []AddedCall {
	sorting.Slice(calls, func(a, b AddedCall) int {
		return cmp.Or(cmp.Compare(b.Nanos, a.Nanos), cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Op, b.Op))
	})
	return calls
}
