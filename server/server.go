// Package server runs the service behind `sibyl serve`. It opens the data directory, connects the parts of the service
// as configured, and stops them in order. The life cycle of a [Server] is New, Listen, Serve, Close.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/login"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/control/opamp"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/internal/listener"
)

// Server is the whole service: it owns its parts and the data directory.
type Server struct {
	config   *config.Config // configuration at the start
	log      *slog.Logger
	shared   shared
	main     *tenant
	receiver *receiver.Server
	files    fileLimits
	http     *listener.Listener // this and the following are set by Listen; nil if off
	agents   *listener.Listener // address of OpAMP
	opamp    *opamp.Server      // answers OpAMP agents
}

// shared holds the parts of the service that do not depend on a tenant.
type shared struct {
	build    Build
	registry *prometheus.Registry // metrics of parts other than the API
	tokens   *access.Tokens
	login    *login.Service // nil if people can't log in
	traced   *selfTracing   // nil if off
}

// New opens the data directory of c, locks it against other processes, and connects the parts of the service. A
// database calls giveUp if it cannot continue.
func New(c *config.Config, build Build, log *slog.Logger, giveUp func(error)) (s *Server, err error) {
	debug.SetMemoryLimit(c.Memory / 4 * 3) // the collector exceeds it by up to a half while much is allocated
	s = &Server{config: c, log: log, files: ownFileLimits()}
	s.main, err = openTenant(c, s.files.database, log, giveUp)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.main.close())
		}
	}()
	if err != nil {
		return s, err
	}
	if s.shared, err = newShared(c, build, log); err != nil {
		return s, err
	}
	if err := s.main.serve(&s.shared); err != nil {
		return s, err
	}
	s.shared.registry.MustRegister(collector{s})
	s.receiver, err = receiver.New(intake{s.main.live}, receiver.Options{
		GRPC:             c.OTLP.GRPC,
		HTTP:             c.OTLP.HTTP,
		TLS:              tlsFiles(c.OTLP.TLS, log),
		Authorized:       s.sender(),
		Foreign:          api.ForeignPage,
		MaxRequestBytes:  c.OTLP.MaxRequest,
		MaxInFlightBytes: c.MaxInFlight(),
		MaxConnections:   s.files.others,
		Refuse:           s.main.live.Refuse,
		Observe:          newReceived(s.shared.registry).observe,
		Log:              log,
	})
	return s, err
}

// newShared returns the parts that c configures.
func newShared(c *config.Config, build Build, log *slog.Logger) (x shared, err error) {
	x = shared{build: build, registry: prometheus.NewRegistry(), tokens: access.OpenLogged(c.DataDir, log)}
	if x.traced, err = newSelfTracing(&c.SelfTracing, build.Version, log); err != nil {
		return x, err
	}
	if x.login, err = newLogin(c, log); err != nil {
		return x, err
	}
	return x, nil
}

// sender returns a function that reports whether the token secret, used at the address `from`, may send traces. It
// returns nil if senders need no token.
func (s *Server) sender() func(secret, from string) bool {
	if !s.config.OTLP.RequireToken {
		return nil
	}
	return func(secret, from string) bool {
		t, _, err := s.shared.tokens.Identify(secret, from, time.Now())
		return err == nil && t != nil && t.Role.Allows(access.Agent)
	}
}

const drainTimeout = 20 * time.Second

// errEnded is the error if a part ends without an error before the service is stopped.
var errEnded = errors.New("a part of the service stopped unexpectedly")

// Serve runs the service until ctx is done or one of its parts ends. It then accepts no more requests, finishes the
// current ones, takes a checkpoint and returns the errors of all parts.
func (s *Server) Serve(ctx context.Context) error {
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	parts := append(s.main.parts(work), s.receiver.Serve)
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
	running.Go(func() error { s.main.awaitReady(work); return nil })
	if s.shared.login != nil {
		running.Go(func() error { s.shared.login.Discover(work); return nil })
	}
	running.Go(func() error { s.main.audit.Run(work); return nil })
	<-stopping.Done()
	s.log.InfoContext(ctx, "stopping")
	drained := s.drain(context.WithoutCancel(ctx))
	stopWork()
	_ = running.Wait() // errs contains its error and all others
	if s.shared.traced != nil {
		s.shared.traced.close(s.log)
	}
	j, n := s.main.journal.Stats(), s.main.live.Counts()
	s.log.InfoContext(ctx, "stopped",
		slog.Int64("requests", n.Requests.Load()), slog.Int64("spans", n.Spans.Load()),
		slog.Int64("commits", n.Commits.Load()), slog.Int64("fsyncs", j.Syncs),
		slog.Int64("journal_bytes", n.Packed.Load()))
	return errors.Join(append(errs, drained)...)
}

// newLogin returns the log-in that c describes, or nil if there is none.
func newLogin(c *config.Config, log *slog.Logger) (*login.Service, error) {
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
		Dir:          c.DataDir,
		Clock:        time.Now,
		Log:          log,
	})
}

// drain closes all addresses once the current requests are answered, or after drainTimeout.
func (s *Server) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if s.opamp != nil {
		s.opamp.Close()
	}
	s.main.plane.Close()
	err := s.receiver.Shutdown(ctx)
	for _, l := range s.listeners() {
		err = errors.Join(err, l.Drain(ctx))
	}
	return err
}

// Close closes the databases and unlocks the data directory.
func (s *Server) Close() error { return s.main.close() }

// Build identifies a build.
type Build struct{ Version, Go string }
