package live

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// pendingChange is a change on its way through the journal and the shards to the core loop. It takes this route so that
// recovery applies it at the same point between requests and epochs.
type pendingChange struct {
	engine.Change
	packed []byte            // record for the journal
	answer chan changeResult // receives one value; has a buffer of one
}

// changeResult answers [Service.Change].
type changeResult struct {
	changed bool
	err     error
}

func newPendingChange(x engine.Change) *pendingChange {
	return &pendingChange{x, journal.Pack(nil, x.Append(nil)), make(chan changeResult, 1)}
}

// apply applies x and sends the answer. `at` is the time of x's journal record. Only the core loop may call apply.
func (x *pendingChange) apply(core *engine.Core, at trace.Nanos) {
	if f := x.Feedback; f != nil {
		f.At = at
	}
	x.answer <- changeResult{changed: core.Apply(&x.Change)}
}

// Change applies x, with effect from the end of the epoch, and returns once x is durable and applied. changed is the
// result of [engine.Core.Apply]. If the error is [refusal.Overloaded], x was not applied and can be retried. If ctx
// ends first, x may or may not have been applied. Change is safe for concurrent use.
func (s *Service) Change(ctx context.Context, x engine.Change) (changed bool, err error) {
	switch {
	case !s.ready.Load():
		return false, s.unready()
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

// applySettings puts the settings in the options into effect, unless the settings from the journal or the checkpoint
// are the same. It returns once the core loop has processed the whole journal.
func (q *sequencer) applySettings() error {
	s := q.options.Settings()
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

// recoverChange reapplies the change in the journal record r. It counts a record that it can't decode as damaged. It
// returns an error if the change names a strategy that this version doesn't have, because later decisions would differ
// from the logged ones.
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
