package server

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/ingest/jaeger/query"
	"github.com/sibyl-trace/sibyl/store"
)

// fetching fetches traces from the configured Jaeger servers, which may change.
type fetching struct {
	intake  intake
	store   *store.Store
	log     *slog.Logger
	changed chan struct{} // signals a change of wanted; holds one

	mu     sync.Mutex // guards wanted
	wanted []*puller
}

// puller fetches from one server.
type puller struct {
	puller   *query.Puller
	settings config.JaegerQuery
}

// prepare returns pullers for servers. For an unchanged server it returns the present one.
func (f *fetching) prepare(servers []config.JaegerQuery) ([]*puller, error) {
	var all []*puller
	for _, q := range servers {
		p := f.find(q)
		if p == nil {
			made, err := query.New(f.intake, position{f.store, q.URL}, query.Options{
				URL: q.URL, Protocol: q.Protocol, Services: q.Services, Interval: q.Interval, Lookback: q.Lookback, Log: f.log,
			})
			if err != nil {
				return nil, err
			}
			p = &puller{made, q}
		}
		all = append(all, p)
	}
	return all, nil
}

// find returns the present puller with the settings q; nil if there is none.
func (f *fetching) find(q config.JaegerQuery) *puller {
	for _, p := range f.all() {
		if reflect.DeepEqual(p.settings, q) {
			return p
		}
	}
	return nil
}

// all returns the present pullers. The slice is immutable.
func (f *fetching) all() []*puller {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted
}

// replace replaces the present pullers.
func (f *fetching) replace(pullers []*puller) {
	f.mu.Lock()
	f.wanted = pullers
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// run runs the present pullers until ctx is done or one of them fails. A puller that is replaced ends before its
// successor begins.
func (f *fetching) run(ctx context.Context) error {
	type fetcher struct {
		stop  context.CancelFunc
		ended chan struct{}
	}
	fetchers := make(map[*puller]fetcher)
	running, ctx := errgroup.WithContext(ctx)
	for ctx.Err() == nil {
		wanted := f.all()
		for p, x := range fetchers {
			if !slices.Contains(wanted, p) {
				x.stop()
				<-x.ended
				delete(fetchers, p)
			}
		}
		for _, p := range wanted {
			if _, runs := fetchers[p]; runs {
				continue
			}
			fetch, stop := context.WithCancel(ctx)
			x := fetcher{stop, make(chan struct{})}
			fetchers[p] = x
			running.Go(func() error {
				defer close(x.ended)
				defer stop()
				return p.puller.Run(fetch)
			})
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
		}
	}
	return running.Wait()
}
