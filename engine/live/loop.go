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

// grouper is the only owner of the engine's core. It has one goroutine.
type grouper struct {
	options   *Options
	core      *engine.Core
	table     *trace.Table // the core's
	exemplars *exemplarStore
	from      *observations
	asked     <-chan question
	retained  *atomic.Pointer[Retention]
	counts    *Counts

	marked  []*observed   // by shard: the mark that it has reached; nil: not yet
	waiting int           // shards that have not reached it
	later   []*observed   // from shards that are ahead of others
	saved   trace.Nanos   // when the last checkpoint was taken
	saving  time.Duration // how long that took
	trimmed trace.Nanos   // when exemplars beyond Retention.Age were last looked for
	closed  []store.Closed
}

// run takes what shards observed until there is no more.
func (g *grouper) run(ctx context.Context) {
	var keeping sync.WaitGroup
	keeping.Go(func() { g.exemplars.run(ctx) })
	defer keeping.Wait()
	defer close(g.exemplars.work)
	for {
		select {
		case o, more := <-g.from.waiting:
			if !more {
				return
			}
			g.take(o)
		case q := <-g.asked:
			q.read(g.core)
			close(q.answered)
		}
	}
}

// take takes what a shard observed, or keeps it for later where the shard is ahead of a mark.
func (g *grouper) take(o *observed) {
	switch {
	case o.names != nil:
		g.table.Merge(o.names)
		return
	case g.marked[o.shard] != nil:
		g.later = append(g.later, o)
		return
	}
	for i := range o.requests[:o.n] {
		r := &o.requests[i]
		requestType, group := g.core.Observe(&r.Observation, &r.simulation)
		g.exemplars.observe(requestType, r)
		g.exemplars.observe(group, r)
	}
	if o.mark == nil {
		g.from.free.Put(o)
		return
	}
	g.marked[o.shard] = o
	if g.waiting--; g.waiting == 0 {
		g.reached()
	}
}

// reached is called when all shards have come to a mark.
func (g *grouper) reached() {
	m := g.marked[0].mark
	oldest := m.seq + 1
	for _, o := range g.marked {
		oldest = min(oldest, o.oldest)
		if len(o.closed) > 0 {
			g.closed = append(g.closed, store.Closed{At: m.at, Hashes: o.closed})
		}
		g.core.ObserveSpans(o.spans)
	}
	g.core.ObserveVersions(m.versions)
	switch {
	case m.change != nil:
		m.change.make(g.core, m.at)
	case m.epoch:
		g.epoch(m.at)
		if m.at.Sub(g.saved) >= max(g.options.Checkpoint, savingShare*g.saving) {
			g.checkpoint(m, oldest)
		}
	case m.reached != nil:
		close(m.reached)
	case g.options.Spent(g.options.Clock()):
		g.options.Log.Warn("no checkpoint was taken as the disk is full: a restart reads more of the journal again")
	default:
		g.checkpoint(m, oldest)
	}
	clear(g.marked)
	g.waiting = len(g.marked)
	later := g.later
	g.later = nil
	for _, o := range later {
		g.take(o)
	}
}

// epoch ends an epoch.
func (g *grouper) epoch(at trace.Nanos) {
	began := g.options.Clock()
	e := Ended{At: at, Before: *g.core.State()}
	e.Decisions = g.core.Epoch(at)
	g.counts.Decided.Store(int64(g.options.Clock().Sub(began)))
	if len(e.Decisions) > 0 {
		if err := g.options.Store.PutDecisions(at, e.Decisions); err != nil {
			g.options.Log.Error("decisions are not kept", slog.Any("error", err))
		}
	}
	g.exemplars.epoch(at, func(id analysis.Hash) bool { return g.core.Grouper().Group(id) != nil })
	g.counts.Epochs.Add(1)
	if g.options.Epoch != nil {
		g.options.Epoch(g.core, e)
	}
}

// savingShare bounds the part of the time, one in so much, that checkpoints take: large states are saved less often.
const savingShare = 20

// youngEnough returns the first record from oldest on that is not too old to be kept. It is none behind the mark: those are in no checkpoint.
func (g *grouper) youngEnough(m *mark, oldest uint64) uint64 {
	if g.options.MaxJournalAge == 0 {
		return oldest
	}
	seq, err := g.options.Journal.Since(m.at.Add(-g.options.MaxJournalAge), oldest)
	if err != nil {
		g.options.Log.Error("the journal is kept though it may be too old", slog.Any("error", err))
	}
	return min(seq, m.seq+1)
}

// checkpoint saves the state as of a mark. If that fails, what was saved last still holds, and the journal everything since.
func (g *grouper) checkpoint(m *mark, oldest uint64) {
	began := g.options.Clock()
	defer func() { g.saving = g.options.Clock().Sub(began) }()
	oldest = g.youngEnough(m, oldest)
	c := &store.Checkpoint{Seq: m.seq, At: m.at, Oldest: oldest, State: g.core.AppendState(nil), Closed: g.closed}
	err := g.options.Store.Save(c, m.at.Add(-2*g.options.Assembly.Remember))
	if err == nil {
		g.saved, g.closed = m.at, nil
		g.exemplars.trim(oldest, g.retention(m.at))
	}
	if age := g.retained.Load().Age; age > 0 && err == nil {
		err = g.options.Store.DeleteDecisionsBefore(m.at.Add(-age))
	}
	if err != nil {
		g.counts.Unsaved.Add(1)
		g.options.Log.Error("no checkpoint was taken: a restart reads more of the journal again", slog.Any("error", err))
		return
	}
	g.counts.Checkpoints.Add(1)
}

// Flush returns when everything that was taken before the call, and everything that is due at the present time, has reached the core. It is
// safe for concurrent use.
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

// question is something that somebody wants to read of the core.
type question struct {
	read     func(*engine.Core)
	answered chan struct{}
}

// errStopped is returned to whoever asks when nobody is left to answer.
var errStopped = errors.New("the service has stopped")

// Ask calls read with the core, while nothing changes it, and returns when it did. Read must be quick and keep nothing that the core may
// change.
func (s *Service) Ask(ctx context.Context, read func(*engine.Core)) error {
	q := question{read, make(chan struct{})}
	select {
	case s.asked <- q:
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
