package live

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// packAge is the age at which the windows of a day are packed: those of yesterday and of the day before stay short.
	packAge = 2 * group.Day
	// leastPast is the least time for which closed problems are kept.
	leastPast = group.Day
	// pastMargin is the time for which windows are kept beyond the age limit, so that a limit of a week leaves the
	// windows of a week ago.
	pastMargin = group.Day
)

// keepPeriod stores the windows of the period that ends before the epoch that ends now, if one does. Only their
// encoding stops the loop. A restart that reads the journal again stores equal windows again.
func (l *loop) keepPeriod(now trace.Nanos) {
	from, all, ended := l.core.View().EndedPeriod(now)
	if !ended {
		return
	}
	began := l.options.Clock()
	period := store.NewPeriod(from, all)
	l.counts.Downsampled.Store(int64(l.options.Clock().Sub(began)))
	before, done := l.stored, make(chan struct{})
	l.stored = done
	go func() {
		defer close(done)
		wait(before)
		if err := l.options.Store.PutPeriod(period); err != nil {
			l.options.Log.Error("windows could not be stored; charts of this time will have a gap", slog.Any("error", err))
		}
	}()
}

// wait waits until done is closed, unless it is nil.
func wait(done <-chan struct{}) {
	if done != nil {
		<-done
	}
}

// pastStore packs and deletes the stored past, in a goroutine of its own: a day of many groups takes seconds.
type pastStore struct {
	options *Options
	work    chan pastLimits
}

// pastLimits are the limits of the stored past.
type pastLimits struct {
	now trace.Nanos
	age time.Duration // 0: unlimited
	// held has the problems and incidents whose evidence is kept whatever its age: open ones, and those that belong to
	// an incident that is not forgotten.
	held map[search.Subject]bool
}

func newPastStore(o *Options) *pastStore { return &pastStore{o, make(chan pastLimits, 1)} }

// trim has run enforce the limits, unless it still enforces earlier ones.
func (p *pastStore) trim(x pastLimits) {
	select {
	case p.work <- x:
	default:
	}
}

// run enforces limits until the channel is closed.
func (p *pastStore) run(ctx context.Context) {
	for x := range p.work {
		if err := p.enforce(x); err != nil {
			p.options.Log.ErrorContext(ctx, "the windows of past days could not be packed or deleted", slog.Any("error", err))
		}
	}
}

func (p *pastStore) enforce(x pastLimits) error {
	s := p.options.Store
	before := trace.Nanos(0)
	if x.age > 0 {
		before = x.now.Add(-max(x.age, leastPast))
		if err := s.DeletePastBefore(x.now.Add(-x.age - pastMargin)); err != nil {
			return err
		}
	}
	return errors.Join(s.PackDays(x.now.Add(-packAge)), s.TrimClosedProblems(before), s.TrimLocated(before, x.held), s.PackTicks(x.now.Add(-TicksKept)), s.DeleteTicksBefore(x.now.Add(-MinutesKept)))
}

// keep has the exemplars of a group kept for a problem or an incident: for display after the group has newer ones.
type keep struct {
	of    search.Subject
	group analysis.Hash
	since trace.Nanos // start of the slow requests to keep
	slow  bool        // only slow ones
	// replaced has located, which may be empty, replace those that ran the located place; the others stay.
	replaced bool
	located  []store.Exemplar
}

const (
	// maxKept bounds the problems whose exemplars are kept in an epoch.
	maxKept = 64
	// keptTypes bounds the request types of an incident with kept exemplars.
	keptTypes = 3
	// keepEvery is the time between two times at which the exemplars of an open incident are kept. It is less than
	// sampleAge, after which a sample begins anew, so that few slow requests are lost.
	keepEvery = sampleAge / 6
	// maxKeeps bounds the keeps that wait for the goroutine of the exemplarStore.
	maxKeeps = 1024
)

// keeps returns the exemplars to keep at the end of an epoch: those of problems that opened or closed in it, and those
// of incidents when they open, from time to time, and when they close.
func keeps(core *engine.View, before []detect.Problem, last, now trace.Nanos) []keep {
	var all []keep
	open := core.Problems.Open()
	for _, changed := range [][]detect.Problem{problemsWithout(open, before), problemsWithout(before, open)} {
		for i := range changed[:min(len(changed), maxKept)] {
			all = append(all, keep{of: search.OfProblem(changed[i].ID), group: changed[i].Group})
		}
	}
	incidents := core.Incidents.All()
	for i := range incidents {
		x := &incidents[i]
		if x.IsOpen() && !keepDue(x.LastOpened(), last, now) || !x.IsOpen() && x.Closed() <= last {
			continue
		}
		for k := range x.Types[:min(len(x.Types), keptTypes)] {
			all = append(all, keep{of: search.OfIncident(x.ID), group: x.Types[k].RequestType, since: x.Onset, slow: true})
		}
	}
	return all
}

// keepDue reports whether the exemplars of an incident that opened at a time are kept at the end of the epoch from last
// to now.
func keepDue(opened, last, now trace.Nanos) bool {
	return opened > last || now.Sub(opened)/keepEvery > last.Sub(opened)/keepEvery
}

// problemsWithout returns the problems that are not among others, in their order.
func problemsWithout(all, others []detect.Problem) []detect.Problem {
	known := make(map[analysis.Hash]bool, len(others))
	for i := range others {
		known[others[i].ID] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(p detect.Problem) bool { return known[p.ID] })
}

// sinceOf returns the exemplars that began at or after an instant, in the memory of all.
func sinceOf(all []store.Exemplar, instant trace.Nanos) []store.Exemplar {
	return slices.DeleteFunc(all, func(e store.Exemplar) bool { return e.Start < instant })
}

// keepExemplars adds the present exemplars of a group to those that are kept.
func (k *exemplarStore) keepExemplars(x keep, refs map[trace.ID]int) error {
	before, err := k.options.Store.Kept(x.of, x.group)
	if err != nil {
		return err
	}
	if x.replaced {
		after := *before
		after.Located, err = k.copied(x.located, refs)
		return errors.Join(err, k.replaceKept(x, before, &after, refs))
	}
	present, err := k.options.Store.Exemplars(x.group)
	if err != nil {
		return err
	}
	size := k.retained.Load().Exemplars
	slow := sinceOf(slices.Concat(before.Slow, present.Slow), x.since)
	slices.SortStableFunc(slow, func(a, b store.Exemplar) int {
		return cmp.Or(cmp.Compare(b.Duration, a.Duration), slices.Compare(a.Trace[:], b.Trace[:]), cmp.Compare(a.Root, b.Root))
	})
	slow = slices.CompactFunc(slow, func(a, b store.Exemplar) bool { return a.Trace == b.Trace && a.Root == b.Root })
	after := &store.Exemplars{Slow: slow[:min(len(slow), size)], Failed: before.Failed[:min(len(before.Failed), size)], Located: before.Located[:min(len(before.Located), size)]}
	if failed := sinceOf(present.Failed, x.since); len(failed) > 0 {
		after.Failed = failed
	}
	if !x.slow && size > 0 {
		after.Typical, after.Fast = before.Typical, before.Fast
		if len(present.Typical) > 0 {
			after.Typical = present.Typical
		}
		if len(present.Fast) > 0 {
			after.Fast = present.Fast
		}
	}
	return k.replaceKept(x, before, after, refs)
}

// copied copies the traces of exemplars to the store, as far as they are not there yet, and returns those that it has.
func (k *exemplarStore) copied(all []store.Exemplar, refs map[trace.ID]int) (stored []store.Exemplar, err error) {
	for i := range all[:min(len(all), k.retained.Load().Exemplars)] {
		there := refs[all[i].Trace] > 0
		if !there {
			copied, failed := k.copyTrace(&all[i])
			there, err = copied, errors.Join(err, failed)
		}
		if there {
			e := all[i]
			e.Records = nil
			stored = append(stored, e)
		}
	}
	return stored, err
}

// replaceKept replaces the exemplars that are kept for a problem or an incident, and deletes traces that nothing refers
// to any longer.
func (k *exemplarStore) replaceKept(x keep, before, after *store.Exemplars, refs map[trace.ID]int) error {
	if err := k.options.Store.PutKept(x.of, x.group, after); err != nil {
		return err
	}
	var err error
	for e := range after.All() {
		refs[e.Trace]++
	}
	for e := range before.All() {
		if refs[e.Trace]--; refs[e.Trace] <= 0 {
			delete(refs, e.Trace)
			err = errors.Join(err, k.options.Store.DeleteTrace(e.Trace))
		}
	}
	return err
}
