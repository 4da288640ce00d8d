package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/config"
	"github.com/sibyl-trace/sibyl/control/sampling"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
	"github.com/sibyl-trace/sibyl/words"
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
	exporting  *exporting           // nil: off
	sampled    *http.Server         // nil: off
	sampledRPC *grpc.Server         // nil: off
	accepts    []*receiver.Listener // of these two
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
		if g.Level == analysis.RequestTypeLevel {
			rates[g.Entry] += core.Rate(g.ID)
		}
	}
	return rates
}

// namesOf returns names that know the requests of the problems that decisions are about.
func namesOf(core *engine.Core, decisions []search.Decision) *words.Names {
	names, g := words.New(core.Table(), words.Verbatim), core.Grouper()
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

// listen opens the addresses for remote sampling that are configured.
func (o *outward) listen(ctx context.Context) (serve []func() error, err error) {
	encrypted, err := encryption(o.config.Sampling.TLS).Config()
	if err != nil {
		return nil, fmt.Errorf("remote sampling: %w", err)
	}
	if address := o.config.SamplingHTTP; address != "" {
		accepts, err := receiver.Listen(ctx, address, connections(otherConnections))
		if err != nil {
			return nil, fmt.Errorf("listen for remote sampling: %w", err)
		}
		o.accepts = append(o.accepts, accepts)
		var l net.Listener = accepts
		if encrypted != nil {
			l = tls.NewListener(l, encrypted)
		}
		o.sampled = &http.Server{
			Handler: o.strategies, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
			ErrorLog: slog.NewLogLogger(o.log.Handler(), slog.LevelDebug),
		}
		serve = append(serve, func() error {
			if err := o.sampled.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve remote sampling: %w", err)
			}
			return nil
		})
	}
	if address := o.config.SamplingGRPC; address != "" {
		l, err := receiver.Listen(ctx, address, connections(otherConnections))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for remote sampling: %w", err), o.stop(ctx))
		}
		o.accepts = append(o.accepts, l)
		var options []grpc.ServerOption
		if encrypted != nil {
			options = append(options, grpc.Creds(credentials.NewTLS(encrypted)))
		}
		o.sampledRPC = o.strategies.NewGRPC(options...)
		serve = append(serve, func() error { return o.sampledRPC.Serve(l) })
	}
	return serve, nil
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

// stop closes what listens.
func (o *outward) stop(ctx context.Context) error {
	if o.sampledRPC != nil {
		o.sampledRPC.Stop()
	}
	if o.sampled != nil {
		return o.sampled.Shutdown(ctx)
	}
	return nil
}
