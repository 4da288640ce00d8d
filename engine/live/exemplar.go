package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// exemplarStore keeps whole traces of each group for people to look at. What it would keep is decided by the grouper, request by request; what is
// kept follows at the end of every epoch, from the journal, beside the grouper's work.
type exemplarStore struct {
	options  *Options
	retained *atomic.Pointer[Retention]
	counts   *Counts

	size   int // of a sample, see Retention.Exemplars
	groups map[analysis.Hash]*groupSample
	work   chan task
	undone chan []change // what there was no time for; from run, to epoch
	record []byte        // of run: room for one
}

// groupSample is the sample of one group.
type groupSample struct {
	sample  stats.Stratified[store.Exemplar] // without Records
	records map[uint64][]uint64              // of what came to the sample since the last epoch; by key
	began   trace.Nanos
	fresh   bool // it changed since the last epoch
	kept    []trace.ID
}

// change is what became of one group's exemplars.
type change struct {
	group     analysis.Hash
	exemplars *store.Exemplars // nil: forgotten
	was       []trace.ID       // what was to be kept before
}

// task is what is to be done beside the grouper's work.
type task struct {
	changes []change
	until   time.Time // that changes may take
	cleanup *cleanup  // made after that; nil: none
	trim    uint64    // the first record of the journal that is needed still, after that; 0: as before
}

const (
	// keptGroups bounds the groups that exemplars are kept of.
	keptGroups = 4096
	// exemplarSpan is how long a sample grows before it begins anew: what was slow yesterday is not what is slow.
	exemplarSpan = time.Hour
	// tasksWaiting bounds what is yet to be done: what became of an epoch, and the journal's trimming. What finds no room is tried again when
	// the next epoch ends.
	tasksWaiting = 2
	// keepingShare bounds the part of the time, one in so much, that exemplars take: many are new while samples are small.
	keepingShare = 4
	// keptRecord is how many bytes room for a record may have to be used again.
	keptRecord = 4 << 20
)

// newExemplarStore returns an exemplarStore that continues with the stored exemplars.
func newExemplarStore(o *Options, retained *atomic.Pointer[Retention], counts *Counts) (*exemplarStore, error) {
	k := &exemplarStore{
		options: o, retained: retained, counts: counts, size: o.Retention.Exemplars, groups: make(map[analysis.Hash]*groupSample), work: make(chan task, tasksWaiting),
		undone: make(chan []change, tasksWaiting+1), // and the one that is carried out: run never waits
	}
	err := o.Store.EachExemplars(func(group analysis.Hash, e *store.Exemplars) error {
		x := k.sample(group, 0)
		if x == nil {
			return nil
		}
		for r := range e.All() {
			x.began = max(x.began, r.Start)
			x.kept = append(x.kept, r.Trace)
			x.add(*r)
		}
		return nil
	})
	return k, err
}

// sample returns the sample of a group; nil where there are too many.
func (k *exemplarStore) sample(group analysis.Hash, now trace.Nanos) *groupSample {
	x := k.groups[group]
	if x == nil && len(k.groups) < keptGroups {
		x = &groupSample{began: now}
		x.begin(now, k.size)
		k.groups[group] = x
	}
	return x
}

// begin empties the sample.
func (x *groupSample) begin(now trace.Nanos, size int) {
	x.sample, x.records, x.began = stats.NewStratified[store.Exemplar](size), make(map[uint64][]uint64), now
}

// add adds a request, and reports whether it is kept for now. Its records must be its own then.
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

// keyOf returns what tells a request from the others of a sample.
func keyOf(e *store.Exemplar) uint64 { return trace.Mix(e.Trace.Hash(), uint64(e.Root)) }

// observe offers a request to the sample of a group; nil: of none.
func (k *exemplarStore) observe(group *group.Group, r *request) {
	if group == nil || k.size == 0 {
		return
	}
	x := k.sample(group.ID, r.Start)
	if x == nil {
		return
	}
	e := store.Exemplar{Trace: r.Trace, Root: r.Root, Start: r.Start, Duration: r.Duration.Nanoseconds(), Records: r.records}
	x.fresh = x.add(e) || x.fresh
}

// epoch hands on what changed. Groups that known does not know are forgotten.
func (k *exemplarStore) epoch(now trace.Nanos, known func(analysis.Hash) bool) {
	k.resize(now)
	k.redo()
	var changes []change
	for id, x := range k.groups {
		switch {
		case !known(id):
			delete(k.groups, id)
			changes = append(changes, change{group: id})
		case x.fresh:
			changes = append(changes, x.change(id))
			if now.Sub(x.began) >= exemplarSpan {
				x.begin(now, k.size)
			}
		}
	}
	if len(changes) == 0 {
		return
	}
	select {
	case k.work <- task{changes: changes, until: k.options.Clock().Add(k.options.Core.Epoch / keepingShare)}:
	default:
		k.again(changes)
		k.counts.ExemplarsLate.Add(1)
	}
}

// redo takes back what there was no time for.
func (k *exemplarStore) redo() {
	for {
		select {
		case changes := <-k.undone:
			k.again(changes)
		default:
			return
		}
	}
}

// again has changes tried another time, as far as they are still wanted then.
func (k *exemplarStore) again(changes []change) {
	for _, c := range changes {
		x := k.groups[c.group]
		if x == nil || c.exemplars == nil {
			continue
		}
		x.fresh, x.kept = true, c.was
		for e := range c.exemplars.All() {
			if len(e.Records) > 0 {
				x.records[keyOf(e)] = e.Records
			}
		}
	}
}

// resize begins all samples anew when another size is asked for. What is kept goes when a new sample has something in its place, or at once if
// nothing is to be kept.
func (k *exemplarStore) resize(now trace.Nanos) {
	size := k.retained.Load().Exemplars
	if size == k.size {
		return
	}
	k.size = size
	for _, x := range k.groups {
		x.begin(now, size)
		x.fresh = size == 0
	}
}

// trim has the journal forgotten up to a record, and room made, once what was handed on before is done: that may need it.
func (k *exemplarStore) trim(oldest uint64, r *cleanup) {
	select {
	case k.work <- task{trim: oldest, cleanup: r}:
	default:
	}
}

// change returns what is to be kept now. Typical requests are chosen of those that are kept, or were seen since the last epoch: what the
// journal had of others may be gone.
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
		return seen || slices.Contains(x.kept, e.Trace)
	}
	c := change{group: group, exemplars: &store.Exemplars{
		Slow: list(x.sample.Slowest()), Typical: list(x.sample.Typical(there)), Fast: list(x.sample.Fastest()),
	}}
	c.was = x.kept
	x.kept, x.fresh = nil, false
	clear(x.records)
	for e := range c.exemplars.All() {
		x.kept = append(x.kept, e.Trace)
	}
	return c
}

// run carries out tasks until there are no more.
func (k *exemplarStore) run(ctx context.Context) {
	refs := make(map[trace.ID]int) // exemplars that are in a trace which is kept
	err := k.options.Store.EachExemplars(func(_ analysis.Hash, e *store.Exemplars) error {
		for r := range e.All() {
			refs[r.Trace]++
		}
		return nil
	})
	for t := range k.work {
		err = errors.Join(err, k.carryOutAll(t, refs))
		if err != nil {
			k.options.Log.ErrorContext(ctx, "some exemplars are not kept", slog.Any("error", err))
			err = nil
		}
		if t.cleanup != nil {
			k.logRoom(ctx, k.makeRoom(ctx, t.cleanup, refs))
		}
		if err := k.options.Journal.Trim(ctx, t.trim); err != nil {
			k.options.Log.ErrorContext(ctx, "the journal keeps what is not needed any more", slog.Any("error", err))
		}
	}
}

// carryOutAll carries out the changes of a task, as far as it has time. The others are undone.
func (k *exemplarStore) carryOutAll(t task, refs map[trace.ID]int) (err error) {
	var undone []change
	for i := range t.changes {
		if c := &t.changes[i]; c.exemplars != nil && k.options.Clock().After(t.until) {
			undone = append(undone, *c)
		} else {
			err = errors.Join(err, k.carryOut(c, refs))
		}
	}
	if undone != nil {
		k.undone <- undone
	}
	return err
}

// carryOut keeps what is new, then forgets what is gone.
func (k *exemplarStore) carryOut(c *change, refs map[trace.ID]int) error {
	before, err := k.options.Store.Exemplars(c.group)
	if err != nil {
		return err
	}
	if c.exemplars == nil {
		err = k.options.Store.DeleteExemplars(c.group)
		c.exemplars = &store.Exemplars{}
	} else {
		for _, list := range []*[]store.Exemplar{&c.exemplars.Slow, &c.exemplars.Typical, &c.exemplars.Fast} {
			*list = slices.DeleteFunc(*list, func(e store.Exemplar) bool {
				if refs[e.Trace] == 0 {
					kept, failed := k.keep(&e)
					err = errors.Join(err, failed)
					if !kept {
						if len(e.Records) > 0 { // it was not forgotten to make room
							k.counts.ExemplarsLate.Add(1)
						}
						return true
					}
				}
				refs[e.Trace]++
				return false
			})
		}
		err = errors.Join(err, k.options.Store.PutExemplars(c.group, c.exemplars))
	}
	for e := range before.All() {
		if refs[e.Trace]--; refs[e.Trace] <= 0 {
			delete(refs, e.Trace)
			err = errors.Join(err, k.options.Store.DeleteTrace(e.Trace))
		}
	}
	return err
}

// keep copies a trace from the journal, and reports whether the journal had all of it still.
func (k *exemplarStore) keep(e *store.Exemplar) (kept bool, err error) {
	var request []byte
	for _, seq := range e.Records {
		runtime.Gosched() // requests that are to be taken come first
		r, err := k.options.Journal.Get(seq, k.record)
		if err != nil {
			return false, nil //nolint:nilerr // it was trimmed meanwhile
		}
		if cap(r.Data) <= keptRecord {
			k.record = r.Data
		}
		if r.Kind == journal.JSON {
			if r.Data, err = protobufOf(r.Data); err != nil {
				return false, err
			}
		}
		if request, err = otlp.AppendTrace(request, r.Data, e.Trace); err != nil {
			return false, err
		}
	}
	if len(request) == 0 {
		return false, nil
	}
	return true, k.options.Store.PutTrace(e.Trace, request)
}

// protobufOf converts an export request. It was decoded before, so that it is not nested too deep for this.
func protobufOf(json []byte) ([]byte, error) {
	traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(json)
	if err != nil {
		return nil, fmt.Errorf("convert a request from JSON: %w", err)
	}
	return (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
}
