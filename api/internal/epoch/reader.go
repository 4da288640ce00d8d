// Package epoch reads the state of the engine for the API's handlers. Handlers can read either the core or, for lists,
// a snapshot taken at the end of an epoch.
package epoch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Engine is the running engine. [live.Service] implements it.
type Engine interface {
	// Ask calls read with a view of the core while nothing else uses it. read must be quick and must not retain parts
	// of the view.
	Ask(ctx context.Context, read func(*engine.View)) error
	// Change applies x durably. It returns false if x changed nothing or if a limit left no room for it.
	Change(ctx context.Context, x engine.Change) (bool, error)
	Counts() *live.Counts
}

// Reader reads the state of an engine from its core or from a snapshot. It is safe for concurrent use.
type Reader struct {
	engine        Engine
	last          atomic.Pointer[Snapshot]
	ended, before atomic.Int64 // ends of the last two epochs passed to [Reader.Epoch]; 0 before that
	wanted        atomic.Bool  // the latest snapshot has been read
}

// NewReader returns a reader for an engine.
func NewReader(e Engine) *Reader { return &Reader{engine: e} }

// ErrBusy is the refusal for a request that the engine didn't answer in time.
var ErrBusy = refusal.New(refusal.Overloaded, "the engine did not answer in time", "try again").Later(time.Second)

// Ask calls [Engine.Ask]. It returns ErrBusy if ctx ends first, and another refusal if the engine has stopped.
func (r *Reader) Ask(ctx context.Context, read func(*engine.View)) error {
	if err := r.engine.Ask(ctx, read); err != nil {
		if ctx.Err() != nil {
			return ErrBusy
		}
		return refusal.New(refusal.Overloaded, "the service is stopping", "").Later(5 * time.Second)
	}
	return nil
}

// Change calls [Engine.Change]. It returns ErrBusy if ctx ends first.
func (r *Reader) Change(ctx context.Context, x engine.Change) (changed bool, err error) {
	changed, err = r.engine.Change(ctx, x)
	if err != nil && ctx.Err() != nil && !errors.Is(err, refusal.Overloaded) {
		return false, ErrBusy
	}
	return changed, err
}

// Current returns the snapshot of the last epoch. While that snapshot is being built, it returns the previous one. If
// nobody is building it, Current builds it, and returns a refusal if the engine doesn't answer.
func (r *Reader) Current(ctx context.Context) (*Snapshot, error) {
	wanted := r.wanted.Swap(true)
	last := r.last.Load()
	if ended := r.ended.Load(); last != nil && ended != 0 {
		if at := int64(last.Ended); at == ended || wanted && at == r.before.Load() { // the next one is being built
			return last, nil
		}
	}
	var made *Snapshot
	err := r.Ask(ctx, func(c *engine.View) { made = r.Refresh(c) })
	return made, err
}

// Latest returns the latest snapshot, or nil before the first one.
func (r *Reader) Latest() *Snapshot { return r.last.Load() }

// Refresh returns the snapshot of the last epoch, and builds it if necessary. Nothing else may use the core at the same
// time.
func (r *Reader) Refresh(c *engine.View) *Snapshot {
	last := r.last.Load()
	if last != nil && last.Ended == c.Ended && last.Learned == c.Progress.Learned() &&
		last.Tally.Groups == c.Groups.Len() {
		return last
	}
	made := newSnapshot(c, last)
	counts := r.engine.Counts()
	made.Coverage = coverageOf(describe.New(c.Table, describe.Verbatim), counts.RecentCoverage(c.Ended),
		counts.Coverage())
	made.Outcomes = outcomesOf(c.Table, counts.Coverage())
	made.addNames(c.Table, last)
	r.last.Store(made)
	return made
}

// Renderer returns a renderer of c. It may only be called from the function passed to [Engine.Ask].
func (r *Reader) Renderer(c *engine.View) render.Renderer { return r.Refresh(c).Renderer(c) }

// Epoch builds the snapshot of the epoch that has just ended, if needed is set or somebody has read the previous
// snapshot.
func (r *Reader) Epoch(c *engine.View, needed bool) {
	if r.wanted.Swap(false) || needed {
		r.Refresh(c)
	}
	r.before.Store(r.ended.Swap(int64(c.Ended)))
}
