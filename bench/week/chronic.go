package week

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/trace"
)

// Chronic is the answer to a fault in an installation with many chronic problems.
type Chronic struct {
	Problems int `json:"problems"` // open at the start of the fault
	// Epochs is the number of epochs between the opening of the incident and its notification. It is nil if no incident
	// opened or it was not notified.
	Epochs  *int    `json:"notification_delay_epochs"`
	Seconds float64 `json:"slowest_epoch_seconds"` // time that the slowest end of an epoch took during the fault
}

// Sizes of the installation with chronic problems. Nearly all of its request types vary more than the default
// threshold.
const (
	chronicTypes  = 5200
	chronicRate   = 320 // requests per second
	chronicBefore = 18 * time.Minute
	chronicFault  = 6 * time.Minute
	chronicGrowth = 10 // of the mean duration of requests at fault
)

// chronicRun is the state of a run with chronic problems. The engine investigates them as the service does.
type chronicRun struct {
	app    *app
	core   *engine.Core
	names  *describe.Names
	open   endings
	number int            // of the epoch
	opened map[string]int // by incident: the number of the epoch
}

// runChronic measures the delay of the notification of a fault.
func runChronic(ctx context.Context, o *Options) (*Chronic, error) {
	table := &trace.Table{}
	x := chronicRun{
		app: newApp(o.Seed, chronicTypes, chronicRate, table), core: engine.NewCore(table, o.Backtest.Core),
		names: describe.New(table, describe.Verbatim), opened: make(map[string]int),
	}
	for i := range x.app.until { // all types are equally frequent
		x.app.until[i] = float64(i+1) / float64(len(x.app.until))
	}
	noon := monday.Add(12 * time.Hour)
	x.app.advance(noon)
	p := planner{app: x.app}
	op := p.busiest(-1)
	slow := p.factorFor(op, chronicGrowth)
	result := &Chronic{}
	for at := noon; at < noon.Add(chronicBefore+chronicFault) &&
		result.Epochs == nil; at = at.Add(o.Backtest.Core.Epoch) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if at == noon.Add(chronicBefore) {
			result.Problems, x.app.ops[op].slow = len(x.core.View().Problems.Open()), slow
		}
		end := at.Add(o.Backtest.Core.Epoch)
		x.requests(at, end)
		began := time.Now()
		delay := x.epoch(end)
		if x.app.ops[op].slow > 0 {
			result.Epochs, result.Seconds = delay, max(result.Seconds, time.Since(began).Seconds())
		}
	}
	return result, nil
}

// requests makes the requests that start in [from, to), and ingests the requests that have ended by then.
func (x *chronicRun) requests(from, to trace.Nanos) {
	for at := from; at < to; at = at.Add(time.Duration(x.app.rng.ExpFloat64() / chronicRate * float64(time.Second))) {
		t := &trace.Trace{}
		x.app.request(x.app.types[x.app.pick()].op, at, t)
		_, end := backtest.Extent(t)
		heap.Push(&x.open, ending{end, t})
	}
	for len(x.open) > 0 && x.open[0].at <= to {
		x.core.Ingest(x.open[0].trace)
		heap.Pop(&x.open)
	}
}

// epoch ends an epoch. If an incident is notified now, it returns the number of epochs since that incident opened,
// otherwise nil.
func (x *chronicRun) epoch(at trace.Nanos) *int {
	x.number++
	before := slices.Clone(x.core.View().Problems.Open())
	decisions := x.core.Epoch(at)
	view := x.core.View()
	for _, i := range view.Incidents.All() {
		if id := fmt.Sprintf("%016x", i.ID); i.Opened() == at {
			x.opened[id] = x.number
		}
	}
	for _, e := range notify.Events(&notify.Epoch{
		At:             at,
		Source:         "sibyl",
		Decisions:      decisions,
		Before:         before,
		Problems:       view.Problems.Open(),
		Names:          x.names,
		Incidents:      view.Incidents.All(),
		Annotations:    view.Annotations,
		Investigation:  view.Searches.Investigation,
		Muted:          func(uint64) bool { return false },
		Acknowledged:   func(uint64) *notify.Note { return nil },
		IncidentTraces: func(*engine.Incident) []notify.Trace { return nil },
		IncidentURL:    func(uint64) string { return "" },
	}) {
		if e.Type == notify.IncidentOpened {
			delay := x.number - x.opened[e.Data.Incident.ID]
			return &delay
		}
	}
	return nil
}
