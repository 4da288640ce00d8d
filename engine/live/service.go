// Package live runs the service: it stores requests in a journal, assembles traces, and runs [engine.Core] epoch by
// epoch.
//
//		Take ─(1)─▶ sequencer ─(2)─▶ shards ─(3)─▶ core loop ─(4)─▶ decisions
//
//	 1. Take decodes a request and waits. The sequencer numbers the waiting requests, sets their time of arrival,
//	    appends them to the journal in one commit, and answers the callers.
//	 2. Each shard owns the open traces whose IDs hash to it. It reduces closed traces to observations.
//	 3. The core loop owns all statistics. It ends an epoch when the epoch has ended on every shard. While it is busy,
//	    the outputs of the shards wait in a queue, so that neither epochs nor checkpoints stop the intake.
//	 4. The core loop stores the decisions and reports them to the caller of the service. [Service.Ask] reads the core.
//
// The state is a function of the journal, which contains the numbers and times of requests, the ends of epochs, and all
// other inputs to decisions ([Service.Change]). A checkpoint is the state after one of the records; recovery reads the
// records after it. So neither the number of shards nor restarts affect statistics or decisions.
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

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure a [Service].
type Options struct {
	Core     engine.Options
	Assembly assemble.OnlineOptions // Memory applies to all shards together
	Keys     *ingest.Keys           // attributes to decode; nil means only those that the protocol uses
	Shards   int                    // 0 means one per core
	Decoders int                    // number of requests decoded in parallel; 0 means one per core
	InFlight int64                  // bytes of requests not yet assembled and, separately, of outputs for the core
	// Heap is the limit on the live heap of the process after a garbage collection, in bytes. Requests are refused
	// while it is exceeded. 0 means unlimited.
	Heap int64
	// Blameless applies if the service shares the heap with others. As long as its open traces and requests in flight
	// take at most this number of bytes, the service isn't blamed for a full heap, and refuses requests only if the
	// heap exceeds its limit by a tenth. 0 means that the heap isn't shared.
	Blameless      int64
	SpansPerSecond float64       // rate of accepted spans above which requests are refused; 0 means unlimited
	Names          int           // limit on names of each kind in the core's dictionary; 0 means [trace.DefaultLimit]
	DecoderNames   int           // the same for the dictionary of a decoder
	Whole          int           // maximum bytes of whole traces; the default fits about 10,000 traces of 20 spans
	Charted        int           // maximum number of groups and request types whose requests are kept by tick
	Checkpoint     time.Duration // minimum time between checkpoints, which are taken at the end of an epoch
	Retention      Retention
	Journal        Journal
	// MaxJournalAge is the maximum age of journal records that are covered by a checkpoint but still referenced by open
	// traces. 0 means unlimited.
	MaxJournalAge time.Duration
	MaxJournal    uint64 // size of the journal in bytes above which requests are refused; 0 means unlimited
	Store         *store.Store
	Full          func(now time.Time) bool // reports whether the disk has no room for requests; nil means never
	// Fits reports whether the disk has room for the given number of bytes in addition to background work. While it
	// returns false for 0 bytes, epochs don't end. If it returns false for the size of a checkpoint, the checkpoint
	// isn't stored. Nil means that there is always room.
	Fits  func(now time.Time, bytes uint64) bool
	Clock func() time.Time // nil means time.Now
	Log   *slog.Logger
	// Epoch, if not nil, is called by the core loop at the end of each epoch. It may read the core but must not retain
	// it, and it must return quickly. If it returns an error, no checkpoint is stored until a later call succeeds, so
	// that a restart repeats the epochs in between.
	Epoch func(core *engine.View, e Ended) error
	// Shared, if not nil, is called by the core loop for each change that only concerns the replicas: [engine.Sent] and
	// [engine.File]. It must return quickly.
	Shared func(*engine.Change)
	// Settings returns the settings to put into effect when this process leads; nil means those of Core.
	Settings func() engine.Settings

	tick  time.Duration // time between checks for traces to close; 0 means tickInterval
	names time.Duration // minimum length of a period of the core's dictionary; 0 means namesPeriod
}

// Retention limits the stored history.
type Retention struct {
	// Age is the maximum age of decisions, exemplars, windows and closed problems; 0 means unlimited. The age of
	// statistics is a setting of the core.
	Age time.Duration
	// Bytes is the maximum size on disk. If it is exceeded, the oldest decisions, exemplars and days of windows are
	// deleted. 0 means unlimited.
	Bytes     int64
	Exemplars int // maximum number of traces of each kind (slow, typical, fast, failed) for each group
}

// Ended describes an epoch that has ended.
type Ended struct {
	At        trace.Nanos
	Before    []detect.Problem // problems that were open at the start of the epoch
	Decisions []search.Decision
}

// DefaultOptions returns the default options. The caller must set Journal, Store and Log.
func DefaultOptions() Options {
	return Options{
		Core:         engine.DefaultOptions(),
		Assembly:     assemble.DefaultOnlineOptions(),
		InFlight:     256 << 20,
		DecoderNames: 1 << 18,
		Whole:        24 << 20,
		Charted:      2048,
		Checkpoint:   10 * time.Second,
		Retention:    Retention{Exemplars: 3},
	}
}

// Service is the running service. Create one with Open and call Run, which returns when the service has stopped. The
// journal and the store belong to the caller.
//
// Its methods are safe for concurrent use. They communicate through channels with the sequencer, the shards and the
// core loop, which each own their state.
type Service struct {
	options   *Options
	intake    *intake
	arrivals  chan *delivery       // to the sequencer
	changes   chan *pendingChange  // to the sequencer
	flushes   chan chan<- struct{} // to the sequencer
	inboxes   []chan message       // of the shards
	outputs   *shardOutputs        // to the core loop
	queries   chan query           // to the core loop
	sequencer *sequencer           // for Run
	shards    []*shard             // for Run
	loop      *loop                // for Run

	retained atomic.Pointer[Retention]
	ready    atomic.Bool   // the service accepts requests
	began    atomic.Int64  // when ready was set, in ns since 1970
	overfull atomic.Bool   // the journal exceeds MaxJournal
	started  chan struct{} // closed when the service first accepts requests
	stopped  chan struct{} // closed when the sequencer has stopped
	done     chan struct{} // closed when the core loop has stopped
	restored uint64        // first record needed by the restored checkpoint; 0 without a checkpoint
	counts   Counts
}

// Capacities of channels. Options.InFlight limits the bytes in them.
const (
	arrivalsWaiting = 1024
	deliveriesPerSh = 1024
	outputsWaiting  = 256
	queriesWaiting  = 16
	changesWaiting  = 16
)

// Open returns a Service in the state of the last checkpoint, if there is one. Call Run to read the journal and accept
// requests.
func Open(o Options) (*Service, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.tick, o.names = cmp.Or(o.tick, tickInterval), cmp.Or(o.names, namesPeriod)
	if o.Settings == nil {
		o.Settings = func() engine.Settings { return o.Core.Settings() }
	}
	if o.Full == nil {
		o.Full = func(time.Time) bool { return false }
	}
	if o.Fits == nil {
		o.Fits = func(time.Time, uint64) bool { return true }
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
	if o.Decoders <= 0 {
		o.Decoders = runtime.GOMAXPROCS(0)
	}
	s := &Service{
		options:  &o,
		arrivals: make(chan *delivery, arrivalsWaiting),
		changes:  make(chan *pendingChange, changesWaiting),
		flushes:  make(chan chan<- struct{}),
		outputs:  newShardOutputs(o.InFlight),
		queries:  make(chan query, queriesWaiting),
		started:  make(chan struct{}), stopped: make(chan struct{}), done: make(chan struct{}),
	}
	s.counts.expect(o.Keys.Names())
	s.intake = newIntake(&o, &s.counts)
	s.retained.Store(&o.Retention)
	s.counts.open = make([]atomic.Pointer[assemble.OnlineStats], o.Shards)
	if err := s.assemble(); err != nil {
		return nil, err
	}
	return s, s.restore()
}

// assemble creates the sequencer, the shards and the core loop, and connects them.
func (s *Service) assemble() error {
	o := s.options
	exemplars, err := newExemplarStore(o, &s.retained, &s.counts)
	if err != nil {
		return err
	}
	table := &trace.Table{Limit: o.Names}
	s.loop = &loop{
		options:   o,
		core:      engine.NewCore(table, o.Core),
		table:     table,
		exemplars: exemplars,
		witnesses: newWitnesses(),
		ticks:     newTicks(o.Charted),
		past:      newPastStore(o),
		outputs:   s.outputs,
		queries:   s.queries,
		retained:  &s.retained,
		counts:    &s.counts,
		atBarrier: make([]*shardOutput, o.Shards),
		missing:   o.Shards,
	}
	s.loop.core.OnLearned(s.loop.ticks.observe)
	s.sequencer = &sequencer{
		options:  o,
		intake:   s.intake,
		arrivals: s.arrivals,
		changes:  s.changes,
		flushes:  s.flushes,
		names:    s.outputs.waiting,
		overfull: &s.overfull,
		counts:   &s.counts,
	}
	for i := range o.Shards {
		in := make(chan message, deliveriesPerSh)
		s.inboxes = append(s.inboxes, in)
		s.sequencer.shards = append(s.sequencer.shards, in)
		s.shards = append(s.shards, newShard(i, in, o, s.intake, s.outputs, &s.counts))
	}
	return nil
}

// errUnreadable is returned for a checkpoint that can't be restored. The state can't be rebuilt from the journal,
// because the records covered by the checkpoint have been deleted.
var errUnreadable = errors.New("it is damaged, or another build of sibyl wrote it: use the build that wrote it, " +
	"or start over with the rest of the journal by moving the folder store out of the data directory")

// errOldStrategy is returned if the checkpoint or the journal names a strategy that this version doesn't have.
var errOldStrategy = errors.New("another version of sibyl wrote it with " +
	"another strategy: start that version once more with a strategy that both " +
	"have, stop it, and start this one; or start over by moving the folders store and journal out of the data " +
	"directory")

// restore restores the last checkpoint, if there is one.
func (s *Service) restore() error {
	c, err := s.options.Store.Checkpoints.Load()
	if errors.Is(err, store.ErrCheckpoint) {
		return fmt.Errorf("restore the checkpoint: %w: %w", errUnreadable, err)
	}
	if err != nil {
		return err
	}
	s.reportOlder(c)
	if c == nil {
		return nil
	}
	core := s.loop.core
	if err := core.Restore(c.State); err != nil {
		if _, ok := errors.AsType[*engine.UnknownStrategyError](err); ok {
			return fmt.Errorf("restore the checkpoint: %w: %w", errOldStrategy, err)
		}
		return fmt.Errorf("restore the checkpoint: %w: %w", errUnreadable, err)
	}
	for _, sh := range s.shards {
		for _, x := range c.Closed {
			sh.open.Recall(x.At, x.Hashes)
		}
		sh.open.Resume(c.Seq)
	}
	s.options.Journal.Continue(c.Seq)
	restored := core.View()
	settings := restored.Options.Settings()
	q := s.sequencer
	q.settings, q.covered, q.clock.now = (&engine.Change{Settings: &settings}).Append(nil), c.Seq, c.At
	s.restored = c.Oldest
	// An estimate, in case the journal contains no later arrival.
	s.counts.Arrived.Store(int64(restored.History.Requests.Latest(c.At)))
	return nil
}

// reportOlder logs a warning if a checkpoint later than c, which may be nil, has been lost. If the records after c are
// missing, there was such a checkpoint, because records are deleted only once a checkpoint covers them.
func (s *Service) reportOlder(c *store.Checkpoint) {
	const remedy = "stop sibyl and restore a backup, or go on with this state; look for errors of the disk"
	switch first := s.options.Journal.First(); {
	case c == nil && first > 1:
		s.options.Log.Warn("the store has lost its checkpoint: Sibyl starts over with the rest of the journal",
			slog.Uint64("lost_records", first-1), slog.String("remedy", remedy))
	case c != nil && first > c.Seq+1:
		s.options.Log.Warn("the store has lost its last checkpoint: Sibyl continues from an older one",
			slog.Time("of", time.Unix(0, int64(c.At))),
			slog.Uint64("lost_records", first-1-c.Seq), slog.String("remedy", remedy))
	}
}

// Run replays the journal records since the checkpoint and then accepts requests until ctx is done. If several
// processes share the journal, it first follows the one that leads. Before it returns, it finishes the accepted
// requests and takes a checkpoint. Open traces stay open across a restart. Run returns an error if the journal can't
// be read or written. If the error wraps [journal.ErrNotLeading], another process may lead: the caller should then open
// the service again, as a standby.
func (s *Service) Run(ctx context.Context) error {
	var shards, loop sync.WaitGroup
	loop.Go(s.outputs.run)
	for _, sh := range s.shards {
		shards.Go(sh.run)
	}
	loop.Go(func() {
		defer close(s.done)
		s.loop.run(context.WithoutCancel(ctx)) // to finish the accepted requests
	})
	err := s.sequencer.recover(ctx, s.restored)
	if err == nil {
		err = s.lead(ctx)
	}
	s.ready.Store(false)
	close(s.stopped)
	for _, in := range s.inboxes {
		close(in)
	}
	shards.Wait()
	close(s.outputs.waiting)
	loop.Wait()
	return err
}

// lead waits until this process leads and then accepts requests until ctx is done.
func (s *Service) lead(ctx context.Context) error {
	if err := s.sequencer.follow(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		s.sequencer.stop()
		return nil
	}
	if err := s.sequencer.applySettings(); err != nil {
		return err
	}
	s.began.Store(s.options.Clock().UnixNano())
	s.ready.Store(true)
	close(s.started)
	return s.sequencer.sequence(ctx)
}

// Leader returns the URL of the process that leads while this one is its standby, or "".
func (s *Service) Leader() string { return s.options.Journal.Leader() }

// Retain replaces the limits on the stored history. The number of exemplars takes effect at the end of the epoch, the
// other limits at the next checkpoint. It is safe for concurrent use.
func (s *Service) Retain(r Retention) { s.retained.Store(&r) }

// Ready reports whether the service has read its journal, leads, and so accepts requests.
func (s *Service) Ready() bool { return s.ready.Load() }

// Started returns a channel that is closed when the service first accepts requests.
func (s *Service) Started() <-chan struct{} { return s.started }

// Counts returns the counters of the service.
func (s *Service) Counts() *Counts { return &s.counts }
