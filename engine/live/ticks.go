package live

import (
	"log/slog"
	"maps"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

const (
	// TicksKept is the maximum age of requests that are kept by tick, for display.
	TicksKept = 3 * time.Hour
	// MinutesKept is the maximum age of requests that are kept by minute, once they are older than TicksKept.
	MinutesKept = 2 * group.Day
	// ticksEach is the maximum number of ticks between two checkpoints, on average per group. Requests in ticks beyond
	// the limit are missing from charts.
	ticksEach = 32
)

// ticks counts the requests since the last checkpoint by group and by the tick when they started, no matter when their
// traces arrived. No decision depends on these counts.
type ticks struct {
	limit  int                           // on groups and request types; docs/operations.md gives the space they take
	now    trace.Nanos                   // end of the last epoch
	ticked map[analysis.Hash]trace.Nanos // latest tick of each group and request type
	all    map[store.Tick]*group.Past
}

func newTicks(limit int) *ticks {
	return &ticks{limit: limit, ticked: make(map[analysis.Hash]trace.Nanos), all: make(map[store.Tick]*group.Past)}
}

// observe adds o to its request type and group, either of which may be nil. It ignores requests that started more than
// TicksKept before, or more than an hour after, the end of the last epoch.
func (t *ticks) observe(requestType, group *group.Group, o *observation.Observation) {
	if t.now != 0 && (o.Start < t.now.Add(-TicksKept) || o.Start > t.now.Add(time.Hour)) {
		return // o is from a recording, or its clock is wrong
	}
	if requestType != nil {
		t.add(requestType.ID, o)
	}
	if group != nil {
		t.add(group.ID, o)
	}
}

func (t *ticks) add(id analysis.Hash, o *observation.Observation) {
	at := store.Tick{Group: id, From: store.TickOf(o.Start)}
	latest, known := t.ticked[id]
	if !known && len(t.ticked) >= t.limit {
		return
	}
	t.ticked[id] = max(latest, at.From)
	p := t.all[at]
	if p == nil {
		if len(t.all) >= ticksEach*t.limit {
			return
		}
		p = &group.Past{}
		t.all[at] = p
	}
	ns := o.Duration.Nanoseconds()
	p.Total.Add(ns)
	p.Latency.Add(ns, 1)
	if o.Failed {
		p.Failed++
	}
}

// take removes and returns the ticks since the last checkpoint. To make room for other groups, it forgets those without
// recent requests.
func (t *ticks) take() map[store.Tick]*group.Past {
	maps.DeleteFunc(t.ticked, func(_ analysis.Hash, latest trace.Nanos) bool { return latest < t.now.Add(-TicksKept) })
	all := t.all
	t.all = make(map[store.Tick]*group.Past, len(all))
	return all
}

// keepTicks stores the ticks in all. It must be called before the checkpoint that makes them durable.
func (l *loop) keepTicks(all map[store.Tick]*group.Past) {
	if err := l.options.Store.Ticks.Add(all); err != nil {
		l.options.Log.Error("latencies could not be stored; charts of this time will have a gap",
			slog.Any("error", err))
	}
}
