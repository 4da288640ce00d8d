// Package server runs the service behind `sibyl serve`. It opens the data directory, connects the parts of the service
// as configured, and stops them in order. The life cycle of a [Server] is New, Listen, Serve, Close.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/login"
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
	tenants  []*tenant // starts with main; the others are sorted by name
	main     *tenant   // the default tenant
	others   map[string]*tenant
	quotas   []Tenant // of the others at the start, sorted by name
	receiver *receiver.Server
	files    fileLimits
	http     *listener.Listener // this and the following are set by Listen; nil if off
	agents   *listener.Listener // address of OpAMP
}

// shared holds the parts of the service that do not depend on a tenant.
type shared struct {
	build   Build
	tenants []contract.TenantPath
	tokens  *access.Tokens
	login   *login.Service // nil if people can't log in
	traced  *selfTracing   // nil if off
}

// New opens the data directory of c, locks it against other processes, and connects the parts of the service. A
// database calls giveUp if it cannot continue.
func New(c *config.Config, build Build, log *slog.Logger, giveUp func(error)) (s *Server, err error) {
	debug.SetMemoryLimit(c.Memory / 4 * 3) // the collector exceeds it by up to a half while much is allocated
	s = &Server{config: c, log: log, others: make(map[string]*tenant)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.open(giveUp); err != nil {
		return s, err
	}
	if s.shared, err = newShared(c, s.paths(), build, log); err != nil {
		return s, err
	}
	for _, t := range s.tenants {
		if err := t.serve(&s.shared); err != nil {
			return s, err
		}
	}
	s.main.registry.MustRegister(collector{s})
	for name, t := range s.others {
		labelled := prometheus.WrapRegistererWith(prometheus.Labels{"tenant": name}, s.main.registry)
		labelled.MustRegister(append(t.api.Collectors(), tenantCollector{t})...)
	}
	s.receiver, err = s.newReceiver()
	return s, err
}

// open opens the data directories of all tenants.
func (s *Server) open(giveUp func(error)) error {
	c := s.config
	if err := durable.MkdirAll(c.DataDir); err != nil {
		return fmt.Errorf("make the data directory: %w: name another one with --data-dir", err)
	}
	disk, err := pebbledb.NewDisk(c.DataDir)
	if err != nil {
		return err
	}
	if s.quotas, err = Tenants(c.DataDir); err != nil {
		return err
	}
	each, err := configs(c, s.quotas)
	if err != nil {
		return err
	}
	s.files = ownFileLimits(len(each))
	for i, c := range each {
		o := opening{config: c, disk: disk, files: s.files.database, giveUp: giveUp, log: s.log}
		if i > 0 {
			o.name, o.spans = s.quotas[i-1].Name, float64(s.quotas[i-1].Spans)
			o.log = s.log.With(slog.String("tenant", o.name))
		}
		t, err := openTenant(o)
		s.tenants = append(s.tenants, t)
		if err != nil {
			return err
		}
		if i > 0 {
			s.others[t.name] = t
		}
	}
	s.main = s.tenants[0]
	return nil
}

// paths returns the names of all tenants, as people call them, and their paths.
func (s *Server) paths() (all []contract.TenantPath) {
	for _, t := range s.tenants {
		name := cmp.Or(t.name, access.DefaultTenant)
		all = append(all, contract.TenantPath{Name: name, Path: t.config.API.BasePath})
	}
	return all
}

// newShared returns the parts that c configures, for these tenants.
func newShared(
	c *config.Config, tenants []contract.TenantPath, build Build, log *slog.Logger,
) (x shared, err error) {
	x = shared{build: build, tenants: tenants, tokens: access.OpenLogged(c.DataDir, log)}
	if x.traced, err = newSelfTracing(&c.SelfTracing, build.Version, log); err != nil {
		return x, err
	}
	if x.login, err = newLogin(c, tenants, log); err != nil {
		return x, err
	}
	return x, nil
}

const drainTimeout = 20 * time.Second

// errEnded is the error if a part ends without an error before the service is stopped.
var errEnded = errors.New("a part of the service stopped unexpectedly")

// Serve runs the service until ctx is done or one of its parts ends. It then accepts no more requests, finishes the
// current ones, takes a checkpoint and returns the errors of all parts.
func (s *Server) Serve(ctx context.Context) error {
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	parts := []func() error{s.receiver.Serve}
	for _, t := range s.tenants {
		parts = append(parts, t.parts(work)...)
	}
	for _, l := range s.listeners() {
		parts = append(parts, l.Serve)
	}
	running, stopping := errgroup.WithContext(ctx)
	errs := make([]error, len(parts))
	for i, part := range parts {
		running.Go(func() error {
			errs[i] = part()
			if errs[i] == nil && stopping.Err() == nil {
				errs[i] = errEnded
			}
			return errs[i]
		})
	}
	for _, t := range s.tenants {
		running.Go(func() error { t.awaitReady(work); return nil })
		running.Go(func() error { t.audit.Run(work); return nil })
	}
	if s.shared.login != nil {
		running.Go(func() error { s.shared.login.Discover(work); return nil })
	}
	<-stopping.Done()
	s.log.InfoContext(ctx, "stopping")
	drained := s.drain(context.WithoutCancel(ctx))
	stopWork()
	_ = running.Wait() // errs contains its error and all others
	if s.shared.traced != nil {
		s.shared.traced.close(s.log)
	}
	for _, t := range s.tenants {
		j, n := t.journal.Stats(), t.live.Counts()
		t.log.InfoContext(ctx, "stopped",
			slog.Int64("requests", n.Requests.Load()), slog.Int64("spans", n.Spans.Load()),
			slog.Int64("commits", n.Commits.Load()), slog.Int64("fsyncs", j.Syncs),
			slog.Int64("journal_bytes", n.Packed.Load()))
	}
	return errors.Join(append(errs, drained)...)
}

// newLogin returns the log-in that c describes, or nil if there is none.
func newLogin(c *config.Config, tenants []contract.TenantPath, log *slog.Logger) (*login.Service, error) {
	o := &c.OIDC
	if o.Issuer == "" {
		return nil, nil
	}
	secret, err := o.ClientSecret()
	if err != nil {
		return nil, fmt.Errorf("log-in: %w", err)
	}
	var names []string
	for _, t := range tenants {
		names = append(names, t.Name)
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
		Tenants:      names,
		Dir:          c.DataDir,
		Clock:        time.Now,
		Log:          log,
	})
}

// drain closes all addresses once the current requests are answered, or after drainTimeout.
func (s *Server) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	for _, t := range s.tenants {
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
	for _, t := range s.tenants {
		err = errors.Join(err, t.close())
	}
	return err
}

// Build identifies a build.
type Build struct{ Version, Go string }
