// Package server runs the service behind `sibyl serve`. It opens the data directory, connects the parts of the service
// as configured, and stops them in order. The life cycle of a [Server] is New, Listen, Serve, Close.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/api/cases"
	"github.com/sibyl-trace/sibyl/api/login"
	"github.com/sibyl-trace/sibyl/api/operating"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/control/opamp"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/ingest/zipkin"
	"github.com/sibyl-trace/sibyl/internal/durable"
	"github.com/sibyl-trace/sibyl/internal/listener"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/web"
)

// Server is the whole service: it owns its parts and the data directory.
type Server struct {
	config    *config.Config                // configuration at the start
	applied   atomic.Pointer[config.Config] // configuration since the last reload
	log       *slog.Logger
	registry  *prometheus.Registry // metrics of parts other than the API
	disk      *pebbledb.Disk
	journal   *journal.Journal
	store     *store.Store
	live      *live.Service
	receiver  *receiver.Server
	api       *api.API
	outbound  *outbound
	plane     *control.Plane
	tokens    *access.Tokens
	login     *login.Service // nil if people can't log in
	audit     *audit.Log
	traced    *selfTracing // nil if off
	files     fileLimits
	backingUp sync.Mutex         // held during a backup
	http      *listener.Listener // this and the following are set by Listen; nil if off
	agents    *listener.Listener // address of OpAMP
	opamp     *opamp.Server      // answers OpAMP agents
}

// bodiesShare is the ratio of the configured memory to the memory for bodies from agents that are being read.
const bodiesShare = 16

// New opens the data directory of c, locks it against other processes, and connects the parts of the service. A
// database calls giveUp if it cannot continue.
func New(c *config.Config, build Build, log *slog.Logger, giveUp func(error)) (s *Server, err error) {
	debug.SetMemoryLimit(c.Memory / 4 * 3) // the collector exceeds it by up to a half while much is allocated
	s = &Server{config: c, log: log, registry: prometheus.NewRegistry(), files: ownFileLimits()}
	s.applied.Store(c)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeData())
		}
	}()
	if err := durable.MkdirAll(c.DataDir); err != nil {
		return s, fmt.Errorf("make the data directory: %w: name another one with --data-dir", err)
	}
	warnOfMissing(c.DataDir, log)
	if s.disk, err = pebbledb.NewDisk(c.DataDir); err != nil {
		return s, err
	}
	s.journal, err = journal.Open(journal.Options{
		Dir:    filepath.Join(c.DataDir, journalName),
		Sync:   c.Journal.Durability == "disk",
		Files:  s.files.database,
		Memory: c.Memory,
		Disk:   s.disk,
		Log:    log,
		GiveUp: explained(giveUp, c.DataDir, journalName),
	})
	if err != nil {
		return s, explain(err, c.DataDir, journalName)
	}
	s.store, err = store.Open(store.Options{
		Dir:    filepath.Join(c.DataDir, storeName),
		Files:  s.files.database,
		Memory: c.Memory,
		Disk:   s.disk,
		Log:    log,
		GiveUp: explained(giveUp, c.DataDir, storeName),
	})
	if err != nil {
		return s, explain(err, c.DataDir, storeName)
	}
	keys, err := c.DecodedKeys()
	if err != nil {
		return s, err
	}
	o := live.DefaultOptions()
	o.Core, o.Assembly, o.Keys = c.Engine(), c.OpenTraces(), keys
	o.MaxJournal = uint64(c.Journal.MaxBytes)
	limits := c.IntakeLimits()
	o.InFlight, o.Heap, o.Charted, o.Whole = limits.InFlight, limits.Heap, limits.Charted, limits.Whole
	o.Names, o.DecoderNames = limits.Names, limits.DecoderNames
	o.Retention, o.MaxJournalAge = retention(c), c.Journal.MaxAge
	o.Journal, o.Store, o.Full, o.Fits, o.Log = s.journal, s.store, s.disk.Full, s.disk.Fits, log
	o.Epoch = s.epoch
	if s.traced, err = newSelfTracing(&c.SelfTracing, build.Version, log); err != nil {
		return s, err
	}
	if s.live, err = live.Open(o); err != nil {
		return s, err
	}
	most := max(opamp.MaxMessage, c.Memory/bodiesShare)
	s.plane = control.New(feedback{s.live}, control.Options{
		MaxBuffered:    most,
		MaxTracepoints: o.Core.Tracepoints,
		Log:            log,
	})
	notes, err := cases.OpenNotes(c.DataDir)
	if err != nil {
		return s, err
	}
	if s.outbound, err = newOutbound(c, s.store, notes, intake{s.live}, log); err != nil {
		return s, err
	}
	s.tokens = access.OpenLogged(c.DataDir, log)
	if s.login, err = newLogin(c, log); err != nil {
		return s, err
	}
	s.audit = audit.Open(c.DataDir, time.Now, log)
	s.audit.Keep(c.Retention.Audit)
	if s.api, err = s.newAPI(build, s.tokens, notes); err != nil {
		return s, err
	}
	s.registry.MustRegister(collector{s})
	s.receiver, err = receiver.New(intake{s.live}, receiver.Options{
		GRPC:             c.OTLP.GRPC,
		HTTP:             c.OTLP.HTTP,
		TLS:              tlsFiles(c.OTLP.TLS, log),
		Authorized:       s.sender(s.tokens),
		Foreign:          api.ForeignPage,
		MaxRequestBytes:  c.OTLP.MaxRequest,
		MaxInFlightBytes: c.MaxInFlight(),
		MaxConnections:   s.files.others,
		Refuse:           s.live.Refuse,
		Observe:          newReceived(s.registry).observe,
		Log:              log,
	})
	if err != nil {
		return s, err
	}
	return s, nil
}

// epoch passes the results of the epoch e to the agents, the API and the integrations. The owner of the core calls it
// when the epoch has ended.
func (s *Server) epoch(core *engine.View, e live.Ended) error {
	s.plane.Publish(core.Searches.Plan(), core.Table)
	s.api.Epoch(core, e.Before, e.Decisions)
	if s.traced != nil {
		s.traced.epoch(core, e, time.Duration(s.live.Counts().Decided.Load()))
	}
	return s.outbound.epoch(core, e)
}

// retention returns the limits on history in c.
func retention(c *config.Config) live.Retention {
	return live.Retention{Age: c.Retention.Age, Bytes: c.Retention.Bytes, Exemplars: c.Retention.Exemplars}
}

// sender returns a function that reports whether the token secret, used at the address `from`, may send traces. It
// returns nil if senders need no token.
func (s *Server) sender(tokens *access.Tokens) func(secret, from string) bool {
	if !s.config.OTLP.RequireToken {
		return nil
	}
	return func(secret, from string) bool {
		t, _, err := tokens.Identify(secret, from, time.Now())
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
	parts := []func() error{
		func() error { return s.live.Run(work) },
		func() error { return s.outbound.run(work) },
		func() error { return s.control(work) },
		s.receiver.Serve,
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
	running.Go(func() error { s.announce(work); return nil })
	if s.login != nil {
		running.Go(func() error { s.login.Discover(work); return nil })
	}
	running.Go(func() error { s.audit.Run(work); return nil })
	<-stopping.Done()
	s.log.InfoContext(ctx, "stopping")
	drained := s.drain(context.WithoutCancel(ctx))
	stopWork()
	_ = running.Wait() // errs contains its error and all others
	if s.traced != nil {
		s.traced.close(s.log)
	}
	j, n := s.journal.Stats(), s.live.Counts()
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
	s.plane.Close()
	err := s.receiver.Shutdown(ctx)
	for _, l := range s.listeners() {
		err = errors.Join(err, l.Drain(ctx))
	}
	return err
}

// announce waits until the journal has been read and logs that the service is ready, unless ctx is done first.
func (s *Server) announce(ctx context.Context) {
	select {
	case <-s.live.Started():
		s.log.InfoContext(ctx, "ready")
	case <-ctx.Done():
	}
}

// Close closes the databases and unlocks the data directory.
func (s *Server) Close() error { return s.closeData() }

func (s *Server) closeData() (err error) {
	if s.store != nil {
		err = s.store.Close()
	}
	if s.journal != nil {
		err = errors.Join(err, s.journal.Close())
	}
	return err
}

// Build identifies a build.
type Build struct{ Version, Go string }

// newAPI returns the handler of the API, the UI and /metrics.
func (s *Server) newAPI(build Build, tokens *access.Tokens, notes *cases.Notes) (*api.API, error) {
	ui, err := web.New(s.config.API.BasePath)
	if err != nil {
		return nil, err
	}
	comments, err := cases.OpenComments(s.config.DataDir)
	if err != nil {
		return nil, err
	}
	views, err := operating.OpenViews(s.config.DataDir)
	if err != nil {
		return nil, err
	}
	failing, err := s.config.FailureRules()
	if err != nil {
		return nil, err
	}
	o := api.Options{
		Failing:     failing,
		Notes:       notes,
		Comments:    comments,
		Views:       views,
		Audit:       s.audit,
		UI:          s.config.UI(),
		Login:       s.login,
		Base:        s.config.API.BasePath,
		Pages:       ui.Serve,
		Directory:   s.config.Directory(),
		Version:     build.Version,
		Go:          build.Go,
		Queues:      s.queues,
		Bytes:       s.sizes,
		Registry:    s.registry,
		Agents:      s.plane,
		Webhooks:    s.outbound.notifier.Webhooks,
		DeadLetters: s.outbound.outbox,
		Resend:      s.outbound.notifier.Resend,
		Backup:      s.backup,
		Clock:       time.Now,
		Log:         s.log,
	}
	if s.traced != nil {
		o.Tracer = s.traced.tracer
	}
	return api.New(s.live, s.store, tokens, o)
}

// sizes returns the sizes and limits of the databases in bytes.
func (s *Server) sizes() []operating.Size {
	return []operating.Size{
		{Name: "journal", Length: int64(s.journal.Stats().Bytes), Most: s.config.Journal.MaxBytes},
		{Name: "store", Length: int64(s.store.Bytes()), Most: s.applied.Load().Retention.Bytes},
	}
}

// intake passes requests from the receivers to the engine.
type intake struct{ service *live.Service }

// Take implements [receiver.Intake].
func (i intake) Take(ctx context.Context, body []byte, format receiver.Format) (receiver.Rejected, error) {
	switch format {
	case receiver.Zipkin:
		return i.takeZipkin(ctx, body)
	case receiver.JSON:
		n, why, err := i.service.Take(ctx, body, journal.JSON)
		return receiver.Rejected{Spans: n, Why: why}, err
	case receiver.Protobuf:
	}
	n, why, err := i.service.Take(ctx, body, journal.Protobuf)
	return receiver.Rejected{Spans: n, Why: why}, err
}

// takeZipkin takes body, spans of Zipkin. It translates them first, so that the journal contains only OTLP. The sender
// isn't told which spans were rejected, because Zipkin's answers have no field for it, but they are counted.
func (i intake) takeZipkin(ctx context.Context, body []byte) (receiver.Rejected, error) {
	if refused := i.service.Refuse(); refused != nil { // before spending time on a translation
		return receiver.Rejected{}, refused
	}
	request, rejected, err := zipkin.Translate(body)
	if err != nil {
		return receiver.Rejected{}, err
	}
	n, _, err := i.service.Take(ctx, request, journal.Protobuf)
	if err != nil {
		return receiver.Rejected{}, err
	}
	return receiver.Rejected{Spans: n + i.service.Reject(rejected)}, nil
}
