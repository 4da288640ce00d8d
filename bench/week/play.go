package week

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure a run.
type Options struct {
	Seed  uint64
	Weeks int     // at least 2: the first has no faults
	Types int     // request types, 20 to 3 200
	Rate  float64 // requests per second at the peak of the traffic

	Backtest backtest.Options
	Progress func(done, all int) // called after each hour of the weeks with its number; may be nil
}

// Run simulates the weeks and judges the incidents. It returns an error only if ctx ends.
func Run(ctx context.Context, o Options) (*Report, error) {
	var chronic *Chronic
	group, ctx := errgroup.WithContext(ctx)
	chronicOptions := o
	group.Go(func() (err error) { // next to the weeks, whose epochs take one core most of the time
		chronic, err = runChronic(ctx, &chronicOptions)
		return err
	})
	table := &trace.Table{}
	a := newApp(o.Seed, o.Types, o.Rate, table)
	s := plan(o.Seed, a, o.Weeks)
	o.Backtest.Table = table
	p := backtest.NewPlayer(s.labels(a), o.Backtest)
	q := player{app: a, schedule: s, player: p, rate: o.Rate}
	end := monday.Add(time.Duration(o.Weeks) * week)
	for at := monday; at < end; at = at.Add(time.Minute) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		q.minute(at)
		if since := at.Sub(monday) + time.Minute; o.Progress != nil && since%time.Hour == 0 {
			o.Progress(int(since/time.Hour), o.Weeks*int(week/time.Hour))
		}
	}
	q.play(end.Add(time.Hour))
	r := judge(o, a, s, p.Finish())
	if err := group.Wait(); err != nil {
		return nil, err
	}
	r.Chronic, r.NotificationDelay = chronic, chronic.Epochs
	return r, nil
}

// labels returns the faults as labels of a backtest.
func (s *schedule) labels(a *app) []backtest.Label {
	labels := make([]backtest.Label, len(s.faults))
	for i := range s.faults {
		f := &s.faults[i]
		labels[i] = backtest.Label{Name: fmt.Sprintf("%02d-%s", i+1, f.kind), Fault: f.kind, Window: f.window}
		labels[i].Target.Service = a.table.Text(a.services[f.service].name)
	}
	return labels
}

// player sends the requests of the application to the engine.
type player struct {
	app      *app
	schedule *schedule
	player   *backtest.Player
	rate     float64
	changed  int // changes that have happened
	open     endings
	spare    []*trace.Trace
}

// minute sends the requests of the minute that starts at time at.
func (q *player) minute(at trace.Nanos) {
	q.app.advance(at)
	end := at.Add(time.Minute)
	for now := q.next(at, q.rate*q.app.load); now < end; now = q.next(now, q.rate*q.app.load) {
		q.change(now)
		if i := q.app.pick(); i >= 0 {
			q.request(q.app.types[i].op, now)
		}
	}
	if !inBatch(at) {
		return
	}
	for now := q.next(at, batchRate); now < end; now = q.next(now, batchRate) {
		q.request(q.app.batch, now)
	}
}

// next returns the time of the event after at in a Poisson process with the given rate per second.
func (q *player) next(at trace.Nanos, rate float64) trace.Nanos {
	return at.Add(time.Duration(q.app.rng.ExpFloat64() / rate * float64(time.Second)))
}

// change makes the changes that are due by until.
func (q *player) change(until trace.Nanos) {
	for ; q.changed < len(q.schedule.changes) && q.schedule.changes[q.changed].at <= until; q.changed++ {
		q.schedule.changes[q.changed].do(q.app)
	}
}

// request makes a request, and plays the traces that have ended by then.
func (q *player) request(op int, at trace.Nanos) {
	q.play(at)
	t := &trace.Trace{}
	if n := len(q.spare); n > 0 {
		t, q.spare = q.spare[n-1], q.spare[:n-1]
	}
	q.app.request(op, at, t)
	_, end := backtest.Extent(t)
	heap.Push(&q.open, ending{end, t})
}

// play plays the traces that have ended by until, in the order of their ends.
func (q *player) play(until trace.Nanos) {
	for len(q.open) > 0 && q.open[0].at <= until {
		t := q.open[0].trace
		heap.Pop(&q.open)
		q.player.Play(t)
		q.spare = append(q.spare, t)
	}
}

// ending is a trace with its end.
type ending struct {
	at    trace.Nanos
	trace *trace.Trace
}

// endings is a heap of traces, by their ends.
type endings []ending

func (e endings) Len() int { return len(e) }

func (e endings) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[k].at), e[i].trace.ID.Compare(e[k].trace.ID)) < 0
}

func (e endings) Swap(i, k int) { e[i], e[k] = e[k], e[i] }

// Push implements heap.Interface.
func (e *endings) Push(x any) {
	if t, ok := x.(ending); ok {
		*e = append(*e, t)
	}
}

// Pop implements heap.Interface.
func (e *endings) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
