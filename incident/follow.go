package incident

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Silent reports whether no request has arrived for two minutes, not counting long requests.
func Silent(now trace.Nanos, sites *history.Sites) bool {
	return sites.Requests.Latest(now) <= now.Add(-quiet)
}

// growing is the factor by which a score must grow to make an incident worse, because the highest score also grows by
// chance.
const growing = 1.25

// follow updates the suspects of the open incident x if there is more evidence than before, and closes x once calls
// without evidence show that it is over. It reports whether x is still open.
func (t *Tracker) follow(now trace.Nanos, x *tracked, comparer *compare.Comparer) bool {
	switch {
	case x.staysUnexplained(now):
		x.affected = nil
	case now.Sub(x.Opened()) < spreading:
		x.skip(now, comparer)
	default:
		x.skip(now, comparer, x.affected...)
	}
	if now.Sub(x.Seen) >= quiet+x.every && x.end(now, comparer) {
		return false
	}
	e, grows := x.current, x.grows()
	x.current = evidence{}
	x.steady(now, e, grows)
	same := x.Opened() != now && x.Suspects[0].Service == x.service
	if !grows || same && x.telling().latest(now, comparer.Sites) <= now.Add(-max(t.epochLength, history.SliceLength)) {
		if t.due(now, x.Onset) {
			x.measureAgain(now, comparer)
		}
		return true // the shares in a window change even without new requests
	}
	x.evidence = e
	t.suspect(now, x, e.from, comparer)
	return true
}

// steady puts x in the state Steady once its evidence hasn't grown for a day, and back in Open if the evidence grows.
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

// suspect sets the suspects of x from the window f. The service that raised x comes first, because any service that
// explains it has already replaced it. Services with an open incident of their own come last. The others are ordered by
// score above their record, because a score that is also reached in healthy windows is no evidence.
func (t *Tracker) suspect(now trace.Nanos, x *tracked, f *finding, comparer *compare.Comparer) {
	x.Suspects = slices.Clone(f.Suspects)
	t.affect(x, comparer)
	sorting.SliceStable(x.Suspects, func(a, b compare.Suspect) int {
		return cmp.Or(
			cmp.Compare(t.incidents.rank(x, &a), t.incidents.rank(x, &b)),
			cmp.Compare(t.baseline.aboveRecord(&b), t.baseline.aboveRecord(&a)),
		)
	})
	for i := range x.Suspects[:min(located, len(x.Suspects))] {
		s := &x.Suspects[i]
		s.Instances = comparer.InstanceParts(f.window, &f.Comparison, s)
	}
	x.showPlace()
	x.measure(x.sinceOnset(now, comparer))
	if x.Opened() == now {
		x.Alerted = x.Suspects[0].Service
	}
}

// affect adds the suspects of x and their callers to the services that x affects. A score that a service also reaches
// in healthy windows doesn't make the service affected, because its history would then end at the onset of the
// incident.
func (t *Tracker) affect(x *tracked, comparer *compare.Comparer) {
	affected := append(slices.Clone(x.affected), x.service)
	for i := range x.Suspects {
		if s := &x.Suspects[i]; s.Score >= waiting*x.score && t.baseline.aboveRecord(s) > 0 {
			affected = append(affected, s.Service)
		}
	}
	x.affected = comparer.Services.Callers(affected...)
}

// grows reports whether x is open and this epoch has at least as much evidence as any epoch before.
func (x *tracked) grows() bool {
	return x.IsOpen() && x.current.score > 0 && x.current.score >= x.score
}

// skip excludes the calls of services, or of all services if there are no arguments, from the history while x is open.
// Each time that x reopens, a separate exclusion starts.
func (x *tracked) skip(now trace.Nanos, comparer *compare.Comparer, services ...trace.Symbol) {
	id := x.ID
	if x.Reopened() != 0 {
		id = trace.Mix(id, uint64(x.Reopened()))
	}
	comparer.Skip(id, history.Interval{From: x.skipFrom, To: now}, services...)
}

// sinceOnset compares the time since the onset with the history before it.
func (x *tracked) sinceOnset(now trace.Nanos, comparer *compare.Comparer) *compare.Comparison {
	since := comparer.Compare(history.Interval{From: x.Onset, To: now}, compare.Plain)
	return &since
}

// due reports whether the time since onset has grown by about a thirtieth since the last measurement, so that measuring
// again may show more. We don't measure in every epoch, because measuring takes longer the more time has passed since
// the onset.
func (t *Tracker) due(now, onset trace.Nanos) bool {
	const part = 32
	step := history.SliceLength
	for part*step < now.Sub(onset) {
		step *= 2
	}
	return now/trace.Nanos(step) != now.Add(-t.epochLength)/trace.Nanos(step)
}

// measureAgain measures the same suspects again, and keeps the result if the total cost of the first suspect since the
// onset has increased since the last measurement. It compares totals because the mean over the time with the most
// evidence is higher than over the whole time. It does nothing unless there is evidence in this epoch.
func (x *tracked) measureAgain(now trace.Nanos, comparer *compare.Comparer) {
	if x.Seen != now || x.unexplained() {
		return
	}
	since, first := x.sinceOnset(now, comparer), &x.Suspects[0]
	i := slices.IndexFunc(since.Suspects, func(s compare.Suspect) bool { return s.Service == first.Service })
	if i >= 0 && x.withoutBefore(&since.Suspects[i]).Score*float64(since.Requests) > first.Score*float64(x.Requests) {
		x.Suspects = slices.Clone(x.Suspects)
		x.measure(since)
	}
}

// measure replaces the scores of the suspects with their scores since the onset. The earlier scores, which raise
// incidents and rank suspects, are lower bounds for a window that may start before the onset.
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
	// Sort all but the first suspect by the scores that are shown.
	sorting.SliceStable(x.Suspects[min(1, len(x.Suspects)):],
		func(a, b compare.Suspect) int { return cmp.Compare(b.Score, a.Score) })
}

// withoutBefore returns m without the part that the incident replaced by x had already shown, or all of m if nothing
// would be left.
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

// showRise makes the growth of typical times, or growth over hours, the evidence against a suspect that has no other
// evidence yet.
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

// close ends x and keeps the suspects that are worth showing.
func (x *tracked) close(end Transition) {
	x.Enter(end)
	x.Suspects = slices.Clone(x.Suspects[:min(len(x.Suspects), keptSuspects)])
	for i := range x.Suspects {
		s := &x.Suspects[i]
		s.Operations = slices.Clone(s.Operations[:min(len(s.Operations), keptOperations)])
	}
}
