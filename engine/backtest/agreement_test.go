package backtest_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/bench/fixtures/tracegen"
	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// The engine is in the same state as that of the service after it received each trace when it ended.
func TestAgreesWithService(t *testing.T) {
	const from = trace.Nanos(1_700_000_000_000_000_000)
	app := sim.New(sim.Config{Seed: 3, Fault: sim.SlowPath, Tracepoints: 100, Rate: 30, Messages: -1})
	app.Inject(from.Add(70 * time.Second))
	var traces []*trace.Trace
	for x := range app.Requests(from, from.Add(3*time.Minute), nil) {
		copied := &trace.Trace{ID: x.ID}
		copied.Append(x)
		traces = append(traces, copied)
	}
	slices.SortStableFunc(traces, func(a, b *trace.Trace) int {
		_, x := backtest.Extent(a)
		_, y := backtest.Extent(b)
		return cmp.Compare(x, y)
	})
	o := live.DefaultOptions()
	o.Core.Learning = 30 * time.Second

	recording, err := tracegen.Protobuf(traces, app.Table())
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "traces.pb")
	if err := os.WriteFile(name, recording, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := file.Read(t.Context(), []string{name}, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	timeline := assemble.NewTimeline(assemble.Options{})
	for x, err := range in.All() {
		_, end := backtest.Extent(x)
		if err := errors.Join(err, timeline.Add(end, x)); err != nil {
			t.Fatal(err)
		}
	}
	got := engine.NewCore(in.Table, o.Core)
	p := backtest.NewCorePlayer(got, backtest.Options{Table: in.Table, Core: o.Core, Assembly: o.Assembly})
	for x := range timeline.All() {
		p.Play(x)
	}
	p.Finish()

	_, first := backtest.Extent(traces[0])
	s := startService(t, o, first)
	for _, x := range traces {
		_, end := backtest.Extent(x)
		s.send(end, x, app.Table())
	}
	s.pass(p.Now())
	err = s.Ask(t.Context(), func(want *engine.Core) {
		if !want.Learned() || len(want.Problems()) == 0 {
			t.Errorf("the service has %d problems, want some", len(want.Problems()))
		}
		if want.Ended() != got.Ended() || len(want.Problems()) != len(got.Problems()) || !bytes.Equal(want.AppendState(nil), got.AppendState(nil)) {
			t.Errorf("the states differ: epochs ended at %d and %d, %d and %d problems", want.Ended(), got.Ended(), len(want.Problems()), len(got.Problems()))
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// service is a running service with a clock.
type service struct {
	*live.Service
	t     *testing.T
	now   atomic.Int64
	epoch trace.Nanos // length
}

// startService starts a service at a time.
func startService(t *testing.T, o live.Options, at trace.Nanos) *service {
	t.Helper()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	if o.Journal, err = journal.Open(journal.Options{Dir: filepath.Join(dir, "journal"), Disk: disk, Log: log}); err != nil {
		t.Fatal(err)
	}
	if o.Store, err = store.Open(store.Options{Dir: filepath.Join(dir, "store"), Disk: disk, Log: log}); err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, epoch: trace.Nanos(o.Core.Epoch)}
	s.now.Store(int64(at))
	o.Clock, o.Log = func() time.Time { return time.Unix(0, s.now.Load()) }, log
	if s.Service, err = live.Open(o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	<-s.Started()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-stopped, o.Journal.Close(), o.Store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// pass passes the time, ending each epoch.
func (s *service) pass(to trace.Nanos) {
	s.t.Helper()
	for now := trace.Nanos(s.now.Load()); now < to; {
		now = min(to, now/s.epoch*s.epoch+s.epoch)
		s.now.Store(int64(now))
		if err := s.Flush(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// send sends a trace at a time.
func (s *service) send(at trace.Nanos, x *trace.Trace, table *trace.Table) {
	s.t.Helper()
	body, err := tracegen.Protobuf([]*trace.Trace{x}, table)
	if err != nil {
		s.t.Fatal(err)
	}
	s.take(at, body)
}

// take sends an export request at a time.
func (s *service) take(at trace.Nanos, body []byte) {
	s.t.Helper()
	s.pass(at)
	if _, _, err := s.Take(s.t.Context(), body, journal.Protobuf); err != nil {
		s.t.Fatal(err)
	}
}
