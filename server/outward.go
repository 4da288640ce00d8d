package server

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/control/sampling"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// outward is what the service does beside answering: it tells webhooks, says how much is to be sampled, and fetches traces.
type outward struct {
	config     *config.Config // that of the start: for what a reload does not change
	log        *slog.Logger
	outbox     *store.Outbox
	notifier   *notify.Notifier
	hooks      atomic.Int64 // webhooks that there are
	strategies *sampling.Strategies
	rates      atomic.Pointer[sampling.Options]
	fetching   *fetching
	exporting  *exporting // nil: off
	sampled    *door      // this and the next: set by listen, nil: off
	sampledRPC *door
}

// newOutward makes what c asks for. Requests that are fetched go to taken.
func newOutward(c *config.Config, kept *store.Store, taken intake, log *slog.Logger) (*outward, error) {
	o := &outward{
		config: c, log: log, strategies: sampling.NewStrategies(&sampling.Rates{Default: c.Sampling.Default}),
		fetching: &fetching{taken: taken, store: kept, log: log, changed: make(chan struct{}, 1)},
	}
	var err error
	if o.outbox, err = kept.OpenOutbox(store.DefaultOutboxLimits()); err != nil {
		return nil, err
	}
	if o.notifier, err = notify.New(notify.Options{Outbox: o.outbox, Seed: uint64(time.Now().UnixNano()), Log: log}, nil); err != nil {
		return nil, err
	}
	if o.exporting, err = o.newExporting(kept, c.Engine().Path); err != nil {
		return nil, err
	}
	apply, err := o.prepare(c)
	if err != nil {
		return nil, err
	}
	return o, apply()
}

// prepare returns what makes c hold as far as it can change while the service runs. It is an error if something that c names is no good; nothing
// has changed then.
func (o *outward) prepare(c *config.Config) (apply func() error, err error) {
	endpoints, err := c.Endpoints()
	if err != nil {
		return nil, err
	}
	pullers, err := o.fetching.prepare(c.Jaeger.Query)
	if err != nil {
		return nil, err
	}
	return func() error {
		rates := c.Sampling.Rates()
		o.rates.Store(&rates)
		o.hooks.Store(int64(len(endpoints)))
		o.fetching.replace(pullers)
		return o.notifier.Configure(endpoints)
	}, nil
}

// position keeps how far fetching from a server has come.
type position struct {
	store *store.Store
	url   string
}

// Load implements [query.Positions].
func (p position) Load(context.Context) (time.Time, error) { return p.store.Position(p.url) }

// Save implements [query.Positions].
func (p position) Save(_ context.Context, through time.Time) error {
	return p.store.SavePosition(p.url, through)
}

// epoch is called by the owner of the core when an epoch ended.
func (o *outward) epoch(core *engine.Core, e live.Ended) {
	if o.config.SamplingHTTP != "" || o.config.SamplingGRPC != "" {
		o.strategies.Publish(sampling.RatesOf(core.State(), core.Table(), entryRates(core), o.strategies.Rates(), *o.rates.Load()))
	}
	if o.exporting != nil {
		o.exporting.epoch(core.Problems())
	}
	if o.hooks.Load() == 0 {
		return
	}
	for _, event := range notify.Events(&notify.Epoch{
		At: e.At, Source: "sibyl", Before: &e.Before, After: core.State(), Decisions: e.Decisions, Problems: core.Problems(),
		Names: namesOf(core, e.Decisions),
	}) {
		if err := o.notifier.Tell(event); err != nil {
			o.log.Error("an event is not told", slog.Any("error", err))
		}
	}
}

// entryRates returns the traces per second that come in by entry operation.
func entryRates(core *engine.Core) map[trace.Op]float64 {
	rates := make(map[trace.Op]float64)
	for g := range core.Grouper().Each() {
		if g.Level == group.LevelRequestType {
			rates[g.Entry] += core.Rate(g.ID)
		}
	}
	return rates
}

// namesOf returns names that know the requests of the problems that decisions are about.
func namesOf(core *engine.Core, decisions []search.Decision) *describe.Names {
	names, g := describe.New(core.Table(), describe.Verbatim), core.Grouper()
	for i := range decisions {
		for _, id := range []analysis.Hash{decisions[i].Group.RequestType, decisions[i].Group.Group} {
			if group := g.Group(id); group != nil {
				s := g.Summarize(group)
				names.Add(&s)
			}
		}
	}
	return names
}

// listen opens the addresses for remote sampling that are configured, to each of which there may be so many connections.
func (o *outward) listen(ctx context.Context, most int) (err error) {
	f := frame{"remote sampling", o.config.SamplingHTTP, connlimit.NewShare(most, o.log), o.config.Sampling.TLS, o.log}
	if o.sampled, err = openHTTP(ctx, f, &http.Server{Handler: o.strategies, ReadTimeout: headerTimeout}); err != nil {
		return err
	}
	f.address, f.share = o.config.SamplingGRPC, connlimit.NewShare(most, o.log)
	o.sampledRPC, err = openGRPC(ctx, f, o.strategies.NewGRPC)
	return err
}

// run tells and fetches until ctx is done.
func (o *outward) run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { o.notifier.Run(ctx) })
	if o.exporting != nil {
		running.Go(func() { o.exporting.run(ctx) })
	}
	err := o.fetching.run(ctx)
	running.Wait()
	return err
}
