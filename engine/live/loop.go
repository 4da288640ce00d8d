package live

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// loop is the core loop. Only its single goroutine uses the core.
type loop struct {
	options   *Options
	core      *engine.Core
	table     *trace.Table // of the core
	exemplars *exemplarStore
	witnesses *witnesses
	ticks     *ticks
	past      *pastStore
	outputs   *shardOutputs
	queries   <-chan query
	retained  *atomic.Pointer[Retention]
	counts    *Counts

	atBarrier []*shardOutput // by shard: the output that ends with the current barrier; nil if not yet received
	missing   int            // number of shards that haven't reached the barrier
	ahead     []*shardOutput // outputs of shards that are past the barrier
	saved     trace.Nanos    // time of the last checkpoint
	took      time.Duration  // duration of the last checkpoint
	saving    chan *saving   // receives the checkpoint being stored; nil if no checkpoint is being stored
	stored    chan struct{}  // closed once the windows of all ended periods are stored; nil during the first period
	trimmed   trace.Nanos    // when exemplars were last deleted by age
	closed    []store.Closed
	cramped   bool // the last check found too little disk space for a checkpoint
	held      bool // the last call to Options.Epoch failed, so no checkpoint may be stored
}

// run processes the shards' outputs until their channel is closed, and answers queries.
func (l *loop) run(ctx context.Context) {
	var keeping sync.WaitGroup
	keeping.Go(func() { l.exemplars.run(ctx) })
	keeping.Go(func() { l.past.run(ctx) })
	defer keeping.Wait()
	defer close(l.exemplars.work)
	defer close(l.past.work)
	for {
		select {
		case o, more := <-l.outputs.ready:
			if !more {
				l.finish()
				wait(l.stored)
				return
			}
			l.receive(o)
		case s := <-l.saving:
			l.finished(s)
		case q := <-l.queries:
			q.read(l.core.View())
			close(q.answered)
		}
	}
}

// receive processes o. If o's shard has passed a barrier that other shards haven't reached yet, receive keeps o for
// later.
func (l *loop) receive(o *shardOutput) {
	switch {
	case o.names != nil:
		l.table.Merge(o.names)
		return
	case l.atBarrier[o.shard] != nil:
		l.ahead = append(l.ahead, o)
		return
	}
	learned := l.core.View().Progress.Learned()
	for i := range o.requests[:o.n] {
		r := &o.requests[i]
		requestType, group := l.core.Observe(&r.Observation, &r.simulation)
		l.exemplars.observe(requestType, r)
		l.exemplars.observe(group, r)
		if learned {
			l.ticks.observe(requestType, group, &r.Observation)
		}
		if requestType != nil {
			l.witnesses.observe(requestType.ID, r)
		}
	}
	if o.barrier == nil {
		l.outputs.free.Put(o)
		return
	}
	l.atBarrier[o.shard] = o
	if l.missing--; l.missing == 0 {
		l.pass()
	}
}

// pass processes a barrier once all shards have reached it.
func (l *loop) pass() {
	m := l.atBarrier[0].barrier
	oldest := m.seq + 1
	for _, o := range l.atBarrier {
		oldest = min(oldest, o.oldest)
		if len(o.closed) > 0 {
			l.closed = append(l.closed, store.Closed{At: m.at, Hashes: o.closed})
		}
		l.core.ObserveSpans(o.spans)
		l.core.ObserveSites(o.sites)
	}
	l.core.ObserveVersions(m.versions)
	switch {
	case m.change != nil:
		m.change.apply(l.core, m.at)
		if l.options.Shared != nil && (m.change.Sent != nil || m.change.File != nil) {
			l.options.Shared(&m.change.Change)
		}
	case m.epoch:
		l.epoch(m.at)
		if m.renews {
			l.renewNames(m.at)
		}
		if l.saving == nil && m.at.Sub(l.saved) >= max(l.options.Checkpoint, savingShare*l.took) && l.savable() {
			l.checkpoint(m, oldest)
		}
	case m.reached != nil:
		close(m.reached)
	default: // the service is stopping
		l.finish()
		if l.savable() {
			l.checkpoint(m, oldest)
			l.finish()
		}
	}
	clear(l.atBarrier)
	l.missing = len(l.atBarrier)
	ahead := l.ahead
	l.ahead = nil
	for _, o := range ahead {
		l.receive(o)
	}
}

// epoch ends an epoch at time `at`, and stores its decisions and exemplars.
func (l *loop) epoch(at trace.Nanos) {
	l.keepPeriod(at)
	l.ticks.now = at
	began, before := l.options.Clock(), l.core.View()
	last, e := before.Ended, Ended{At: at, Before: before.Problems.Open()}
	l.counts.deciding.Store(began.UnixNano())
	e.Decisions = l.core.Epoch(at)
	l.counts.Decided.Store(int64(l.options.Clock().Sub(began)))
	l.counts.ended.Store(int64(at))
	l.counts.deciding.Store(0)
	if len(e.Decisions) > 0 {
		if err := l.options.Store.Decisions.Put(at, e.Decisions); err != nil {
			l.options.Log.Error("decisions could not be stored", slog.Any("error", err))
		}
	}
	newlyKept, view := l.core.NewlyKept(), l.core.View()
	l.exemplars.keep(append(keeps(view, e.Before, last, at), l.witnesses.keeps(view.Searches.State())...))
	l.exemplars.epoch(at, newlyKept, func(id analysis.Hash) bool { return view.Groups.Group(id) != nil })
	l.counts.Epochs.Add(1)
	if l.options.Epoch != nil {
		l.report(view, e)
	}
}

// report calls Options.Epoch for the epoch e. It sets l.held if the call failed, and clears it otherwise.
func (l *loop) report(view *engine.View, e Ended) {
	err := l.options.Epoch(view, e)
	if err != nil && !l.held {
		l.options.Log.Error("the results of an epoch could not be stored: no checkpoint is stored until they are",
			slog.Any("error", err))
	}
	l.held = err != nil
}

// savingShare limits the time spent on checkpoints to 1/savingShare of all time, so that large states are saved less
// often.
const savingShare = 20

// youngEnough returns the sequence number of the first record, from oldest on, that is within the maximum age of the
// journal. Records after m always count as young enough, because no checkpoint covers them.
func (l *loop) youngEnough(m *barrier, oldest uint64) uint64 {
	if l.options.MaxJournalAge == 0 {
		return oldest
	}
	seq, err := l.options.Journal.Since(m.at.Add(-l.options.MaxJournalAge), oldest)
	if err != nil {
		l.options.Log.Error("the age of journal records could not be determined; none are deleted",
			slog.Any("error", err))
	}
	return min(seq, m.seq+1)
}

// savable reports whether a checkpoint may be stored now.
func (l *loop) savable() bool { return !l.held && l.fits() }

// saving is a checkpoint being stored.
type saving struct {
	*store.Checkpoint
	began   time.Time
	cleanup *cleanup
	err     error
}

// checkpoint starts to save the state at m. It blocks the loop only while the statistics are encoded. Another goroutine
// adds their names and stores the state.
func (l *loop) checkpoint(m *barrier, oldest uint64) {
	s := &saving{began: l.options.Clock(), cleanup: l.retention(m.at)}
	s.Checkpoint = &store.Checkpoint{Seq: m.seq, At: m.at, Oldest: l.youngEnough(m, oldest), Closed: l.closed}
	state := l.core.Snapshot()
	l.closed = nil
	l.counts.Encoded.Store(int64(l.options.Clock().Sub(s.began)))
	done := make(chan *saving, 1)
	l.saving = done
	stored, ticks := l.stored, l.ticks.take()
	go func() {
		wait(stored) // the checkpoint makes the windows durable
		l.keepTicks(ticks)
		s.State = state.Encode()
		s.err = l.options.Store.Checkpoints.Save(s.Checkpoint, m.at.Add(-2*l.options.Assembly.Remember))
		done <- s
	}()
}

// finish waits until the checkpoint being stored, if any, is durable.
func (l *loop) finish() {
	if l.saving != nil {
		l.finished(<-l.saving)
	}
}

// finished completes the checkpoint s. If s failed, the previous checkpoint and all records after it remain valid.
func (l *loop) finished(s *saving) {
	l.saving = nil
	l.core.Release()
	l.took = l.options.Clock().Sub(s.began)
	err := s.err
	if err == nil {
		l.saved = s.At
		l.exemplars.trim(s.Oldest, s.cleanup)
		if s.cleanup.past != nil {
			l.past.trim(*s.cleanup.past)
		}
	} else {
		l.closed = append(s.Closed, l.closed...)
	}
	if age := l.retained.Load().Age; age > 0 && err == nil {
		err = l.options.Store.Decisions.DeleteBefore(s.At.Add(-age))
	}
	if err != nil {
		l.counts.Unsaved.Add(1)
		l.options.Log.Error("checkpoint failed; a restart will read more of the journal", slog.Any("error", err))
		return
	}
	l.counts.Checkpoints.Add(1)
}

// Flush returns once every request taken before the call, and every trace and epoch that is due, has reached the core.
// It returns an error if ctx ends or the service stops first. It is safe for concurrent use.
func (s *Service) Flush(ctx context.Context) error {
	reached := make(chan struct{})
	select {
	case s.flushes <- reached:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.stopped:
		return errStopped
	}
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return errStopped
	}
}

// query is a function that the core loop calls to read the core.
type query struct {
	read     func(*engine.View)
	answered chan struct{} // closed when read has returned
}

// errStopped is returned by Ask and Flush once the service has stopped.
var errStopped = errors.New("the service has stopped")

// Ask calls read with a view of the core and returns when read has returned. The core doesn't change in the meantime.
// read must return quickly and must not retain the view. Ask returns an error if ctx ends or the service stops first.
// It is safe for concurrent use.
func (s *Service) Ask(ctx context.Context, read func(*engine.View)) error {
	q := query{read, make(chan struct{})}
	select {
	case s.queries <- q:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return errStopped
	}
	select {
	case <-q.answered:
		return nil
	case <-s.done:
		return errStopped
	}
}
