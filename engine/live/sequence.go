package live

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// tick is how often traces are looked at that nothing comes for.
const tick = 100 * time.Millisecond

// weigh is how often the size of the journal is looked at.
const weigh = time.Second

// groupBytes is how much goes to the journal in one commit at most: what waits meanwhile is the next one.
const groupBytes = 16 << 20

// message tells a shard what time it is, and what came then.
type message struct {
	at       trace.Nanos
	delivery *delivery // nil: nothing
	mark     *mark     // nil: none
}

// mark is a place in the journal at which every shard tells the grouper that it has come there.
type mark struct {
	at      trace.Nanos
	seq     uint64          // of the last record before it, or of that which it stands for
	epoch   bool            // one ended
	change  *changing       // to be made there; nil: none
	reached chan<- struct{} // closed when the grouper has come there, and nothing else; nil: not that
	// versions are those of services that came since the mark before.
	versions []engine.VersionSeen
}

// sequencer owns the order of records, epochs and changes, and writes the journal. It has one goroutine.
type sequencer struct {
	options  *Options
	intake   *intake
	arrivals <-chan *delivery
	changes  <-chan *changing
	flushes  <-chan chan<- struct{}
	shards   []chan<- message
	names    chan<- *observed // to the grouper: names alone
	overfull *atomic.Bool     // see Service
	counts   *Counts

	clock    steady      // its now is that of the last record or tick
	epoch    trace.Nanos // when the present epoch ends; 0: none began
	settings []byte      // the change that made the present settings; nil: none did
	known    uint64      // the last record that the state began with
	versions arrived
}

// sequence gives what arrives numbers and times, makes it durable and hands it on, until ctx is done. What waits then is not looked
// at any more.
func (q *sequencer) sequence(ctx context.Context) error {
	ticks := time.NewTicker(q.options.tick)
	defer ticks.Stop()
	weighed := time.NewTicker(weigh)
	defer weighed.Stop()
	var group []*delivery
	for {
		group = group[:0]
		var changed *changing
		var flushed chan<- struct{}
		select {
		case flushed = <-q.flushes:
		case changed = <-q.changes:
		case d := <-q.arrivals:
			group = append(group, d)
		case <-ticks.C:
		case <-weighed.C:
			q.overfull.Store(q.options.MaxJournal > 0 && q.options.Journal.Stats().Bytes > q.options.MaxJournal)
			continue
		case <-ctx.Done():
			q.clock.advance(q.options.Clock())
			q.send(message{at: q.clock.now, mark: &mark{at: q.clock.now, seq: q.options.Journal.Next() - 1}})
			return nil
		}
		if err := q.commit(changed, q.more(group)); err != nil {
			return err
		}
		if flushed != nil {
			q.send(message{at: q.clock.now, mark: &mark{at: q.clock.now, reached: flushed}})
		}
	}
}

// more adds to a group what is waiting.
func (q *sequencer) more(group []*delivery) []*delivery {
	size := 0
	for _, d := range group {
		size += len(d.packed)
	}
	for len(group) > 0 && size < groupBytes {
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

// commit appends a change, if there is one, and a group to the journal, before them the end of the epoch if that is over, and hands all on.
func (q *sequencer) commit(changed *changing, group []*delivery) error {
	q.clock.advance(q.options.Clock())
	m := q.epochEnd()
	j := q.options.Journal
	if m != nil {
		m.seq = j.Add(m.at, journal.Epoch, nil)
	}
	var c *mark
	if changed != nil {
		c = &mark{at: q.clock.now, seq: j.Add(q.clock.now, journal.Change, changed.packed), change: changed}
	}
	for _, d := range group {
		d.seq = j.Add(q.clock.now, d.kind, d.packed)
		q.counts.Packed.Add(int64(len(d.packed)))
	}
	if m != nil || c != nil || len(group) > 0 {
		began := q.options.Clock()
		if err := j.Append(); err != nil {
			if changed != nil {
				changed.answer <- made{err: err}
			}
			for _, d := range group {
				d.durable <- err
				q.intake.release(d)
			}
			return err
		}
		q.counts.commit(q.options.Clock().Sub(began))
	}
	for _, m := range []*mark{m, c} {
		if m != nil {
			q.send(message{at: m.at, mark: m})
		}
	}
	for _, d := range group {
		q.deliver(q.clock.now, d)
	}
	q.send(message{at: q.clock.now})
	q.counts.Ticks.Add(1)
	return nil
}

// epochEnd returns the end of the present epoch if it is over, and begins the next. Epochs end at whole multiples of their length; those in
// which nobody was there are left out, and so are those that end while nothing can be written.
func (q *sequencer) epochEnd() *mark {
	length := trace.Nanos(q.options.Core.Epoch)
	over := q.clock.now / length * length
	first := q.epoch == 0
	if !first && (q.clock.now < q.epoch || q.options.Spent(q.options.Clock())) {
		return nil
	}
	q.epoch = over + length
	if first {
		return nil
	}
	return &mark{at: over, epoch: true}
}

// send tells all shards.
func (q *sequencer) send(m message) {
	if m.mark != nil {
		m.mark.versions = q.versions.take()
	}
	for _, sh := range q.shards {
		sh <- m
	}
}

// deliver hands a request to the shards that its spans are for, and its new names to the grouper before.
func (q *sequencer) deliver(at trace.Nanos, d *delivery) {
	q.counts.Requests.Add(1)
	q.counts.Spans.Add(int64(len(d.batch.Spans)))
	q.counts.Rejected.Add(int64(d.batch.RejectedSpans()))
	if d.names != nil {
		q.names <- &observed{names: d.names}
	}
	if d.seq > q.known {
		q.versions.observe(at, d.batch.Versions)
	}
	if len(q.versions.seen) >= arrivedVersions {
		q.send(message{at: at, mark: &mark{at: at, seq: d.seq - 1, reached: make(chan struct{})}})
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
	for i := 0; n > 0; i++ { // after the last send d may be another's
		if len(d.runs[i]) > 0 {
			n--
			q.shards[i] <- message{at: at, delivery: d}
		}
	}
}

// recover hands on the records of the journal since the checkpoint, as they were handed on then, and the earlier records from oldest on that
// hold spans of traces which were open at the checkpoint.
func (q *sequencer) recover(ctx context.Context, oldest uint64) error {
	from := max(q.options.Journal.First(), oldest)
	next := from
	for r, err := range q.options.Journal.Read(from) {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		q.counts.Damaged.Add(int64(r.Seq - next))
		next = r.Seq + 1
		q.clock.now = max(q.clock.now, r.At)
		switch r.Kind {
		case journal.Epoch:
			if r.Seq > q.known {
				q.send(message{at: r.At, mark: &mark{at: r.At, seq: r.Seq, epoch: true}})
			}
		case journal.Change:
			if r.Seq > q.known {
				if err := q.changeAgain(r); err != nil {
					return err
				}
			}
		case journal.Protobuf, journal.JSON:
			if err := q.again(ctx, r); err != nil {
				return err
			}
		}
	}
	if q.clock.now > 0 {
		length := trace.Nanos(q.options.Core.Epoch)
		q.epoch = q.clock.now/length*length + length
	}
	return nil
}

// again delivers a record once more.
func (q *sequencer) again(ctx context.Context, r journal.Record) error {
	d := q.intake.newDelivery(r.Kind, q.intake.charge(len(r.Data)))
	d.seq = r.Seq
	if err := q.intake.decode(ctx, d, r.Data); err != nil {
		q.intake.release(d)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		q.counts.Damaged.Add(1) // it was decoded before it was acknowledged
		return nil
	}
	q.deliver(r.At, d)
	return nil
}
