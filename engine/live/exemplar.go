package live

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// exemplarStore stores whole traces of each group for people to view. The core loop samples the requests. At the end of
// each epoch, a separate goroutine copies the sampled traces from the journal to the store.
type exemplarStore struct {
	options  *Options
	retained *atomic.Pointer[Retention]
	counts   *Counts

	size      int // maximum size of a sample; see Retention.Exemplars
	groups    map[analysis.Hash]*groupSample
	work      chan task
	keeps     []keep        // for the next task
	postponed chan []change // changes that run had no time for; received by epoch
	record    []byte        // scratch of run
	whole     *wholeTraces
}

// groupSample samples the requests of one group, to choose its exemplars.
type groupSample struct {
	sample stats.Stratified[store.Exemplar] // without Records
	// failed holds up to exemplarStore.size recent failed requests, oldest first, without Records.
	failed  []store.Exemplar
	records map[uint64][]uint64 // journal records of the requests sampled since the last epoch, by key
	began   trace.Nanos
	fresh   bool       // changed since the last epoch
	traces  []trace.ID // stored, or about to be
}

// change is a new set of exemplars for a group.
type change struct {
	group     analysis.Hash
	exemplars *store.Exemplars // nil to delete all
	before    []trace.ID       // groupSample.traces before the change
}

// task is work for exemplarStore.run, which processes the fields in order.
type task struct {
	changes   []change
	keeps     []keep
	newlyKept []engine.Recorded // traces to copy to whole
	until     time.Time         // deadline; changes not made by then are postponed
	cleanup   *cleanup          // nil if there is nothing to clean up
	trim      uint64            // first record of the journal that is still needed; 0 if unchanged
}

const (
	// maxExemplarGroups is the maximum number of groups with exemplars.
	maxExemplarGroups = 4096
	// sampleAge is the age at which a sample restarts, so that exemplars are recent.
	sampleAge = time.Hour
	// failedAge is the minimum age of a failed request that is replaced by another, so that we copy few traces if all
	// requests fail.
	failedAge = time.Minute
	// tasksWaiting is the capacity of exemplarStore.work: one task for the changes of an epoch, and one for trimming
	// the journal. If it is full, the changes are retried at the end of the next epoch.
	tasksWaiting = 2
	// maxReusedRecord is the maximum size in bytes of a scratch record that is kept for reuse.
	maxReusedRecord = 4 << 20
	// exemplarShare limits the time spent on exemplars to 1/exemplarShare of an epoch. The limit matters while samples
	// are small, because many exemplars are then new.
	exemplarShare = 4
)

// newExemplarStore returns an exemplarStore that continues with the stored exemplars.
func newExemplarStore(o *Options, retained *atomic.Pointer[Retention], counts *Counts) (*exemplarStore, error) {
	k := &exemplarStore{
		options:   o,
		retained:  retained,
		counts:    counts,
		size:      o.Retention.Exemplars,
		whole:     newWholeTraces(o.Whole),
		groups:    make(map[analysis.Hash]*groupSample),
		work:      make(chan task, tasksWaiting),
		postponed: make(chan []change, tasksWaiting+1), // plus one for the current task, so that run never blocks
	}
	err := o.Store.Exemplars.Each(func(group analysis.Hash, e *store.Exemplars) error {
		x := k.sample(group, 0)
		if x == nil {
			return nil
		}
		for r := range e.All() {
			x.began = max(x.began, r.Start)
			x.traces = append(x.traces, r.Trace)
		}
		for _, list := range [][]store.Exemplar{e.Slow, e.Typical, e.Fast} {
			for i := range list {
				x.add(list[i])
			}
		}
		for _, r := range e.Failed {
			x.addFailed(r, k.size)
		}
		return nil
	})
	return k, err
}

// sample returns the sample of group. If there is none, it starts one at time now, or returns nil if there are already
// maxExemplarGroups.
func (k *exemplarStore) sample(group analysis.Hash, now trace.Nanos) *groupSample {
	x := k.groups[group]
	if x == nil && len(k.groups) < maxExemplarGroups {
		x = &groupSample{began: now}
		x.begin(now, k.size)
		k.groups[group] = x
	}
	return x
}

// begin starts an empty sample of the given size at time now. It keeps the failed requests.
func (x *groupSample) begin(now trace.Nanos, size int) {
	x.sample, x.records, x.began = stats.NewStratified[store.Exemplar](size), make(map[uint64][]uint64), now
}

// add adds e and reports whether the sample contains it now.
func (x *groupSample) add(e store.Exemplar) bool {
	records := e.Records
	e.Records = nil
	key := keyOf(&e)
	if !x.sample.Add(key, e.Duration, e) {
		return false
	}
	x.records[key] = slices.Clone(records)
	return true
}

// addFailed adds the failed request e, and drops the oldest failed requests beyond size. It returns false without
// adding e if there are already size requests and the oldest isn't at least failedAge older than e.
func (x *groupSample) addFailed(e store.Exemplar, size int) bool {
	if len(x.failed) >= size {
		if size == 0 || e.Start.Sub(x.failed[0].Start) < failedAge {
			return false
		}
		x.failed = slices.Delete(x.failed, 0, len(x.failed)-size+1)
	}
	records := e.Records
	e.Records = nil
	x.failed = append(x.failed, e)
	if len(records) > 0 {
		x.records[keyOf(&e)] = slices.Clone(records)
	}
	return true
}

// keyOf returns the key of e in samples.
func keyOf(e *store.Exemplar) uint64 { return trace.Mix(e.Trace.Hash(), uint64(e.Root)) }

// observe adds r to the sample of group. It does nothing if group is nil.
func (k *exemplarStore) observe(group *group.Group, r *request) {
	if group == nil || k.size == 0 {
		return
	}
	x := k.sample(group.ID, r.Start)
	if x == nil {
		return
	}
	e := store.Exemplar{
		Trace:    r.Trace,
		Root:     r.Root,
		Start:    r.Start,
		Duration: r.Duration.Nanoseconds(),
		Records:  r.Records,
	}
	x.fresh = x.add(e) || x.fresh
	if r.Failed {
		x.fresh = x.addFailed(e, k.size) || x.fresh
	}
}

// keep schedules exemplars to be kept at the end of the epoch, after the changes of the samples. It drops the oldest
// scheduled keeps beyond maxKeeps.
func (k *exemplarStore) keep(all []keep) {
	k.keeps = append(k.keeps, all...)
	k.keeps = k.keeps[max(0, len(k.keeps)-maxKeeps):]
}

// epoch passes to run the changed samples, the scheduled keeps, and newlyKept, the requests kept for comparisons. It
// deletes the exemplars of unknown groups. If run is too busy, the changes and keeps are retried at the end of the next
// epoch.
func (k *exemplarStore) epoch(now trace.Nanos, newlyKept []engine.Recorded, known func(analysis.Hash) bool) {
	k.resize(now)
	k.retryPostponed()
	var changes []change
	for id, x := range k.groups {
		switch {
		case !known(id):
			delete(k.groups, id)
			changes = append(changes, change{group: id})
		case x.fresh:
			changes = append(changes, x.change(id))
			if now.Sub(x.began) >= sampleAge {
				x.begin(now, k.size)
			}
		}
	}
	if len(changes)+len(k.keeps)+len(newlyKept) == 0 {
		return
	}
	select {
	case k.work <- task{
		changes:   changes,
		keeps:     k.keeps,
		newlyKept: newlyKept,
		until:     k.options.Clock().Add(k.options.Core.Epoch / exemplarShare),
	}:
		k.keeps = nil
	default:
		k.retry(changes)
		k.counts.ExemplarsLate.Add(1)
	}
}

// retryPostponed marks the postponed changes to be retried.
func (k *exemplarStore) retryPostponed() {
	for {
		select {
		case changes := <-k.postponed:
			k.retry(changes)
		default:
			return
		}
	}
}

// retry marks changes to be retried at the end of the next epoch, if they still apply then.
func (k *exemplarStore) retry(changes []change) {
	for _, c := range changes {
		x := k.groups[c.group]
		if x == nil || c.exemplars == nil {
			continue
		}
		x.fresh, x.traces = true, c.before
		for e := range c.exemplars.All() {
			if len(e.Records) > 0 {
				x.records[keyOf(e)] = e.Records
			}
		}
	}
}

// resize restarts all samples if Retention.Exemplars has changed. Stored exemplars are replaced once the new sample has
// requests or, if the new size is 0, deleted at the end of this epoch.
func (k *exemplarStore) resize(now trace.Nanos) {
	size := k.retained.Load().Exemplars
	if size == k.size {
		return
	}
	k.size = size
	for _, x := range k.groups {
		x.begin(now, size)
		x.failed = x.failed[max(0, len(x.failed)-size):]
		x.fresh = size == 0
	}
}

// trim tells run to enforce the limits in r and to delete the journal records before oldest, after earlier tasks, which
// may still need them. It does nothing if run is too busy.
func (k *exemplarStore) trim(oldest uint64, r *cleanup) {
	select {
	case k.work <- task{trim: oldest, cleanup: r}:
	default:
	}
}

// change returns the exemplars of group to store now, and marks x as unchanged. It chooses typical requests only from
// exemplars that are stored or were sampled since the last epoch, because other traces may have left the journal.
func (x *groupSample) change(group analysis.Hash) change {
	list := func(items []stats.Item[store.Exemplar]) (all []store.Exemplar) {
		for _, i := range items {
			e := i.Value
			e.Records = x.records[i.Key]
			all = append(all, e)
		}
		return all
	}
	there := func(key uint64, e store.Exemplar) bool {
		_, seen := x.records[key]
		return seen || slices.Contains(x.traces, e.Trace)
	}
	c := change{group: group, exemplars: &store.Exemplars{
		Slow: list(x.sample.Slowest()), Typical: list(x.sample.Typical(there)), Fast: list(x.sample.Fastest()),
	}}
	for _, e := range x.failed {
		if key := keyOf(&e); there(key, e) {
			e.Records = x.records[key]
			c.exemplars.Failed = append(c.exemplars.Failed, e)
		}
	}
	c.before = x.traces
	x.traces, x.fresh = nil, false
	clear(x.records)
	for e := range c.exemplars.All() {
		x.traces = append(x.traces, e.Trace)
	}
	return c
}

// run processes tasks until k.work is closed.
func (k *exemplarStore) run(ctx context.Context) {
	refs := make(map[trace.ID]int) // number of exemplars that refer to each stored trace
	count := func(e *store.Exemplars) error {
		for r := range e.All() {
			refs[r.Trace]++
		}
		return nil
	}
	err := errors.Join(
		k.options.Store.Exemplars.Each(func(_ analysis.Hash, e *store.Exemplars) error { return count(e) }),
		k.options.Store.Kept.Each(func(_ search.Subject, _ analysis.Hash, e *store.Exemplars) error {
			return count(e)
		}),
	)
	for t := range k.work {
		err = errors.Join(err, k.applyAll(t, refs))
		for _, x := range t.keeps {
			err = errors.Join(err, k.keepExemplars(x, refs))
		}
		err = errors.Join(err, k.copyWhole(t))
		if err != nil {
			k.options.Log.ErrorContext(ctx, "some exemplars could not be stored", slog.Any("error", err))
			err = nil
		}
		if t.cleanup != nil {
			k.logEnforceError(ctx, k.enforce(ctx, t.cleanup, refs))
		}
		if err := k.options.Journal.Trim(ctx, t.trim); err != nil {
			k.options.Log.ErrorContext(ctx, "journal could not be trimmed", slog.Any("error", err))
		}
	}
}

// applyAll applies the changes of t until its deadline and postpones the others. It always applies deletions.
func (k *exemplarStore) applyAll(t task, refs map[trace.ID]int) (err error) {
	var postponed []change
	for i := range t.changes {
		if c := &t.changes[i]; c.exemplars != nil && k.options.Clock().After(t.until) {
			postponed = append(postponed, *c)
		} else {
			err = errors.Join(err, k.apply(c, refs))
		}
	}
	if postponed != nil {
		k.postponed <- postponed
	}
	return err
}

// apply stores the new exemplars of c.group with their traces, then deletes traces that no exemplar refers to. It
// leaves out exemplars whose traces are no longer in the journal.
func (k *exemplarStore) apply(c *change, refs map[trace.ID]int) error {
	before, err := k.options.Store.Exemplars.Of(c.group)
	if err != nil {
		return err
	}
	if c.exemplars == nil {
		err = k.options.Store.Exemplars.Delete(c.group)
		c.exemplars = &store.Exemplars{}
	} else {
		for _, list := range c.exemplars.Lists() {
			*list = slices.DeleteFunc(*list, func(e store.Exemplar) bool {
				if refs[e.Trace] == 0 {
					kept, failed := k.copyTrace(&e)
					err = errors.Join(err, failed)
					if !kept {
						if len(e.Records) > 0 { // otherwise enforce has deleted the trace
							k.counts.ExemplarsLate.Add(1)
						}
						return true
					}
				}
				refs[e.Trace]++
				return false
			})
		}
		err = errors.Join(err, k.options.Store.Exemplars.Put(c.group, c.exemplars))
	}
	for e := range before.All() {
		if refs[e.Trace]--; refs[e.Trace] <= 0 {
			delete(refs, e.Trace)
			err = errors.Join(err, k.options.Store.Traces.Delete(e.Trace))
		}
	}
	return err
}

// copyTrace copies the trace of e from the journal to the store. It returns false if e has no records, or if some of
// them are no longer in the journal.
func (k *exemplarStore) copyTrace(e *store.Exemplar) (copied bool, err error) {
	request, err := recordedTrace(e.Trace, e.Records, func(seq uint64) ([]byte, error) {
		data, err := readRecord(k.options.Journal, seq, k.record)
		if data != nil && cap(data) <= maxReusedRecord {
			k.record = data
		}
		return data, err
	})
	if len(request) == 0 || err != nil {
		return false, err
	}
	return true, k.options.Store.Traces.Put(e.Trace, request)
}
