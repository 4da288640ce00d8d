package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/config"
	"github.com/sibyl-trace/sibyl/control/sampling"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/jaeger/query"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
	"github.com/sibyl-trace/sibyl/words"
)

// outward is what the service does beside answering: it tells webhooks, says how much is to be sampled, and fetches traces.
type outward struct {
	config     *config.Config
	log        *slog.Logger
	outbox     *store.Outbox
	notifier   *notify.Notifier
	strategies *sampling.Strategies
	pullers    []*query.Puller
	sampled    *http.Server // nil: off
	sampledRPC *grpc.Server // nil: off
}

// newOutward makes what c asks for. Requests that are fetched go to intake.
func newOutward(c *config.Config, kept *store.Store, taken intake, log *slog.Logger) (*outward, error) {
	o := &outward{config: c, log: log, strategies: sampling.NewStrategies(&sampling.Rates{Default: sampling.DefaultOptions().Default})}
	var endpoints []notify.Endpoint
	for i := range c.Webhooks {
		e, err := c.Webhooks[i].Endpoint()
		if err != nil {
			return nil, err
		}
		endpoints = append(endpoints, *e)
	}
	var err error
	if o.outbox, err = kept.OpenOutbox(store.DefaultOutboxLimits()); err != nil {
		return nil, err
	}
	if o.notifier, err = notify.New(notify.Options{Outbox: o.outbox, Seed: uint64(time.Now().UnixNano()), Log: log}, endpoints); err != nil {
		return nil, err
	}
	for _, q := range c.Jaeger.Query {
		p, err := query.New(taken, position{kept, q.URL}, query.Options{
			URL: q.URL, Protocol: q.Protocol, Services: q.Services, Interval: q.Interval, Lookback: q.Lookback, Log: log,
		})
		if err != nil {
			return nil, err
		}
		o.pullers = append(o.pullers, p)
	}
	return o, nil
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
		o.strategies.Publish(sampling.RatesOf(core.State(), core.Table(), entryRates(core), o.strategies.Rates(), sampling.DefaultOptions()))
	}
	if len(o.config.Webhooks) == 0 {
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
	if address := o.config.SamplingHTTP; address != "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen for remote sampling: %w", err)
		}
		o.sampled = &http.Server{Handler: o.strategies, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
		serve = append(serve, func() error {
			if err := o.sampled.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve remote sampling: %w", err)
			}
			return nil
		})
	}
	if address := o.config.SamplingGRPC; address != "" {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen for remote sampling: %w", err), o.stop(ctx))
		}
		o.sampledRPC = o.strategies.NewGRPC()
		serve = append(serve, func() error { return o.sampledRPC.Serve(l) })
	}
	return serve, nil
}

// run tells and fetches until ctx is done.
func (o *outward) run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { o.notifier.Run(ctx) })
	errs := make([]error, len(o.pullers))
	for i, p := range o.pullers {
		running.Go(func() { errs[i] = p.Run(ctx) })
	}
	running.Wait()
	return errors.Join(errs...)
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
