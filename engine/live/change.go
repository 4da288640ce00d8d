package live

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// pendingChange is a change on its way through the journal and the shards to the core loop. It takes this way so that
// recovery applies it between the same two requests and epochs.
type pendingChange struct {
	engine.Change
	packed []byte            // for the journal
	answer chan changeResult // receives one value; has room for it
}

// changeResult answers [Service.Change].
type changeResult struct {
	changed bool
	err     error
}

func newPendingChange(x engine.Change) *pendingChange {
	return &pendingChange{x, journal.Pack(nil, x.Append(nil)), make(chan changeResult, 1)}
}

// apply applies x, whose record in the journal has the time `at`, and answers it. Only the core loop may call it.
func (x *pendingChange) apply(core *engine.Core, at trace.Nanos) {
	if f := x.Feedback; f != nil {
		f.At = at
	}
	x.answer <- changeResult{changed: core.Apply(&x.Change)}
}

// Change applies x, with effect from the end of the epoch, and returns once it is durable and applied. changed is the
// result of [engine.Core.Apply]. If the error is [refusal.Overloaded], the change was not applied and can be tried
// again. If ctx ends first, the change may or may not have been applied. It is safe for concurrent use.
func (s *Service) Change(ctx context.Context, x engine.Change) (changed bool, err error) {
	switch {
	case !s.ready.Load():
		return false, errStarting
	case s.options.Full(s.options.Clock()):
		return false, errFull
	}
	c := newPendingChange(x)
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

// applySettings makes the settings of the options current, unless they equal the settings from the journal or the
// checkpoint. It returns once the core loop has processed the whole journal.
func (q *sequencer) applySettings() error {
	s := q.options.Core.Settings()
	x := newPendingChange(engine.Change{Settings: &s})
	if bytes.Equal(x.Append(nil), q.settings) {
		done := make(chan struct{})
		q.broadcast(message{at: q.clock.now, barrier: &barrier{at: q.clock.now, reached: done}})
		<-done
		return nil
	}
	if err := q.commit(x, nil); err != nil {
		return err
	}
	<-x.answer
	return nil
}

// recoverChange applies the change in r, a record of the journal, again. It counts a record that it can't decode as
// damaged. It returns an error if the change names a strategy that this version doesn't have, because later decisions
// would then differ from the logged ones.
func (q *sequencer) recoverChange(r journal.Record) error {
	x, err := engine.DecodeChange(r.Data)
	if err != nil {
		q.counts.Damaged.Add(1)
		return nil
	}
	if x.Settings != nil {
		if err := q.options.Core.CheckStrategy(x.Settings.Strategy); err != nil {
			return fmt.Errorf("recover the journal: %w: %w", errOldStrategy, err)
		}
		q.settings = x.Append(nil)
	}
	q.broadcast(message{
		at:      r.At,
		barrier: &barrier{at: r.At, seq: r.Seq, change: &pendingChange{Change: x, answer: make(chan changeResult, 1)}},
	})
	return nil
}
