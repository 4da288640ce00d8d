package live

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// cleanup holds the limits on the stored history that apply at one checkpoint.
type cleanup struct {
	bytes  int64       // maximum size of the store; 0 means unlimited
	before trace.Nanos // exemplars of requests before this time are deleted; 0 if it isn't time for that
	past   *pastLimits // limits on windows and closed problems; nil if it isn't time for them
	open   evidence    // evidence that is deleted last
}

// ageInterval is the minimum time between deletions by age, because each of them reads all exemplars.
const ageInterval = 10 * time.Minute

// retention returns the limits that apply after a checkpoint at time now.
func (l *loop) retention(now trace.Nanos) *cleanup {
	r := l.retained.Load()
	x := &cleanup{bytes: r.Bytes, open: evidenceOf(l.core.View())}
	if now.Sub(l.trimmed) >= ageInterval {
		l.trimmed, x.past = now, &pastLimits{now, r.Age, x.open.subjects}
		if r.Age > 0 {
			x.before = now.Add(-r.Age)
		}
	}
	return x
}

// evidence holds the subjects and groups that people may still be working on.
type evidence struct {
	subjects map[search.Subject]bool // open problems, and incidents that haven't been deleted, with their problems
	groups   map[analysis.Hash]bool  // of the open problems, with their request types
}

func evidenceOf(core *engine.View) evidence {
	e := evidence{make(map[search.Subject]bool), make(map[analysis.Hash]bool)}
	open := core.Problems.Open()
	for i := range open {
		p := &open[i]
		e.subjects[search.OfProblem(p.ID)], e.groups[p.Group], e.groups[p.RequestType] = true, true, true
	}
	for _, x := range core.Incidents.All() {
		e.subjects[search.OfIncident(x.ID)] = true
		for _, id := range x.Problems {
			e.subjects[search.OfProblem(id)] = true
		}
	}
	return e
}

// keptExemplar is a stored exemplar with its group and the subject that it is kept for.
type keptExemplar struct {
	store.Exemplar
	group analysis.Hash
	of    search.Subject // zero if the exemplar is in the sample of the group
}

// headroom determines how much is deleted when the byte limit is exceeded: enough to get below the limit by 1/headroom,
// so that it isn't exceeded again immediately.
const headroom = 10

// enforce first deletes exemplars beyond the age limit. If the store still exceeds the byte limit, it deletes the
// oldest decisions, exemplars and days of windows, leaving the evidence in r.open for last. It never deletes the
// checkpoint; if that alone exceeds the limit, enforce deletes everything else.
func (k *exemplarStore) enforce(ctx context.Context, r *cleanup, refs map[trace.ID]int) error {
	if r.before > 0 {
		if err := k.deleteAged(r, refs); err != nil {
			return err
		}
	}
	over, err := k.excess(r.bytes)
	if over <= 0 || err != nil {
		return err
	}
	if err := k.options.Store.Compact(ctx); err != nil { // deleted data may still take up space
		return err
	}
	if over, err = k.excess(r.bytes); over <= 0 || err != nil {
		return err
	}
	for x, err := range k.oldest(r.open) {
		if err != nil {
			return err
		}
		freed, err := k.deleteItem(x, refs)
		if err != nil {
			return err
		}
		if over -= freed; over <= -r.bytes/headroom {
			break
		}
	}
	return k.options.Store.Compact(ctx)
}

// excess returns the number of bytes by which the store exceeds most, which is negative if it doesn't. It returns 0 if
// most is 0, which means no limit.
func (k *exemplarStore) excess(most int64) (int64, error) {
	if most == 0 {
		return 0, nil
	}
	takes, err := k.options.Store.EstimateSize()
	return takes - most, err
}

// all returns the exemplars of all groups, oldest first.
func (k *exemplarStore) all() (all []keptExemplar, err error) {
	err = k.options.Store.Exemplars.Each(func(group analysis.Hash, e *store.Exemplars) error {
		for x := range e.All() {
			all = append(all, keptExemplar{Exemplar: *x, group: group})
		}
		return nil
	})
	err = errors.Join(err,
		k.options.Store.Kept.Each(func(of search.Subject, group analysis.Hash, e *store.Exemplars) error {
			for x := range e.All() {
				all = append(all, keptExemplar{*x, group, of})
			}
			return nil
		}))
	sorting.Slice(all, func(a, b keptExemplar) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), a.group.Compare(b.group), slices.Compare(a.Trace[:], b.Trace[:]),
			a.of.Compare(b.of))
	})
	return all, err
}

// stored returns the set of stored exemplars that includes e.
func (k *exemplarStore) stored(e *keptExemplar) (*store.Exemplars, error) {
	if e.of.IsZero() {
		return k.options.Store.Exemplars.Of(e.group)
	}
	return k.options.Store.Kept.Of(e.of, e.group)
}

// replace replaces the set of stored exemplars that includes e with all.
func (k *exemplarStore) replace(e *keptExemplar, all *store.Exemplars) error {
	if e.of.IsZero() {
		return k.options.Store.Exemplars.Put(e.group, all)
	}
	return k.options.Store.Kept.Put(e.of, e.group, all)
}

// deleteAged deletes the exemplars of requests that started before r.before, except those kept for r.open.
func (k *exemplarStore) deleteAged(r *cleanup, refs map[trace.ID]int) error {
	all, err := k.all()
	for i := range all {
		if err != nil || all[i].Start >= r.before {
			break
		}
		if !all[i].of.IsZero() && r.open.subjects[all[i].of] {
			continue
		}
		_, err = k.deleteExemplar(&all[i], refs)
	}
	return err
}

// pastItem is an exemplar, the decisions of one epoch, or the windows of one day.
type pastItem struct {
	exemplar *keptExemplar
	decided  *store.Epoch
	day      *store.PastDay
}

// about reports whether x concerns anything in open.
func (x pastItem) about(open evidence) bool {
	switch {
	case x.exemplar != nil:
		return open.groups[x.exemplar.group] || open.subjects[x.exemplar.of]
	case x.day != nil:
		return false
	}
	return slices.ContainsFunc(x.decided.Subjects, func(s search.Subject) bool { return open.subjects[s] })
}

// oldest yields decisions, exemplars and days of windows, oldest first, with items about subjects or groups in open
// after all others. The age of a day of windows counts from the end of the day. The sequence ends after the first
// error.
func (k *exemplarStore) oldest(open evidence) iter.Seq2[pastItem, error] {
	return func(yield func(pastItem, error) bool) {
		exemplars, err := k.all()
		days, err2 := k.options.Store.Past.Days()
		if err = errors.Join(err, err2); err != nil {
			yield(pastItem{}, err)
			return
		}
		var last []pastItem
		offer := func(x pastItem) bool {
			if x.about(open) {
				last = append(last, x)
				return true
			}
			return yield(x, nil)
		}
		next, nextDay := 0, 0
		before := func(t trace.Nanos) bool {
			for {
				e, d := trace.MaxNanos, trace.MaxNanos
				if next < len(exemplars) {
					e = exemplars[next].Start
				}
				if nextDay < len(days) {
					d = days[nextDay].Day.Add(group.Day)
				}
				var x pastItem
				switch {
				case min(e, d) >= t:
					return true
				case d <= e:
					x.day = &days[nextDay]
					nextDay++
				default:
					x.exemplar = &exemplars[next]
					next++
				}
				if !offer(x) {
					return false
				}
			}
		}
		for d, err := range k.options.Store.Decisions.Epochs() {
			if err != nil {
				yield(pastItem{}, err)
				return
			}
			if !before(d.At) || !offer(pastItem{decided: &d}) {
				return
			}
		}
		if !before(trace.MaxNanos) {
			return
		}
		for _, x := range last {
			if !yield(x, nil) {
				return
			}
		}
	}
}

// deleteItem deletes x and returns the number of bytes freed.
func (k *exemplarStore) deleteItem(x pastItem, refs map[trace.ID]int) (freed int64, err error) {
	switch {
	case x.exemplar != nil:
		return k.deleteExemplar(x.exemplar, refs)
	case x.day != nil:
		return x.day.Size, k.options.Store.Past.DeleteBefore(x.day.Day.Add(group.Day))
	}
	k.counts.Forgotten.Decisions.Add(1)
	return x.decided.Size, k.options.Store.Decisions.Delete(x.decided.At)
}

// deleteExemplar deletes e, and all other exemplars in its set with the same trace. It returns the number of bytes
// freed, which is 0 as long as an exemplar in another set has the same trace.
func (k *exemplarStore) deleteExemplar(e *keptExemplar, refs map[trace.ID]int) (freed int64, err error) {
	kept, err := k.stored(e)
	if err != nil {
		return 0, err
	}
	gone := 0
	for _, list := range kept.Lists() {
		*list = slices.DeleteFunc(*list, func(x store.Exemplar) bool {
			if x.Trace != e.Trace {
				return false
			}
			gone++
			return true
		})
	}
	if gone == 0 {
		return 0, nil // e was in two lists, and has been deleted from both
	}
	k.counts.Forgotten.Exemplars.Add(1)
	if err := k.replace(e, kept); err != nil {
		return 0, err
	}
	if refs[e.Trace] -= gone; refs[e.Trace] > 0 {
		return 0, nil
	}
	delete(refs, e.Trace)
	size, err := k.options.Store.Traces.Size(e.Trace)
	return size, errors.Join(err, k.options.Store.Traces.Delete(e.Trace))
}

// logEnforceError logs that limits couldn't be enforced.
func (k *exemplarStore) logEnforceError(ctx context.Context, err error) {
	if err != nil {
		k.options.Log.ErrorContext(ctx, "history could not be trimmed; the store may exceed its limit",
			slog.Any("error", err))
	}
}
