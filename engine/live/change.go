package live

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// changing is a change on its way through the journal and the shards to the grouper, so that it is made between the same two requests and
// epochs whenever the journal is read.
type changing struct {
	engine.Change
	packed []byte    // for the journal
	answer chan made // told once; holds it
}

// made is what became of a change.
type made struct {
	changed bool
	err     error
}

func newChanging(x engine.Change) *changing {
	return &changing{x, journal.Pack(nil, x.Append(nil)), make(chan made, 1)}
}

// make makes the change, whose record is of the given time. The grouper calls it.
func (x *changing) make(core *engine.Core, at trace.Nanos) {
	if f := x.Feedback; f != nil {
		f.At = at
	}
	x.answer <- made{changed: core.Apply(&x.Change)}
}

// Change has a change made, and returns when it is durable and was made: whether there was anything to change, and room. An error that is a
// [refusal.Overloaded] says that it was not made for now; after that of ctx it may be made all the same. It counts from the end of the epoch on. It is
// safe for concurrent use.
func (s *Service) Change(ctx context.Context, x engine.Change) (changed bool, err error) {
	switch {
	case !s.ready.Load():
		return false, errStarting
	case s.options.Full(s.options.Clock()):
		return false, errFull
	}
	c := newChanging(x)
	select {
	case s.changes <- c:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-s.stopped:
		return false, errStopping
	}
	select {
	case m := <-c.answer:
		return m.changed, m.err
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-s.done:
	}
	select {
	case m := <-c.answer:
		return m.changed, m.err
	default:
		return false, errStopping
	}
}

// settle has the settings of the options hold, if others do: those of the journal, or of the checkpoint. It returns when the grouper has done all
// that the journal says, so that whoever asks it sees that.
func (q *sequencer) settle() error {
	s := q.options.Core.Settings()
	x := newChanging(engine.Change{Settings: &s})
	if bytes.Equal(x.Append(nil), q.settings) {
		done := make(chan struct{})
		q.send(message{at: q.clock.now, mark: &mark{at: q.clock.now, reached: done}})
		<-done
		return nil
	}
	if err := q.commit(x, nil); err != nil {
		return err
	}
	<-x.answer
	return nil
}

// changeAgain repeats a change of the journal. It returns an error if that names a strategy that this version does not have:
// without it, later decisions would differ from the logged ones.
func (q *sequencer) changeAgain(r journal.Record) error {
	x, err := engine.DecodeChange(r.Data)
	if err != nil {
		q.counts.Damaged.Add(1)
		return nil
	}
	if x.Settings != nil {
		if err := q.options.Core.CheckStrategy(x.Settings.Strategy); err != nil {
			return fmt.Errorf("replay the journal: %w: %w", errOldStrategy, err)
		}
		q.settings = x.Append(nil)
	}
	q.send(message{at: r.At, mark: &mark{at: r.At, seq: r.Seq, change: &changing{Change: x, answer: make(chan made, 1)}}})
	return nil
}
