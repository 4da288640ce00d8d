// Package livetest runs a service in tests, with a clock that the tests set.
package livetest

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Service is a running service with its own clock.
type Service struct {
	*live.Service
	t     *testing.T
	store *store.Store
	stop  func() error // returns the error of Run on the first call, and nil after that
	now   atomic.Int64
	epoch trace.Nanos // length of an epoch
}

// Start starts a service whose clock shows at. The service stops at the end of the test.
func Start(t *testing.T, o live.Options, at trace.Nanos) *Service {
	t.Helper()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	o.Journal, err = journal.Open(journal.Options{Dir: filepath.Join(dir, "journal"), Disk: disk, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if o.Store, err = store.Open(store.Options{Dir: filepath.Join(dir, "store"), Disk: disk, Log: log}); err != nil {
		t.Fatal(err)
	}
	s := &Service{t: t, store: o.Store, epoch: trace.Nanos(o.Core.Epoch)}
	s.now.Store(int64(at))
	o.Clock, o.Log = func() time.Time { return time.Unix(0, s.now.Load()) }, log
	if s.Service, err = live.Open(o); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() {
		stopped <- s.Run(ctx)
		close(stopped)
	}()
	<-s.Started()
	s.stop = func() error {
		stop()
		return <-stopped
	}
	t.Cleanup(func() {
		if err := errors.Join(s.stop(), o.Journal.Close(), o.Store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Stop stops the service and returns the state of its core.
func (s *Service) Stop() []byte {
	s.t.Helper()
	if err := s.stop(); err != nil {
		s.t.Fatal(err)
	}
	c, err := s.store.Checkpoints.Load()
	if err != nil || c == nil {
		s.t.Fatalf("checkpoint %v, %v", c, err)
	}
	return c.State
}

// Pass moves the clock forward to `to`, and lets the service end each epoch in between.
func (s *Service) Pass(to trace.Nanos) {
	s.t.Helper()
	for now := trace.Nanos(s.now.Load()); now < to; {
		now = min(to, now/s.epoch*s.epoch+s.epoch)
		s.now.Store(int64(now))
		if err := s.Flush(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Send sends x to the service at time at.
func (s *Service) Send(at trace.Nanos, x *trace.Trace, table *trace.Table) {
	s.t.Helper()
	body, err := tracegen.Protobuf([]*trace.Trace{x}, table)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Receive(at, body)
}

// Receive passes body, an export request, to the service at time at.
func (s *Service) Receive(at trace.Nanos, body []byte) {
	s.t.Helper()
	s.Pass(at)
	if _, _, err := s.Service.Take(s.t.Context(), body, journal.Protobuf); err != nil {
		s.t.Fatal(err)
	}
}
