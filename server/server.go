// Package server is what `sibyl serve` runs: it opens the data directory, puts the parts of the service together as a configuration
// says, and ends them in order. Its life is New, Listen, Serve, Close.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/control/opamp"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/web"
)

// Server is the service.
type Server struct {
	config   *config.Config                // that of the start
	applied  atomic.Pointer[config.Config] // that of the last reload
	log      *slog.Logger
	registry *prometheus.Registry // what /metrics shows beside what the API knows
	disk     *pebbledb.Disk
	journal  *journal.Journal
	store    *store.Store
	live     *live.Service
	receiver *receiver.Server
	api      *api.API
	outward  *outward
	plane    *control.Plane
	tokens   *access.Tokens
	traced   *selfTracing // nil: off
	files    files
	http     *door         // this and what follows: set by Listen, nil: off
	agents   *door         // that speak OpAMP
	opamp    *opamp.Server // behind that
}

// Parts of the memory that a configuration allows, beside which stand the statistics and the garbage collector's room.
const (
	openShare     = 4 // one in so much: open traces
	inFlightShare = 8 // requests that were let in and are not assembled
	bodiesShare   = 8 // what agents send, while it is read
)

// groupBytes is what a group takes, with its contexts, where it is a large one: there are no more of them than fit into the memory.
const groupBytes = 20 << 10

// New opens the data directory, which is this process's alone from then on.
func New(c *config.Config, build Build, log *slog.Logger, giveUp func(error)) (s *Server, err error) {
	debug.SetMemoryLimit(c.Memory)
	s = &Server{config: c, log: log, registry: prometheus.NewRegistry(), files: ownFiles()}
	s.applied.Store(c)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeData())
		}
	}()
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return s, fmt.Errorf("make the data directory: %w", err)
	}
	if s.disk, err = pebbledb.NewDisk(c.DataDir); err != nil {
		return s, err
	}
	s.journal, err = journal.Open(journal.Options{
		Dir: filepath.Join(c.DataDir, "journal"), Sync: c.Journal.Durability == "disk", Files: s.files.database, Disk: s.disk, Log: log, GiveUp: giveUp,
	})
	if err != nil {
		return s, s.explain(err)
	}
	s.store, err = store.Open(store.Options{Dir: filepath.Join(c.DataDir, "store"), Files: s.files.database, Disk: s.disk, Log: log, GiveUp: giveUp})
	if err != nil {
		return s, s.explain(err)
	}
	keys, err := ingest.NewKeys(c.AttributeKeys()...)
	if err != nil {
		return s, err
	}
	o := live.DefaultOptions()
	o.Core, o.Assembly, o.Keys, o.Shards = c.Engine(), c.Assembly.Online(c.Memory/openShare), keys, c.Shards
	o.Core.Groups.Groups = int(min(group.DefaultGroups, c.Memory/groupBytes))
	o.InFlight, o.MaxJournal = c.Memory/inFlightShare, uint64(c.Journal.MaxBytes)
	o.Retention, o.MaxJournalAge = retention(c), c.Journal.MaxAge
	o.Journal, o.Store, o.Full, o.Spent, o.Log = s.journal, s.store, s.disk.Full, s.disk.Spent, log
	o.Epoch = func(core *engine.Core, e live.Ended) {
		s.plane.Publish(core.Plan(), core.Table())
		s.api.Epoch(core, e.Decisions)
		if s.traced != nil {
			s.traced.epoch(core, e, time.Duration(s.live.Counts().Decided.Load()))
		}
		s.outward.epoch(core, e)
	}
	if s.traced, err = newSelfTracing(&c.SelfTracing, build.Version, log); err != nil {
		return s, err
	}
	if s.live, err = live.Open(o); err != nil {
		return s, err
	}
	s.plane = control.New(feedback{s.live}, control.Options{Reading: max(opamp.MaxMessage, c.Memory/bodiesShare), Log: log})
	if s.outward, err = newOutward(c, s.store, intake{s.live}, log); err != nil {
		return s, err
	}
	s.tokens = access.Open(c.DataDir)
	if s.api, err = s.newAPI(build, s.tokens); err != nil {
		return s, err
	}
	s.registry.MustRegister(counters{s})
	s.receiver, err = receiver.New(intake{s.live}, receiver.Options{
		GRPC: c.OTLP.GRPC, HTTP: c.OTLP.HTTP, TLS: encryption(c.OTLP.TLS, log), Authorized: s.sender(s.tokens),
		MaxRequestBytes: c.OTLP.MaxRequest, MaxInFlightBytes: c.OTLP.MaxInFlight, MaxConnections: s.files.others,
		Refuse: intake{s.live}.refuse, Observe: newReceived(s.registry).observe, Log: log,
	})
	if err != nil {
		return s, err
	}
	return s, nil
}

// retention returns what of the past is kept.
func retention(c *config.Config) live.Retention {
	return live.Retention{Age: c.Retention.Age, Bytes: c.Retention.Bytes, Exemplars: c.Retention.Exemplars}
}

// encryption returns how a listener encrypts.
func encryption(t config.TLS, log *slog.Logger) connlimit.TLS {
	return connlimit.TLS{CertFile: t.Cert, KeyFile: t.Key, ClientCAFile: t.ClientCA, Log: log}
}

// sender returns what says of a token whether who shows it may send traces; nil if nobody needs one.
func (s *Server) sender(tokens *access.Tokens) func(string) bool {
	if !s.config.OTLP.RequireToken {
		return nil
	}
	return func(secret string) bool {
		t, _, err := tokens.Find(secret, time.Now())
		return err == nil && t != nil && t.Role.Allows(access.Agent)
	}
}

// explain says what to do about an error of a database.
func (s *Server) explain(err error) error {
	if errors.Is(err, pebbledb.ErrLocked) {
		return fmt.Errorf("the data directory %s is in use by another sibyl: stop that one, or name another directory with --data-dir", s.config.DataDir)
	}
	return err
}

// Listen opens all addresses.
func (s *Server) Listen(ctx context.Context) error {
	if err := s.receiver.Listen(ctx); err != nil {
		return err
	}
	if err := s.outward.listen(ctx, s.files.others); err != nil {
		return err
	}
	waiting := connlimit.NewShare(s.files.agents, s.log) // agents wait at both addresses
	web := &http.Server{Handler: s.front()}
	web.RegisterOnShutdown(s.api.Close)
	var err error
	if s.http, err = openHTTP(ctx, frame{"the API", s.config.HTTP, waiting, s.config.API.TLS, s.log}, web); err != nil {
		return err
	}
	return s.listenOpAMP(ctx, waiting)
}

// doors returns the addresses beside those of the receivers.
func (s *Server) doors() []*door {
	return slices.DeleteFunc([]*door{s.http, s.agents, s.outward.sampled, s.outward.sampledRPC}, func(d *door) bool { return d == nil })
}

const drainTimeout = 20 * time.Second

// Addresses are those that are really listened on; nil where it is off.
type Addresses struct{ API, GRPC, HTTP, OpAMP, SamplingHTTP, SamplingGRPC net.Addr }

// Addresses returns what is listened on.
func (s *Server) Addresses() Addresses {
	return Addresses{
		API: s.http.addr(), GRPC: s.receiver.GRPCAddr(), HTTP: s.receiver.HTTPAddr(), OpAMP: s.agents.addr(),
		SamplingHTTP: s.outward.sampled.addr(), SamplingGRPC: s.outward.sampledRPC.addr(),
	}
}

// Serve works until ctx is done. Then it takes no more requests, finishes those that it has, takes a checkpoint and returns.
func (s *Server) Serve(ctx context.Context) error {
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	parts := []func() error{
		func() error { return s.live.Run(work) },
		func() error { return s.outward.run(work) },
		func() error { return s.announce(work) },
		func() error { return s.control(work) },
		s.receiver.Serve,
	}
	for _, d := range s.doors() {
		parts = append(parts, d.serve)
	}
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- part() }()
	}
	running := len(parts)
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		running--
		if err == nil {
			err = errors.New("a part of the service ended by itself")
		}
	}
	s.log.InfoContext(ctx, "stopping")
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if s.opamp != nil {
		s.opamp.Close()
	}
	s.plane.Close()
	err = errors.Join(err, s.receiver.Shutdown(drain))
	for _, d := range s.doors() {
		err = errors.Join(err, d.drain(drain))
	}
	stopWork()
	for range running {
		err = errors.Join(err, <-ended)
	}
	if s.traced != nil {
		s.traced.close(s.log)
	}
	j, n := s.journal.Stats(), s.live.Counts()
	s.log.InfoContext(ctx, "stopped", slog.Int64("requests", n.Requests.Load()), slog.Int64("spans", n.Spans.Load()), slog.Int64("commits", n.Commits.Load()),
		slog.Int64("fsyncs", j.Syncs), slog.Int64("journal_bytes", n.Packed.Load()))
	return err
}

// announce tells the log when requests are taken.
func (s *Server) announce(ctx context.Context) error {
	select {
	case <-s.live.Started():
		s.log.InfoContext(ctx, "ready")
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// Close closes the data directory.
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

// Build is what identifies a build.
type Build struct{ Version, Go string }

// newAPI returns the handler of everything that is served beside the receivers.
func (s *Server) newAPI(build Build, tokens *access.Tokens) (*api.API, error) {
	notes, err := api.OpenNotes(s.config.DataDir)
	if err != nil {
		return nil, err
	}
	ui, err := web.New(s.config.API.BasePath)
	if err != nil {
		return nil, err
	}
	o := api.Options{
		Base: s.config.API.BasePath, Pages: ui.Serve, Links: s.config.Links(), Version: build.Version, Go: build.Go, Queues: s.queues, Bytes: s.sizes, Registry: s.registry,
		Agents: s.plane, Webhooks: s.outward.notifier.Webhooks, Letters: s.outward.outbox, Resend: s.outward.notifier.Resend, Clock: time.Now, Log: s.log,
	}
	if s.traced != nil {
		o.Tracer = s.traced.tracer
	}
	return api.New(s.live, s.store, tokens, notes, o)
}

// sizes tells what is kept on disk.
func (s *Server) sizes() []api.Size {
	return []api.Size{
		{Name: "journal", Length: int64(s.journal.Stats().Bytes), Most: s.config.Journal.MaxBytes},
		{Name: "store", Length: int64(s.store.Bytes()), Most: s.applied.Load().Retention.Bytes},
	}
}

// overload returns a refusal of the engine as the receivers pass it on.
func overload(r *live.Refused) *receiver.Overload {
	return &receiver.Overload{Why: r.Why, After: r.After}
}

// intake hands requests from the receivers to the engine.
type intake struct{ *live.Service }

// Take implements [receiver.Intake].
func (i intake) Take(ctx context.Context, body []byte, format receiver.Format) (receiver.Rejected, error) {
	kind := journal.Protobuf
	if format == receiver.JSON {
		kind = journal.JSON
	}
	n, why, err := i.Service.Take(ctx, body, kind)
	if refused, ok := errors.AsType[*live.Refused](err); ok {
		err = overload(refused)
	}
	return receiver.Rejected{Spans: n, Why: why}, err
}

// refuse returns why the engine takes nothing now; nil: it takes.
func (i intake) refuse() *receiver.Overload {
	if refused := i.Refuse(); refused != nil {
		return overload(refused)
	}
	return nil
}
