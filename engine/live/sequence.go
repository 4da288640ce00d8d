package live

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// tickInterval is the default time between ticks, which close traces and end epochs even if no request arrives.
const tickInterval = 100 * time.Millisecond

// sizeInterval is the time between checks of the journal's size and the free disk space.
const sizeInterval = time.Second

// namesPeriod is the default minimum length of a period of the core's dictionary. In each period, all names that arrive
// are sent to the core again.
const namesPeriod = 5 * time.Minute

// maxCommitBytes limits a commit to the journal: once its requests reach this size, further requests wait for the next
// commit.
const maxCommitBytes = 16 << 20

// message tells a shard the time and may carry a request or a barrier.
type message struct {
	at       trace.Nanos
	delivery *delivery // may be nil
	barrier  *barrier  // may be nil
}

// barrier marks a position in the journal. Each shard passes it on to the core loop, which acts on it once it has
// received it from all shards.
type barrier struct {
	at      trace.Nanos
	seq     uint64          // sequence number of the barrier's record or, if it has no record, of the record before it
	epoch   bool            // an epoch ends
	renews  bool            // a period of the core's dictionary starts
	change  *pendingChange  // applied at this position; may be nil
	reached chan<- struct{} // closed when the core loop has reached the barrier, without a checkpoint; may be nil
	// versions holds the versions of services that arrived since the previous barrier.
	versions []engine.VersionSeen
}

// sequencer determines the order of records, epochs and changes, and writes the journal. It has a single goroutine.
type sequencer struct {
	options  *Options
	intake   *intake
	arrivals <-chan *delivery
	changes  <-chan *pendingChange
	flushes  <-chan chan<- struct{}
	shards   []chan<- message
	names    chan<- *shardOutput // to the core loop, for outputs that contain only names
	overfull *atomic.Bool        // belongs to the Service
	full     bool                // the last check found too little free space for requests
	memory   bool                // the last check found the memory used up
	spent    bool                // the last check found too little free space to end an epoch
	counts   *Counts

	clock    steadyClock // as of the last record or tick
	epoch    trace.Nanos // end of the current epoch; 0 before the first
	settings []byte      // encoded change that set the current settings; nil if there was no such change
	covered  uint64      // last record covered by the restored checkpoint
	renewed  trace.Nanos // start of the current period of the core's dictionary; 0 before the first
	versions versionBuffer
}

// sequence numbers requests and changes, sets their times, makes them durable and passes them on. When ctx is done or
// the journal fails, it drops the requests and changes that are still waiting and returns.
func (q *sequencer) sequence(ctx context.Context) error {
	ticks := time.NewTicker(q.options.tick)
	defer ticks.Stop()
	sizes := time.NewTicker(sizeInterval)
	defer sizes.Stop()
	var group []*delivery
	for {
		group = group[:0]
		var changed *pendingChange
		var flushed chan<- struct{}
		select {
		case flushed = <-q.flushes:
		case changed = <-q.changes:
		case d := <-q.arrivals:
			group = append(group, d)
		case <-ticks.C:
		case <-sizes.C:
			q.watchSpace()
			if err := q.options.Journal.Beat(); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
			q.stop()
			return nil
		}
		if err := q.commit(changed, q.fill(group)); err != nil {
			return err
		}
		if flushed != nil {
			q.broadcast(message{at: q.clock.now, barrier: &barrier{at: q.clock.now, reached: flushed}})
		}
	}
}

// stop tells the shards and the core loop that the service is stopping.
func (q *sequencer) stop() {
	q.clock.advance(q.options.Clock())
	q.broadcast(message{at: q.clock.now, barrier: &barrier{at: q.clock.now, seq: q.options.Journal.Next() - 1}})
}

// fill adds waiting requests to group until their total size reaches maxCommitBytes. It adds nothing to an empty group.
func (q *sequencer) fill(group []*delivery) []*delivery {
	size := 0
	for _, d := range group {
		size += len(d.packed)
	}
	for len(group) > 0 && size < maxCommitBytes {
		select {
		case d := <-q.arrivals:
			group = append(group, d)
			size += len(d.packed)
		default:
			return group
		}
	}
	return group
}

// commit appends to the journal the end of the epoch if it is over, then changed unless it is nil, and then the
// requests in group. It passes them on in the same order. If the journal fails, commit answers changed and group with
// the error, and returns the error.
func (q *sequencer) commit(changed *pendingChange, group []*delivery) error {
	q.clock.advance(q.options.Clock())
	m := q.epochEnd()
	j := q.options.Journal
	if m != nil {
		m.seq = j.Add(m.at, journal.Epoch, nil)
	}
	var c *barrier
	if changed != nil {
		c = &barrier{at: q.clock.now, seq: j.Add(q.clock.now, journal.Change, changed.packed), change: changed}
	}
	for _, d := range group {
		d.seq = j.Add(q.clock.now, d.kind, d.packed)
		q.counts.Packed.Add(int64(len(d.packed)))
	}
	if m != nil || c != nil || len(group) > 0 {
		began := q.options.Clock()
		if err := j.Append(); err != nil {
			if changed != nil {
				changed.answer <- changeResult{err: err}
			}
			for _, d := range group {
				d.durable <- err
				q.intake.release(d)
			}
			return err
		}
		q.counts.commit(q.options.Clock().Sub(began))
	}
	for _, m := range []*barrier{m, c} {
		if m != nil {
			q.broadcast(message{at: m.at, barrier: m})
		}
	}
	for _, d := range group {
		q.deliver(q.clock.now, d)
	}
	q.broadcast(message{at: q.clock.now})
	return nil
}

// epochEnd returns the end of the current epoch and starts the next one, or returns nil if the current epoch isn't
// over. Epochs end at multiples of their length. Epochs during which the service didn't run are skipped. No epoch ends
// while the disk is full.
func (q *sequencer) epochEnd() *barrier {
	length := trace.Nanos(q.options.Core.Epoch)
	over := q.clock.now / length * length
	first := q.epoch == 0
	if !first && (q.clock.now < q.epoch || !q.options.Fits(q.options.Clock(), 0)) {
		return nil
	}
	q.epoch = over + length
	if first {
		return nil
	}
	return &barrier{at: over, epoch: true, renews: q.renewNames(over)}
}

// renewNames starts a new period of the core's dictionary if the current one is over, and reports whether it did.
// Requests decoded from then on carry all of their names again. The names of earlier requests arrived in the previous
// period, and the traces of those requests close in this one, so the core never deletes a name that it still needs.
func (q *sequencer) renewNames(now trace.Nanos) bool {
	if now.Sub(q.renewed) < max(q.options.names, 2*q.options.Assembly.MaxAge) {
		return false
	}
	q.renewed = now
	q.intake.period.Add(1)
	return true
}

// broadcast sends m to all shards. If m has a barrier, it adds the versions that arrived since the previous barrier.
func (q *sequencer) broadcast(m message) {
	if m.barrier != nil {
		m.barrier.versions = q.versions.take()
	}
	for _, sh := range q.shards {
		sh <- m
	}
}

// deliver sends the new names of d to the core loop and then its spans to their shards.
func (q *sequencer) deliver(at trace.Nanos, d *delivery) {
	q.counts.Requests.Add(1)
	q.counts.Spans.Add(int64(len(d.batch.Spans)))
	q.counts.reject(at, d.batch.Rejected)
	if d.names != nil {
		q.names <- &shardOutput{names: d.names}
		d.names = nil
	}
	if d.seq > q.covered {
		q.versions.observe(at, &d.batch)
	}
	if len(q.versions.seen) >= maxBufferedVersions {
		q.broadcast(message{at: at, barrier: &barrier{at: at, seq: d.seq - 1, reached: make(chan struct{})}})
	}
	n := int32(0)
	for i := range d.runs {
		if len(d.runs[i]) > 0 {
			n++
		}
	}
	if n == 0 {
		d.durable <- nil
		q.intake.release(d)
		return
	}
	d.left.Store(n)
	d.durable <- nil
	for i := 0; n > 0; i++ { // once the last shard has it, d may be reused
		if len(d.runs[i]) > 0 {
			n--
			q.shards[i] <- message{at: at, delivery: d}
		}
	}
}

// recover replays the journal records since the checkpoint, in their order and with their times. Before them, it
// replays the requests from record oldest on, because they may contain spans of traces that were open at the
// checkpoint. oldest must be 0 if there is no checkpoint. It counts missing records as damaged.
func (q *sequencer) recover(ctx context.Context, oldest uint64) error {
	next := oldest
	if oldest == 0 {
		next = q.options.Journal.First()
	}
	for r, err := range q.options.Journal.Read(next) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		q.counts.Damaged.Add(int64(r.Seq - next))
		next = r.Seq + 1
		if err := q.replay(ctx, r); err != nil {
			return err
		}
	}
	q.counts.Damaged.Add(int64(q.options.Journal.Next() - next))
	if n := q.counts.Damaged.Load(); n > 0 {
		q.options.Log.WarnContext(ctx,
			"the journal has lost records, each of which is a request with traces, a change or the end of an epoch: "+
				"Sibyl continues without them; look for errors of the disk", slog.Int64("lost_records", n))
	}
	return nil
}

// replay passes on the record r, which is already in the journal, with its time.
func (q *sequencer) replay(ctx context.Context, r journal.Record) error {
	q.clock.now = max(q.clock.now, r.At)
	switch r.Kind {
	case journal.Epoch:
		if r.Seq > q.covered {
			q.broadcast(message{
				at: r.At, barrier: &barrier{at: r.At, seq: r.Seq, epoch: true, renews: q.renewNames(r.At)},
			})
		}
	case journal.Change:
		if r.Seq > q.covered {
			return q.recoverChange(r)
		}
	case journal.Protobuf, journal.JSON:
		return q.redeliver(ctx, r)
	}
	return nil
}

// follow replays the records of the process that leads until this process leads or ctx is done.
func (q *sequencer) follow(ctx context.Context) error {
	err := q.options.Journal.Follow(ctx, func(r journal.Record) error { return q.replay(ctx, r) })
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("follow the replica that leads: %w", err)
	}
	if q.clock.now > 0 {
		length := trace.Nanos(q.options.Core.Epoch)
		q.epoch = q.clock.now/length*length + length
	}
	return nil
}

// redeliver delivers the request in the journal record r. It counts a request that it can't decode as damaged.
func (q *sequencer) redeliver(ctx context.Context, r journal.Record) error {
	if err := q.waitForRoom(ctx); err != nil {
		return err
	}
	d := q.intake.newDelivery(r.Kind, q.intake.charge(len(r.Data)))
	d.seq = r.Seq
	if err := q.intake.decode(ctx, d, r.Data); err != nil {
		q.intake.release(d)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		q.counts.Damaged.Add(1) // it can't have been accepted, since the intake refuses such requests
		return nil
	}
	q.deliver(r.At, d)
	return nil
}

// waitForRoom waits while the bytes in flight have reached their limit. It doesn't wait for room in the heap, because
// statistics and open traces wouldn't shrink in the meantime, and a journal can contain thousands of requests.
func (q *sequencer) waitForRoom(ctx context.Context) error {
	for q.intake.full() {
		select {
		case <-time.After(roomInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

const roomInterval = time.Millisecond
