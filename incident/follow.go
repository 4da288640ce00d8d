package incident

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// Silent reports whether no request has come for the quiet time.
func Silent(now trace.Nanos, sites *history.Sites) bool {
	return sites.Latest(now) <= now.Add(-quiet)
}

// growing is the growth of a score that makes an incident worse than it was. The highest score grows by chance, too.
const growing = 1.25

// follow renews the suspects of an open incident when there is more evidence than before, and closes it once calls
// without evidence show that it is over. It reports whether the incident is open.
func (t *Tracker) follow(now trace.Nanos, x *tracked, sites *compare.Comparer) bool {
	switch {
	case x.staysUnexplained(now):
		x.affected = nil
	case now.Sub(x.Opened()) < spreading:
		x.skip(now, sites)
	default:
		x.skip(now, sites, x.affected...)
	}
	if now.Sub(x.Seen) >= quiet+x.every && x.end(now, sites) {
		return false
	}
	e, grows := x.current, x.grows()
	x.current = evidence{}
	x.steady(now, e, grows)
	same := x.Opened() != now && x.Suspects[0].Service == x.service
	if !grows || same && x.telling().latest(now, sites.Sites) <= now.Add(-max(t.epochLength, history.SliceLength)) {
		if t.due(now, x.Onset) {
			x.measureAgain(now, sites)
		}
		return true // without new requests the shares in the window change, but nothing new is known
	}
	x.evidence = e
	t.suspect(now, x, e.from, sites)
	return true
}

// steady enters the state Steady once the evidence has not grown for a day, and leaves it when it grows.
func (x *tracked) steady(now trace.Nanos, e evidence, grows bool) {
	if grows && e.score >= growing*x.settled {
		if x.grown != 0 && now.Sub(x.grown) >= unfolding {
			x.plateau = x.settled
		}
		x.grown, x.settled = now, e.score
		if x.IsSteady() {
			x.Enter(Transition{At: now, Why: Grew})
		}
	}
	if x.grown != 0 && now.Sub(x.grown) >= Day && !x.IsSteady() {
		x.Enter(Transition{At: now, State: Steady, Why: Unchanged})
	}
}

// suspect gives x the suspects of a window. The service that raised it is first: what explains it has taken its place.
// A score that a service reaches in healthy windows, too, is no evidence. Suspects with an incident of their own are no
// rivals.
func (t *Tracker) suspect(now trace.Nanos, x *tracked, f *finding, sites *compare.Comparer) {
	x.Suspects = slices.Clone(f.Suspects)
	t.affect(x, sites)
	slices.SortStableFunc(x.Suspects, func(a, b compare.Suspect) int {
		return cmp.Or(cmp.Compare(t.rank(x, &a), t.rank(x, &b)), cmp.Compare(t.aboveRecord(&b), t.aboveRecord(&a)))
	})
	for i := range x.Suspects[:min(located, len(x.Suspects))] {
		s := &x.Suspects[i]
		s.Instances = sites.Instances(f.window, &f.Comparison, s)
	}
	x.showPlace()
	x.measure(x.sinceOnset(now, sites))
	if x.Opened() == now {
		x.Alerted = x.Suspects[0].Service
	}
}

// affect adds the suspects of x, and their callers, to the services that it affects. A score that a service reaches in
// healthy windows does not make it one: its history would end with the beginning of the incident.
func (t *Tracker) affect(x *tracked, sites *compare.Comparer) {
	affected := append(slices.Clone(x.affected), x.service)
	for i := range x.Suspects {
		if s := &x.Suspects[i]; s.Score >= waiting*x.score && t.aboveRecord(s) > 0 {
			affected = append(affected, s.Service)
		}
	}
	x.affected = sites.Callers(affected...)
}

// grows reports whether there is more evidence than before.
func (x *tracked) grows() bool {
	return x.IsOpen() && x.current.score > 0 && x.current.score >= x.score
}

// skip excludes the calls in the present opening of x from the history: of all services, or only of some. Earlier
// openings have skips of their own.
func (x *tracked) skip(now trace.Nanos, sites *compare.Comparer, services ...trace.Symbol) {
	id := x.ID
	if x.Reopened() != 0 {
		id = trace.Mix(id, uint64(x.Reopened()))
	}
	sites.Skip(id, history.Interval{From: x.skipFrom, To: now}, services...)
}

// sinceOnset compares the time since the onset with the history before it.
func (x *tracked) sinceOnset(now trace.Nanos, sites *compare.Comparer) *compare.Comparison {
	since := sites.Compare(history.Interval{From: x.Onset, To: now}, compare.Plain)
	return &since
}

// due reports whether the time since an onset has grown by so much, a thirtieth or so, that measuring it again may show
// more. Measuring takes longer the longer that time is.
func (t *Tracker) due(now, onset trace.Nanos) bool {
	const part = 32
	step := history.SliceLength
	for part*step < now.Sub(onset) {
		step *= 2
	}
	return now/trace.Nanos(step) != now.Add(-t.epochLength)/trace.Nanos(step)
}

// measureAgain measures the same suspects again if the first has cost more since the onset than when it was measured
// before: the time with the most evidence has a higher mean than the whole time. The time after a recovery adds nothing
// and does not count.
func (x *tracked) measureAgain(now trace.Nanos, sites *compare.Comparer) {
	if x.Seen != now || x.unexplained() {
		return
	}
	since, first := x.sinceOnset(now, sites), &x.Suspects[0]
	i := slices.IndexFunc(since.Suspects, func(s compare.Suspect) bool { return s.Service == first.Service })
	if i >= 0 && x.withoutBefore(&since.Suspects[i]).Score*float64(since.Requests) > first.Score*float64(x.Requests) {
		x.Suspects = slices.Clone(x.Suspects)
		x.measure(since)
	}
}

// measure replaces the scores of the suspects by scores over the time since the onset. The scores by which incidents
// are raised and suspects ranked are lower bounds, of a window that may begin before the onset.
func (x *tracked) measure(since *compare.Comparison) {
	x.Requests, x.Duration, x.Mean = int(since.Requests), since.Duration, since.Mean
	measured := make(map[trace.Symbol]*compare.Suspect, len(since.Suspects))
	for i := range since.Suspects {
		measured[since.Suspects[i].Service] = &since.Suspects[i]
	}
	for i := range x.Suspects {
		s := &x.Suspects[i]
		if m := measured[s.Service]; m != nil &&
			(s.Score > 0 || len(s.Operations) > 0 || s.Service == x.service) && m.Score > 0 {
			m.Instances = s.Instances
			*s = x.withoutBefore(m)
		}
		if s.Service == x.service && s.Score == 0 {
			showRise(s)
		}
	}
	// The others by the scores that are shown.
	slices.SortStableFunc(x.Suspects[min(1, len(x.Suspects)):],
		func(a, b compare.Suspect) int { return cmp.Compare(b.Score, a.Score) })
}

// withoutBefore returns a measured suspect without what the incident that x replaced had told: what is new.
func (x *tracked) withoutBefore(m *compare.Suspect) compare.Suspect {
	s := *m
	if x.before == nil || x.before.Service != s.Service {
		return s
	}
	b := x.before
	for _, p := range []struct {
		part   *float64
		before float64
	}{
		{&s.Own, b.Own},
		{&s.Added, b.Added},
		{&s.In, b.In},
		{&s.Out, b.Out},
		{&s.Errors, b.Errors},
		{&s.Unanswered, b.Unanswered},
		{&s.Silent, b.Silent},
		{&s.Rest, b.Rest},
	} {
		less := min(*p.part, p.before)
		*p.part, s.Score = *p.part-less, s.Score-less
	}
	if s.Score <= 0 {
		return *m
	}
	return s
}

// showRise makes the growth of typical times, or of hours, the evidence against a suspect that has no other yet.
func showRise(s *compare.Suspect) {
	s.Operations = slices.Clone(s.Operations)
	for i := range s.Operations {
		o := &s.Operations[i]
		if o.Risen > 0 {
			o.Excess, o.Usual = o.Risen, max(0, o.Usual+o.Excess-o.Risen)
		}
		s.Own += o.Score
	}
	if len(s.Operations) == 0 {
		s.Own += s.Whole.Score
	}
	s.Score = s.Own
}

// rank returns 0 for the service that an incident is about, 2 for services that have an open incident of their own, and
// 1 for all others.
func (t *Tracker) rank(x *tracked, s *compare.Suspect) int {
	if s.Service == x.service {
		return 0
	}
	for _, y := range t.incidents {
		if y != x && y.IsOpen() && y.service == s.Service {
			return 2
		}
	}
	return 1
}

// close ends x. It keeps the suspects that are worth showing.
func (x *tracked) close(end Transition) {
	x.Enter(end)
	x.Suspects = slices.Clone(x.Suspects[:min(len(x.Suspects), keptSuspects)])
	for i := range x.Suspects {
		s := &x.Suspects[i]
		s.Operations = slices.Clone(s.Operations[:min(len(s.Operations), keptOperations)])
	}
}
