package server

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/ingest/jaeger/query"
	"github.com/sibyl-trace/sibyl/store"
)

// fetching fetches traces from the servers of Jaeger that the configuration names, which may change.
type fetching struct {
	taken   intake
	store   *store.Store
	log     *slog.Logger
	changed chan struct{} // wanted did; holds one

	mu     sync.Mutex // guards wanted
	wanted []*puller
}

// puller fetches from one server.
type puller struct {
	*query.Puller
	from config.JaegerQuery
}

// prepare returns pullers for servers: those that there are, where nothing changed.
func (f *fetching) prepare(servers []config.JaegerQuery) ([]*puller, error) {
	var all []*puller
	for _, q := range servers {
		p := f.find(q)
		if p == nil {
			made, err := query.New(f.taken, position{f.store, q.URL}, query.Options{
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

// find returns the puller that fetches from a server just so; nil if none does.
func (f *fetching) find(q config.JaegerQuery) *puller {
	for _, p := range f.all() {
		if reflect.DeepEqual(p.from, q) {
			return p
		}
	}
	return nil
}

// all returns the present pullers. Nobody changes the slice.
func (f *fetching) all() []*puller {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wanted
}

// replace makes others the present pullers.
func (f *fetching) replace(pullers []*puller) {
	f.mu.Lock()
	f.wanted = pullers
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// run has the present pullers fetch until ctx is done, or one of them cannot. One ends before another begins in its place, where that did.
func (f *fetching) run(ctx context.Context) error {
	type fetcher struct {
		stop  context.CancelFunc
		ended chan error // holds one
	}
	running := make(map[*puller]fetcher)
	failed := make(chan struct{}, 1)
	end := func(p *puller) error {
		running[p].stop()
		err := <-running[p].ended
		delete(running, p)
		return err
	}
	var err error
	for again := true; again; {
		wanted := f.all()
		for p := range running {
			if !slices.Contains(wanted, p) {
				err = errors.Join(err, end(p))
			}
		}
		for _, p := range wanted {
			if _, runs := running[p]; runs {
				continue
			}
			fetch, stop := context.WithCancel(ctx)
			x := fetcher{stop, make(chan error, 1)}
			running[p] = x
			go func() {
				err := p.Run(fetch)
				x.ended <- err
				if err != nil {
					select {
					case failed <- struct{}{}:
					default:
					}
				}
			}()
		}
		select {
		case <-f.changed:
		case <-failed:
			again = false
		case <-ctx.Done():
			again = false
		}
	}
	for p := range running {
		err = errors.Join(err, end(p))
	}
	return err
}
