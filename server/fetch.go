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

// fetching fetches traces from the configured Jaeger servers, which may change while the service runs.
type fetching struct {
	intake  intake
	store   *store.Store
	log     *slog.Logger
	changed chan struct{} // signals a change of wanted; has capacity 1

	mu     sync.Mutex // guards wanted
	wanted []*fetcher
}

// fetcher fetches from one server.
type fetcher struct {
	fetcher  *query.Fetcher
	settings config.JaegerQuery
}

// prepare returns fetchers for servers. It reuses the current fetcher if a server's settings haven't changed.
func (f *fetching) prepare(servers []config.JaegerQuery) ([]*fetcher, error) {
	var all []*fetcher
	for _, q := range servers {
		p := f.find(q)
		if p == nil {
			made, err := query.New(f.intake, position{f.store, q.URL}, query.Options{
				URL:      q.URL,
				Protocol: q.Protocol,
				Services: q.Services,
				Interval: q.Interval,
				Lookback: q.Lookback,
				Log:      f.log,
			})
			if err != nil {
				return nil, err
			}
			p = &fetcher{made, q}
		}
		all = append(all, p)
	}
	return all, nil
}

// find returns the current fetcher with the settings q, or nil if there is no such fetcher.
func (f *fetching) find(q config.JaegerQuery) *fetcher {
	for _, p := range f.all() {
		if reflect.DeepEqual(p.settings, q) {
			return p
		}
	}
	return nil
}

// all returns the current fetchers. The slice is immutable.
func (f *fetching) all() []*fetcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted
}

// replace makes fetchers the current ones and wakes run.
func (f *fetching) replace(fetchers []*fetcher) {
	f.mu.Lock()
	f.wanted = fetchers
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// run runs the current fetchers until ctx is done or one of them fails. A fetcher that is replaced ends before its
// successor starts.
func (f *fetching) run(ctx context.Context) error {
	type task struct {
		stop  context.CancelFunc
		ended chan struct{}
	}
	tasks := make(map[*fetcher]task)
	running, ctx := errgroup.WithContext(ctx)
	for ctx.Err() == nil {
		wanted := f.all()
		for p, x := range tasks {
			if !slices.Contains(wanted, p) {
				x.stop()
				<-x.ended
				delete(tasks, p)
			}
		}
		for _, p := range wanted {
			if _, runs := tasks[p]; runs {
				continue
			}
			fetch, stop := context.WithCancel(ctx)
			x := task{stop, make(chan struct{})}
			tasks[p] = x
			running.Go(func() error {
				defer close(x.ended)
				defer stop()
				return p.fetcher.Run(fetch)
			})
		}
		select {
		case <-f.changed:
		case <-ctx.Done():
		}
	}
	return running.Wait()
}
