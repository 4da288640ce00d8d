// Package server runs the service behind `sibyl serve`. It opens the data directory, connects the parts of the service
// as configured, and stops them in order. The life cycle of a [Server] is New, Listen, Serve, Close.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/login"
	"github.com/sibyl-trace/sibyl/api/operating"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/internal/durable"
	"github.com/sibyl-trace/sibyl/internal/listener"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
)

// Server is the whole service: it owns its parts and the data directory.
type Server struct {
	config   *config.Config // configuration at the start
	log      *slog.Logger
	shared   shared
	disk     *pebbledb.Disk
	giveUp   func(error)
	main     *tenant                 // the default tenant
	open     atomic.Pointer[tenants] // all tenants that are served; replaced when one is created or deleted
	receiver *receiver.Server
	files    fileLimits
	http     *listener.Listener // this and agents are set by Listen; nil if off
	agents   *listener.Listener // for OpAMP

	changing sync.Mutex     // held while a tenant is created or withdrawn and while the configuration is applied
	applied  *config.Config // configuration since the last reload; guarded by changing
	start    func(*tenant)  // runs a tenant; nil unless the service is serving; guarded by changing
	removing sync.WaitGroup // tenants that are being deleted; changing guards Add
}

// shared holds the parts of the service that do not depend on a tenant.
type shared struct {
	build   Build
	tenants operating.Tenants
	tokens  *access.Tokens
	login   *login.Service // nil if people can't log in
	traced  *selfTracing   // nil if off
}

// New opens the data directory of c, locks it against other processes, and connects the parts of the service. A
// database calls giveUp if it cannot continue.
func New(c *config.Config, build Build, log *slog.Logger, giveUp func(error)) (s *Server, err error) {
	debug.SetMemoryLimit(c.Memory / 4 * 3) // the collector exceeds it by up to a half while much is allocated
	s = &Server{config: c, log: log, giveUp: giveUp, applied: c}
	s.open.Store(&tenants{})
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.openAll(); err != nil {
		return s, err
	}
	if s.shared, err = s.newShared(build); err != nil {
		return s, err
	}
	for _, t := range s.all() {
		if err := t.serve(&s.shared); err != nil {
			return s, err
		}
	}
	s.main.registry.MustRegister(collector{s}, othersCollector{s})
	s.warnOfUnknown()
	s.receiver, err = s.newReceiver()
	return s, err
}

// openAll opens the data directories of all tenants. It first finishes deletions of tenants that were interrupted when
// the process was killed.
func (s *Server) openAll() (err error) {
	c := s.config
	if err := durable.MkdirAll(c.DataDir); err != nil {
		return fmt.Errorf("make the data directory: %w: name another one with --data-dir", err)
	}
	if s.disk, err = pebbledb.NewDisk(c.DataDir); err != nil {
		return err
	}
	if err := finishDeletions(c.DataDir); err != nil {
		return err
	}
	quotas, err := Tenants(c.DataDir)
	if err != nil {
		return err
	}
	if len(quotas) > 0 && c.Clustered() {
		return errClusterTenants
	}
	each, err := configs(c, quotas)
	if err != nil {
		return err
	}
	s.files = ownFileLimits(len(each))
	for i, c := range each {
		o := opening{config: c, disk: s.disk, files: s.files.database, giveUp: s.giveUp, log: s.log}
		if i > 0 {
			o.Tenant = quotas[i-1]
		}
		t, err := openTenant(o)
		s.open.Store(s.open.Load().with(t))
		if err != nil {
			return err
		}
	}
	s.main = s.all()[0]
	return nil
}

// newShared returns the parts that all tenants share.
func (s *Server) newShared(build Build) (x shared, err error) {
	c, log := s.config, s.log
	x = shared{build: build, tenants: s, tokens: access.OpenLogged(c.DataDir, log)}
	if x.traced, err = newSelfTracing(&c.SelfTracing, build.Version, log); err != nil {
		return x, err
	}
	if x.login, err = newLogin(c, s.named, log); err != nil {
		return x, err
	}
	return x, nil
}

const drainTimeout = 20 * time.Second

// errEnded is the error for a part of the service that returns nil before the service is stopped.
var errEnded = errors.New("a part of the service stopped unexpectedly")

// Serve runs the service until ctx is done or one of its parts ends. It then accepts no more requests, finishes the
// current ones, takes a checkpoint and returns the errors of all parts.
func (s *Server) Serve(ctx context.Context) error {
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	running, stopping := errgroup.WithContext(ctx)
	var mu sync.Mutex // guards errs
	var errs []error
	run := func(until context.Context, part func() error) {
		running.Go(func() error {
			err := part()
			if err == nil && stopping.Err() == nil && until.Err() == nil {
				err = errEnded
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
			return err
		})
	}
	run(work, s.receiver.Serve)
	for _, l := range s.listeners() {
		run(work, l.Serve)
	}
	s.setStart(func(t *tenant) { t.start(work, run) })
	if s.shared.login != nil {
		running.Go(func() error { s.shared.login.Discover(work); return nil })
	}
	<-stopping.Done()
	s.log.InfoContext(ctx, "stopping")
	s.setStart(nil)
	drained := s.drain(context.WithoutCancel(ctx))
	stopWork()
	_ = running.Wait() // errs contains its error and all others
	s.removing.Wait()
	if s.shared.traced != nil {
		s.shared.traced.close(s.log)
	}
	for _, t := range s.all() {
		j, n := t.journal.Stats(), t.live.Counts()
		t.log.InfoContext(ctx, "stopped",
			slog.Int64("requests", n.Requests.Load()), slog.Int64("spans", n.Spans.Load()),
			slog.Int64("commits", n.Commits.Load()), slog.Int64("fsyncs", j.Syncs),
			slog.Int64("journal_bytes", n.Packed.Load()))
	}
	return errors.Join(append(errs, drained)...)
}

// setStart sets the function that runs tenants, and calls it for all tenants unless it is nil.
func (s *Server) setStart(start func(*tenant)) {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.start = start
	if start == nil {
		return
	}
	for _, t := range s.all() {
		start(t)
	}
}

// newLogin returns the log-in that c configures, or nil if c configures no identity provider. named reports whether a
// tenant exists.
func newLogin(c *config.Config, named func(string) bool, log *slog.Logger) (*login.Service, error) {
	o := &c.OIDC
	if o.Issuer == "" {
		return nil, nil
	}
	secret, err := o.ClientSecret()
	if err != nil {
		return nil, fmt.Errorf("log-in: %w", err)
	}
	return login.New(login.Options{
		Issuer:       o.Issuer,
		ClientID:     o.ClientID,
		ClientSecret: secret,
		Audience:     o.Audience,
		Scopes:       o.Scopes,
		URL:          c.LoginURL(),
		Roles:        login.Roles(o.Roles),
		TenantClaim:  o.TenantClaim,
		IsTenant:     named,
		Dir:          c.DataDir,
		Clock:        time.Now,
		Log:          log,
	})
}

// drain closes all listeners once the current requests are answered, or after drainTimeout.
func (s *Server) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for _, t := range s.all() {
		t.leave()
	}
	err := s.receiver.Shutdown(ctx)
	for _, l := range s.listeners() {
		err = errors.Join(err, l.Drain(ctx))
	}
	return err
}

// Close closes the databases and unlocks the data directory.
func (s *Server) Close() (err error) {
	for _, t := range s.all() {
		err = errors.Join(err, t.close())
	}
	return err
}

// Build identifies a build.
type Build struct{ Version, Go string }
