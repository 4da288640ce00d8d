package wild

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure a run.
type Options struct {
	Seeds     int
	FirstSeed uint64
	Parallel  int // seeds that run at the same time

	Backtest backtest.Options // Table is not used
	Keys     *ingest.Keys     // attributes to keep
	Progress func(done, all int)
}

// progressEvery is the simulated time between two calls of Options.Progress.
const progressEvery = 10 * time.Minute

// Run runs the applications of o.Seeds seeds and judges the incidents. It returns an error if ctx ends, or if the
// decoder refuses spans.
func Run(ctx context.Context, o Options) (*Report, error) {
	answers := make([]answer, o.Seeds)
	p := progress{report: o.Progress}
	generators := make([]*generator, o.Seeds)
	for i := range generators {
		generators[i] = newGenerator(o.FirstSeed + uint64(i))
		p.all += int(generators[i].end.Sub(begin) / progressEvery)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, o.Parallel))
	for i, g := range generators {
		group.Go(func() (err error) {
			answers[i], err = play(ctx, &o, g, p.step)
			generators[i] = nil // frees memory
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return newReport(answers), nil
}

// progress counts the steps of all seeds.
type progress struct {
	report func(done, all int)
	all    int

	mu   sync.Mutex
	done int // guarded by mu
}

func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done++; p.report != nil {
		p.report(min(p.done, p.all), p.all)
	}
}

// play plays the traces of g and judges the incidents.
func play(ctx context.Context, o *Options, g *generator, step func()) (answer, error) {
	table := &trace.Table{}
	options := o.Backtest
	options.Table = table
	player := backtest.NewPlayer(nil, options)
	decoder := otlp.NewDecoder(table, o.Keys)
	w := newWatch(g, table)
	var batch ingest.Batch
	next, shown := begin, begin
	err := g.run(func(end trace.Nanos, t *recorded, data []byte) error {
		batch.Reset()
		if err := decoder.Protobuf(data, &batch); err != nil {
			return fmt.Errorf("decode a generated trace: %w", err)
		}
		if len(batch.Rejected) > 0 {
			return fmt.Errorf("a generated span was refused: %s", batch.Rejected[0].Detail)
		}
		player.Play(&trace.Trace{ID: t.id, Spans: batch.Spans, Attrs: batch.Attrs, Joins: batch.Joins})
		if end >= next {
			w.see(end, player.Incidents())
			next = end.Add(options.Core.Epoch)
		}
		if w.count(t); end >= shown {
			step()
			shown = shown.Add(progressEvery)
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return answer{}, fmt.Errorf("seed %d: %w", g.seed, err)
	}
	r := player.Finish()
	w.see(r.To, player.Incidents())
	return w.judge(r), nil
}
