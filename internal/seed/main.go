// Command seed fills the data directory of a service with what it would hold after applications had run under it for a while, faults
// included: something to look at for the tests and pictures of the web UI. `sibyl serve` on the same directory, with --learning 1m, goes on
// from there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/internal/kv"
	"github.com/sibyl-trace/sibyl/internal/simapp"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

func main() {
	dir := flag.String("dir", "", "the data directory, which must not exist")
	epochs := flag.Int("epochs", 48, "epochs of ten seconds that end now, of applications")
	much := flag.Bool("large", false, "thousands of problems and groups, and a tree of 20 000 nodes, instead of applications")
	flag.Parse()
	if err := seed(*dir, *epochs, *much); err != nil {
		fmt.Fprintln(os.Stderr, "seed:", err)
		os.Exit(1)
	}
}

// applications is what runs: each has another fault, strong enough to be found whenever the state is made, and as many requests at all times
// of the day: what is random is so by the time.
var applications = []simapp.Config{
	{Seed: 3, Fault: simapp.ThirdParty, Strength: 2, Tracepoints: 100, Rate: 12, Diurnal: -1},
	{Seed: 23, Fault: simapp.Host, Strength: 2, Tracepoints: 250, Services: 9, Rate: 16, Optional: 0.05, Caches: -1, Diurnal: -1},
	{Seed: 7, Fault: simapp.Disk, Strength: 4, Tracepoints: 150, Rate: 12, Diurnal: -1},
}

// Times of the play, in epochs.
const (
	epoch       = 10 * time.Second
	learning    = 6
	faultsAt    = 12 // when faults begin
	appOffset   = 4  // and how much later that of each further application does
	deployAhead = 2  // how long before its fault an application is deployed
)

func seed(dir string, epochs int, much bool) error {
	if _, err := os.Stat(dir); dir == "" || !errors.Is(err, os.ErrNotExist) {
		return errors.New("--dir must name a directory that does not exist")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	end := trace.Nanos(time.Now().Truncate(epoch).UnixNano())
	if much {
		return large(dir, end)
	}
	return applied(dir, epochs, end)
}

// applied plays applications to a service.
func applied(dir string, epochs int, end trace.Nanos) (err error) {
	s, err := open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	now := end.Add(-time.Duration(epochs) * epoch)
	s.clock.Store(int64(now))
	var apps []*simapp.App
	for _, c := range applications {
		apps = append(apps, simapp.New(c))
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- s.live.Run(ctx) }()
	defer func() { stop(); err = errors.Join(err, <-stopped, s.bury(end)) }()
	<-s.live.Started()
	for i := range epochs {
		for k, app := range apps {
			if i == faultsAt+k*appOffset {
				app.Inject(now)
			}
		}
		if err := s.play(ctx, apps, i, now, now.Add(epoch)); err != nil {
			return err
		}
		now = now.Add(epoch)
	}
	return nil
}

// seeded is a service whose clock is set by hand.
type seeded struct {
	clock   atomic.Int64
	journal *journal.Journal
	store   *store.Store
	live    *live.Service
}

func open(dir string) (*seeded, error) {
	disk, err := kv.NewDisk(dir)
	if err != nil {
		return nil, err
	}
	s, log := &seeded{}, slog.New(slog.DiscardHandler)
	if s.journal, err = journal.Open(journal.Options{Dir: filepath.Join(dir, "journal"), Disk: disk, Log: log}); err != nil {
		return nil, err
	}
	if s.store, err = store.Open(store.Options{Dir: filepath.Join(dir, "store"), Disk: disk, Log: log}); err != nil {
		return nil, err
	}
	o := live.DefaultOptions()
	o.Core.Learning = learning * epoch
	o.Journal, o.Store, o.Log = s.journal, s.store, log
	o.Clock = func() time.Time { return time.Unix(0, s.clock.Load()) }
	s.live, err = live.Open(o)
	return s, err
}

func (s *seeded) close() error { return errors.Join(s.store.Close(), s.journal.Close()) }

// play plays the i-th epoch.
func (s *seeded) play(ctx context.Context, apps []*simapp.App, i int, from, to trace.Nanos) error {
	if i == 0 {
		if err := s.announce(ctx, apps); err != nil {
			return err
		}
	}
	plan, err := s.plan(ctx)
	if err != nil {
		return err
	}
	for k, app := range apps {
		if err := s.send(ctx, app, from, to, plan, i >= faultsAt+k*appOffset-deployAhead); err != nil {
			return err
		}
	}
	s.settle()
	s.clock.Store(int64(to))
	s.settle()
	return nil
}

// settle waits until the clock was looked at, and what was sent has been taken.
func (s *seeded) settle() {
	for n := s.live.Counts().Ticks.Load(); s.live.Counts().Ticks.Load() < n+2; {
		time.Sleep(time.Millisecond)
	}
	_ = s.live.Ask(context.Background(), func(*engine.Core) {}) // it is running
}
