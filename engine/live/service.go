// Package live runs the service: requests come in, become durable, traces close, statistics grow, epochs end in decisions.
//
//		Take ─(1)─▶ sequencer ─(2)─▶ shards ─(3)─▶ grouper ─(4)─▶ decisions
//
//	 1. Take decodes a request and waits. The sequencer gives what waits its numbers and its time of arrival, appends it to the journal in
//	    one commit, and lets the callers go.
//	 2. Each shard owns the open traces whose IDs hash to it. What closes is reduced to observations on the spot.
//	 3. The grouper owns all statistics ([engine.Core]). An epoch ends for it when it ended on every shard.
//	 4. They are stored, and told to whoever listens. Who wants to read what the grouper owns asks it ([Service.Ask]).
//
// All that happens is a function of the journal: numbers, times of arrival, ends of epochs, and whatever else decisions depend on
// ([Service.Change]) are in it. So a checkpoint is the state
// after one of its records, and what came later is simply read again; one shard or eight, with or without a restart, give the same
// statistics and decisions.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options choose how a [Service] works.
type Options struct {
	Core       engine.Options
	Assembly   assemble.OnlineOptions // Memory is for all shards together
	Keys       *ingest.Keys           // attributes that are kept; nil: those of the protocol
	Shards     int                    // 0: one per core
	InFlight   int64                  // bytes of requests that were let in and are not yet assembled
	Checkpoint time.Duration          // between two checkpoints; they are taken when an epoch ends
	Retention  Retention
	Journal    *journal.Journal
	// MaxJournalAge is how long records are kept at most that are older than a checkpoint, though an open trace had spans in them. 0: as long as
	// one has.
	MaxJournalAge time.Duration
	MaxJournal    uint64 // bytes of the journal beyond which nothing is taken; 0: no bound
	Store         *store.Store
	Full          func(now time.Time) bool // reports whether the disk has no room for more requests; nil: it has
	Spent         func(now time.Time) bool // reports whether it has none for anything: no epoch ends; nil: it has
	Clock         func() time.Time         // nil: time.Now
	Log           *slog.Logger
	// Epoch is called by the grouper when an epoch ended, with the core, which it may read. It must be quick, and keep nothing of the core.
	// Nil: nobody is told.
	Epoch func(core *engine.Core, e Ended)

	tick time.Duration // how often traces are looked at that nothing comes for; 0: tick
}

// Retention says what of the past is kept.
type Retention struct {
	Age       time.Duration // of decisions and exemplars; 0: for ever. That of statistics is in the settings of the core
	Bytes     int64         // on disk of all that the store holds: beyond, the oldest decisions and exemplars go; 0: no bound
	Exemplars int           // traces of each group: so many of the slowest, the typical and the fastest; 0: none
}

// Ended is what became of an epoch.
type Ended struct {
	At        trace.Nanos
	Before    search.State // of the search, when the epoch began
	Decisions []search.Decision
}

// DefaultOptions returns the options of design, without the places where things are kept.
func DefaultOptions() Options {
	return Options{
		Core: engine.DefaultOptions(), Assembly: assemble.DefaultOnlineOptions(), InFlight: 256 << 20, Checkpoint: 10 * time.Second,
		Retention: Retention{Exemplars: 3},
	}
}

// Service is the running engine. Open it, Run it; when Run returns, it has ended. Journal and Store belong to the caller.
//
// Its methods are safe for concurrent use. They reach the sequencer, the shards and the grouper, which own their state, through channels only.
type Service struct {
	options   *Options
	intake    *intake
	arrivals  chan *delivery       // to the sequencer
	changes   chan *changing       // to the sequencer
	flushes   chan chan<- struct{} // to the sequencer
	inboxes   []chan message       // of the shards
	observed  *observations        // to the grouper
	asked     chan question        // to the grouper
	sequencer *sequencer           // for Run
	shards    []*shard             // for Run
	grouper   *grouper             // for Run

	retained atomic.Pointer[Retention]
	ready    atomic.Bool   // requests are taken
	overfull atomic.Bool   // the journal is beyond its bound
	started  chan struct{} // closed when requests are taken for the first time
	stopped  chan struct{} // closed when nothing that waits in arrivals will be taken
	done     chan struct{} // closed when the grouper has stopped
	restored uint64        // the oldest record that the restored checkpoint needs; 0: none was restored
	counts   Counts
}

// Bounds of channels: each holds a moment's work. What they hold is bounded in bytes by Options.InFlight.
const (
	arrivalsWaiting  = 1024
	deliveriesPerSh  = 1024
	observedWaiting  = 256
	questionsWaiting = 16
	changesWaiting   = 16
)

// Open returns a Service in the state of the last checkpoint. It reads the journal, and takes requests, from Run on.
func Open(o Options) (*Service, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.tick = cmp.Or(o.tick, tick)
	never := func(time.Time) bool { return false }
	if o.Full == nil {
		o.Full = never
	}
	if o.Spent == nil {
		o.Spent = never
	}
	if o.Keys == nil {
		keys, err := ingest.NewKeys()
		if err != nil {
			return nil, err
		}
		o.Keys = keys
	}
	if o.Shards <= 0 {
		o.Shards = runtime.GOMAXPROCS(0)
	}
	s := &Service{
		options: &o, intake: newIntake(&o),
		arrivals: make(chan *delivery, arrivalsWaiting),
		changes:  make(chan *changing, changesWaiting),
		flushes:  make(chan chan<- struct{}),
		observed: &observations{waiting: make(chan *observed, observedWaiting)},
		asked:    make(chan question, questionsWaiting),
		started:  make(chan struct{}), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	s.retained.Store(&o.Retention)
	s.counts.open = make([]atomic.Pointer[assemble.OnlineStats], o.Shards)
	if err := s.assemble(); err != nil {
		return nil, err
	}
	return s, s.restore()
}

// assemble makes the parts and the channels between them.
func (s *Service) assemble() error {
	o := s.options
	exemplars, err := newExemplarStore(o, &s.retained, &s.counts)
	if err != nil {
		return err
	}
	table := &trace.Table{}
	s.grouper = &grouper{
		options: o, core: engine.NewCore(table, o.Core), table: table, exemplars: exemplars, from: s.observed, asked: s.asked, retained: &s.retained,
		counts: &s.counts, marked: make([]*observed, o.Shards), waiting: o.Shards,
	}
	s.sequencer = &sequencer{
		options: o, intake: s.intake, arrivals: s.arrivals, changes: s.changes, flushes: s.flushes, names: s.observed.waiting, overfull: &s.overfull, counts: &s.counts,
	}
	for i := range o.Shards {
		in := make(chan message, deliveriesPerSh)
		s.inboxes = append(s.inboxes, in)
		s.sequencer.shards = append(s.sequencer.shards, in)
		s.shards = append(s.shards, newShard(i, in, o, s.intake, s.observed, &s.counts))
	}
	return nil
}

// errUnreadable says what to do about a checkpoint that cannot be restored. The journal alone does not replace it: what a checkpoint holds is trimmed.
var errUnreadable = errors.New("another build of sibyl wrote it, or it is damaged: go on with the build that wrote it, or move the folder store out of " +
	"the data directory to begin anew with what the journal still holds")

// errOldStrategy says what to do about a checkpoint or a journal with a strategy that this version does not have.
var errOldStrategy = errors.New("an earlier version of sibyl wrote it with another strategy: start that version once more with one that both have, " +
	"stop it, and start this one; or move the folders store and journal out of the data directory to begin anew")

// restore continues with the last checkpoint, if there is one.
func (s *Service) restore() error {
	c, err := s.options.Store.Load()
	if err != nil || c == nil {
		return err
	}
	core := s.grouper.core
	if err := core.Restore(c.State); err != nil {
		if _, ok := errors.AsType[*engine.UnknownStrategyError](err); ok {
			return fmt.Errorf("restore the checkpoint: %w: %w", errOldStrategy, err)
		}
		return fmt.Errorf("restore the checkpoint: %w: %w", errUnreadable, err)
	}
	for _, x := range c.Closed {
		for _, sh := range s.shards {
			sh.open.Recall(x.At, x.Hashes)
		}
	}
	s.options.Journal.Continue(c.Seq)
	restored := core.Options()
	settings := restored.Settings()
	q := s.sequencer
	q.settings, q.known, q.clock.now = (&engine.Change{Settings: &settings}).Append(nil), c.Seq, c.At
	s.restored = c.Oldest
	return nil
}

// Run reads the records of the journal since the checkpoint and then takes requests, until ctx is done. Then it finishes the requests that
// were let in, and takes a checkpoint. Traces that are open remain open across the restart.
func (s *Service) Run(ctx context.Context) error {
	var shards, grouper sync.WaitGroup
	for _, sh := range s.shards {
		shards.Go(sh.run)
	}
	grouper.Go(func() {
		defer close(s.done)
		s.grouper.run(context.WithoutCancel(ctx)) // it finishes what was let in
	})
	err := s.sequencer.recover(ctx, s.restored)
	if err == nil {
		err = s.sequencer.settle()
	}
	if err == nil {
		s.ready.Store(true)
		close(s.started)
		err = s.sequencer.sequence(ctx)
	}
	s.ready.Store(false)
	close(s.stopped)
	for _, in := range s.inboxes {
		close(in)
	}
	shards.Wait()
	close(s.observed.waiting)
	grouper.Wait()
	return err
}

// Retain changes what is kept of the past, from the end of the epoch on. It is safe for concurrent use.
func (s *Service) Retain(r Retention) { s.retained.Store(&r) }

// Ready reports whether requests are taken.
func (s *Service) Ready() bool { return s.ready.Load() }

// Started returns a channel that is closed when the journal was read and requests are taken.
func (s *Service) Started() <-chan struct{} { return s.started }

// Counts returns what is counted.
func (s *Service) Counts() *Counts { return &s.counts }
