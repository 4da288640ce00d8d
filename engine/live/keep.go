package live

import (
	"cmp"
	"errors"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// keep is a request to keep exemplars of a group for a problem or an incident, so that people can still view them when
// the group has newer exemplars.
type keep struct {
	of    search.Subject
	group analysis.Hash
	since trace.Nanos // keep only requests that started at or after this time
	slow  bool        // keep slow requests only
	// If replaced is set, located, which may be empty, replaces the kept exemplars that ran the located place. The
	// other exemplars stay.
	replaced bool
	located  []store.Exemplar
}

const (
	// maxKept is the maximum number of problems that open, and that close, in an epoch and whose exemplars are kept.
	maxKept = 64
	// keptTypes is the maximum number of request types of an incident whose exemplars are kept.
	keptTypes = 3
	// keepEvery is the interval at which exemplars of an open incident are kept. It is shorter than sampleAge so that
	// few slow requests are lost when a sample restarts.
	keepEvery = sampleAge / 6
	// maxKeeps is the maximum number of keeps waiting for the goroutine of exemplarStore.
	maxKeeps = 1024
)

// keeps returns the exemplars to keep at the end of the epoch from last to now. Exemplars are kept when a problem or an
// incident opens or closes and, for incidents, every keepEvery while they are open. before holds the problems that were
// open at the start of the epoch.
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
			all = append(all, keep{
				of: search.OfIncident(x.ID), group: x.Types[k].RequestType, since: x.Onset, slow: true,
			})
		}
	}
	return all
}

// keepDue reports whether the exemplars of an open incident must be kept at the end of the epoch that lasted from last
// to now. opened is the time when the incident last opened.
func keepDue(opened, last, now trace.Nanos) bool {
	return opened > last || now.Sub(opened)/keepEvery > last.Sub(opened)/keepEvery
}

// problemsWithout returns the problems in all that aren't in others, in the order of all.
func problemsWithout(all, others []detect.Problem) []detect.Problem {
	known := make(map[analysis.Hash]bool, len(others))
	for i := range others {
		known[others[i].ID] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(p detect.Problem) bool { return known[p.ID] })
}

// sinceOf returns the exemplars in all that started at or after instant. It reuses the memory of all.
func sinceOf(all []store.Exemplar, instant trace.Nanos) []store.Exemplar {
	return slices.DeleteFunc(all, func(e store.Exemplar) bool { return e.Start < instant })
}

// keepExemplars adds the current exemplars of x.group to the exemplars kept for x.of or, if x.replaced is set, replaces
// the kept exemplars that ran the located place.
func (k *exemplarStore) keepExemplars(x keep, refs map[trace.ID]int) error {
	before, err := k.options.Store.Kept.Of(x.of, x.group)
	if err != nil {
		return err
	}
	if x.replaced {
		after := *before
		after.Located, err = k.copied(x.located, refs)
		return errors.Join(err, k.replaceKept(x, before, &after, refs))
	}
	present, err := k.options.Store.Exemplars.Of(x.group)
	if err != nil {
		return err
	}
	size := k.retained.Load().Exemplars
	slow := sinceOf(slices.Concat(before.Slow, present.Slow), x.since)
	sorting.SliceStable(slow, func(a, b store.Exemplar) int {
		return cmp.Or(cmp.Compare(b.Duration, a.Duration), slices.Compare(a.Trace[:], b.Trace[:]),
			cmp.Compare(a.Root, b.Root))
	})
	slow = slices.CompactFunc(slow, func(a, b store.Exemplar) bool { return a.Trace == b.Trace && a.Root == b.Root })
	after := &store.Exemplars{
		Slow:    slow[:min(len(slow), size)],
		Failed:  before.Failed[:min(len(before.Failed), size)],
		Located: before.Located[:min(len(before.Located), size)],
	}
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

// copied copies the traces of the first Retention.Exemplars exemplars in all to the store, unless they are already
// there. It returns the exemplars whose traces are stored.
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

// replaceKept replaces `before`, the exemplars of x.group kept for x.of, with `after`, and deletes traces that are no
// longer referenced.
func (k *exemplarStore) replaceKept(x keep, before, after *store.Exemplars, refs map[trace.ID]int) error {
	if err := k.options.Store.Kept.Put(x.of, x.group, after); err != nil {
		return err
	}
	var err error
	for e := range after.All() {
		refs[e.Trace]++
	}
	for e := range before.All() {
		if refs[e.Trace]--; refs[e.Trace] <= 0 {
			delete(refs, e.Trace)
			err = errors.Join(err, k.options.Store.Traces.Delete(e.Trace))
		}
	}
	return err
}
