package live

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// packAge is the age at which the short windows of a day are packed.
	packAge = 2 * group.Day
	// leastPast is the minimum time for which closed problems are kept.
	leastPast = group.Day
	// pastMargin is added to the age limit of windows, so that, with a limit of a week, the windows from exactly a week
	// ago still exist.
	pastMargin = group.Day
)

// keepPeriod stores the windows of the last period if the epoch that ends at now is the first of a new period. It
// blocks the loop only while the windows are encoded. If a restart replays the journal, it stores the same windows
// again.
func (l *loop) keepPeriod(now trace.Nanos) {
	from, all, ended := l.core.View().EndedPeriod(now)
	if !ended {
		return
	}
	began := l.options.Clock()
	period := store.NewPeriod(from, all)
	l.counts.Downsampled.Store(int64(l.options.Clock().Sub(began)))
	before, done := l.stored, make(chan struct{})
	l.stored = done
	go func() {
		defer close(done)
		wait(before)
		if err := l.options.Store.Past.Put(period); err != nil {
			l.options.Log.Error("windows could not be stored; charts of this time will have a gap",
				slog.Any("error", err))
		}
	}()
}

// wait waits until done is closed. If done is nil, it returns immediately.
func wait(done <-chan struct{}) {
	if done != nil {
		<-done
	}
}

// pastStore packs and deletes the stored past in its own goroutine, because a day with many groups takes seconds.
type pastStore struct {
	options *Options
	work    chan pastLimits
}

// pastLimits are the limits on the stored past.
type pastLimits struct {
	now trace.Nanos
	age time.Duration // 0 means unlimited
	// held is the set of problems and incidents whose evidence is kept at any age: open problems, and incidents that
	// haven't been deleted, with their problems.
	held map[search.Subject]bool
}

func newPastStore(o *Options) *pastStore { return &pastStore{o, make(chan pastLimits, 1)} }

// trim tells run to enforce x, unless earlier limits are still pending.
func (p *pastStore) trim(x pastLimits) {
	select {
	case p.work <- x:
	default:
	}
}

// run enforces limits until p.work is closed.
func (p *pastStore) run(ctx context.Context) {
	for x := range p.work {
		if err := p.enforce(x); err != nil {
			p.options.Log.ErrorContext(ctx, "the windows of past days could not be packed or deleted",
				slog.Any("error", err))
		}
	}
}

func (p *pastStore) enforce(x pastLimits) error {
	s := p.options.Store
	before := trace.Nanos(0)
	if x.age > 0 {
		before = x.now.Add(-max(x.age, leastPast))
		if err := s.Past.DeleteBefore(x.now.Add(-x.age - pastMargin)); err != nil {
			return err
		}
	}
	return errors.Join(
		s.Past.Pack(x.now.Add(-packAge)),
		s.Closed.Trim(before),
		s.Places.Trim(before, x.held),
		s.Ticks.Pack(x.now.Add(-TicksKept)),
		s.Ticks.DeleteBefore(x.now.Add(-MinutesKept)),
	)
}
