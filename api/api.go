// Package api serves the HTTP API: problems, groups, calling-context trees, decisions, traces and agents. Clients can
// also override tracepoints, acknowledge and mute problems, and resend dead letters.
//
// openapi.yaml is the contract. Package contract is generated from it; requests are validated against it, and in tests
// also answers. Handlers read the engine through [Engine.Ask]. Lists come from a snapshot, which is built at most once
// per epoch, and only if a client reads one. Decisions and traces come from the store ([History]).
//
// The package reads no clock and starts no goroutine: time is an option, and the HTTP server owns the goroutines.
// Errors sent to clients carry a hint and no internal detail.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"

	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Engine is the running engine. [live.Service] implements it.
type Engine interface {
	// Ask calls read with a view of the core while nothing else uses it. Read must be quick and must not keep parts of
	// the view.
	Ask(ctx context.Context, read func(*engine.View)) error
	// Change applies x durably. It reports false if x changed nothing, or if a limit left no room for it.
	Change(ctx context.Context, x engine.Change) (bool, error)
	Ready() bool
	Space() live.Space
	Counts() *live.Counts
	// WholeTrace returns the trace of a request that is kept for comparisons, as an OTLP request in protobuf with all
	// attributes; nil if the trace is not kept.
	WholeTrace(id trace.ID) ([]byte, error)
}

// Agents lists the agents. [control.Plane] implements it.
type Agents interface {
	Agents() []control.Agent
	Summary() control.Summary
	Counts() *control.Counts
}

// History reads stored decisions, exemplars and traces. [store.Store] implements it.
type History interface {
	// Decisions returns at least limit decisions of [from, to), if there are as many, oldest first. It returns whole
	// epochs: the oldest ones or, if newest is true, the newest.
	Decisions(from, to trace.Nanos, limit int, newest bool) ([]search.Decision, error)
	// Exemplars returns the exemplars of a group or request type; none if it is unknown.
	Exemplars(group analysis.Hash) (*store.Exemplars, error)
	// Trace returns a stored trace as an OTLP request in protobuf; nil if it is not stored.
	Trace(id trace.ID) ([]byte, error)
	// EachExemplars calls f with the exemplars of every group, EachKept with those kept for problems and incidents.
	EachExemplars(f func(group analysis.Hash, e *store.Exemplars) error) error
	EachKept(f func(of search.Subject, group analysis.Hash, e *store.Exemplars) error) error
	// EachKeptFor calls f with the exemplars that are kept for a problem or an incident, by group.
	EachKeptFor(of search.Subject, f func(group analysis.Hash, e *store.Exemplars) error) error
	// PutLocated stores the evidence of a place, and Located returns it; nil if there is none.
	PutLocated(x *store.Located) error
	Located(of search.Subject) (*store.Located, error)
	Past
}

// Past reads windows of past days, and writes and reads closed problems. [store.Store] implements it.
type Past interface {
	// Windows returns the windows of a group that overlap [from, to), oldest first: long ones, or the shortest.
	Windows(id analysis.Hash, from, to trace.Nanos, long bool) ([]group.Numbers, error)
	// Ticks returns the requests of a group in [from, to) by tick of ten seconds, of the last [live.TicksKept], and by
	// minute before, of the last [live.MinutesKept]. Periods returns those by period of [group.Period], of the last two
	// days; oldest first.
	Ticks(id analysis.Hash, from, to trace.Nanos) ([]group.PastWindow, error)
	Periods(id analysis.Hash, from, to trace.Nanos) ([]group.PastWindow, error)
	// Kept returns the exemplars of a group that are kept for a problem or an incident.
	Kept(of search.Subject, group analysis.Hash) (*store.Exemplars, error)
	PutClosedProblems(all []store.ClosedProblem) error
	// ClosedProblems returns the closed problems without their evidence, those that closed last first.
	ClosedProblems() ([]store.ClosedProblem, error)
	// ClosedProblem returns a problem as it was when it last closed; nil if it is not kept.
	ClosedProblem(id analysis.Hash) (*store.ClosedProblem, error)
}

// Size is the size of a queue or of a part of the service, and its limit.
type Size struct {
	Name         string // a word for a label, like "arrivals"
	Length, Most int64  // Most 0: no limit
}

// Options configure an API.
type Options struct {
	Base        string                  // prefix of all paths, like "/sibyl"; empty: none
	Hosts       []string                // host names without ports, besides those of the loopback, that callers may use while no token exists
	Directory   notify.Directory        // owners of services, and templates of links
	Version     string                  // of this build
	Go          string                  // version of the compiler
	Queues      func() []Size           // of the parts of the service; nil: none
	Bytes       func() []Size           // on disk or in memory; nil: none
	Agents      Agents                  // nil: the service controls no agents
	Registry    *prometheus.Registry    // additional metrics; nil: none
	Webhooks    func() []notify.Webhook // configured webhooks
	DeadLetters *store.Outbox           // holds the dead letters
	Resend      func(uint64) error      // resends the dead letter with a number
	Backup      func() (string, error)  // copies the data and returns the directory
	Failing     ingest.FailureRules     // rules by which spans of stored traces fail
	Comments    *Comments
	Views       *Views
	UI          string           // address of the UI, for links; empty: unknown
	Tracer      oteltrace.Tracer // records a span of each request; nil: none
	// Pages serves a page outside of the API, and reports whether the page exists. Nil: there are no pages.
	Pages func(http.ResponseWriter, *http.Request) bool
	Clock func() time.Time
	Log   *slog.Logger
}

// API serves all paths under /api, and /healthz, /readyz and /metrics. It is safe for concurrent use.
type API struct {
	engine  Engine
	history History
	tokens  *access.Tokens
	notes   *Notes
	options Options

	doc     *openapi3.T
	router  http.Handler
	metrics *metrics
	hub     hub

	directory atomic.Pointer[notify.Directory]
	failures  atomic.Uint64 // number of error answers; identifies them
	serving   atomic.Int64  // number of requests in progress, without streams
	opened    atomic.Int64  // number of incidents that opened or opened again, in this run
	snapshot  snapshots
}

// Limits of requests.
const (
	maxServing     = 128              // concurrent requests, without streams
	maxBody        = 64 << 10         // bytes
	requestTimeout = 10 * time.Second // for the arrival of the body, and for the answer
)

// prefix begins the paths of the API, after the base.
const prefix = "/api/v1"

// New returns an API. It returns an error if the embedded contract is invalid.
func New(engine Engine, history History, tokens *access.Tokens, notes *Notes, options Options) (*API, error) {
	doc, err := loadContract()
	if err != nil {
		return nil, err
	}
	a := &API{engine: engine, history: history, tokens: tokens, notes: notes, options: options, doc: doc}
	a.SetDirectory(options.Directory)
	a.metrics = newMetrics(a)
	a.hub.start(options.Clock())
	root := chi.NewRouter()
	root.Use(a.harden, a.requireLocal, headAsGet)
	root.NotFound(func(w http.ResponseWriter, r *http.Request) {
		if options.Pages != nil && !strings.HasPrefix(r.URL.Path, options.Base+"/api/") && options.Pages(w, r) {
			return
		}
		a.fail(w, r, refusal.New(refusal.NotFound, "no such resource", "the resources are listed at "+options.Base+prefix+"/openapi.yaml"))
	})
	root.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { a.wrongMethod(w, r, root) })
	root.Get(options.Base+"/healthz", healthy)
	root.Get(options.Base+"/readyz", a.readyz)
	root.With(a.requireRole(access.Viewer)).Get(options.Base+"/metrics", a.metrics.handler.ServeHTTP)
	root.Route(options.Base+prefix, a.routes)
	a.router = root
	return a, nil
}

// SetDirectory replaces the owners of services and the links in answers.
func (a *API) SetDirectory(d notify.Directory) { a.directory.Store(&d) }

// routes adds the operations of the contract.
func (a *API) routes(r chi.Router) {
	r = r.With(a.observe, a.authorize, a.negotiate)
	r.With(a.validate).Get("/events", a.streamEvents)
	r = r.With(a.limit, a.validate, a.answer)
	r.Get("/openapi.yaml", a.getContract)
	r.Get("/profile", a.getProfile)
	strict := contract.NewStrictHandlerWithOptions(a, nil, contract.StrictHTTPServerOptions{
		RequestErrorHandlerFunc: a.malformed, ResponseErrorHandlerFunc: a.fail,
	})
	contract.HandlerWithOptions(strict, contract.ChiServerOptions{BaseRouter: r, ErrorHandlerFunc: a.malformed})
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

// malformed answers a request that generated code cannot decode although it passed validation. Its errors name types of
// Go, so they go to the log only.
func (a *API) malformed(w http.ResponseWriter, r *http.Request, err error) {
	a.options.Log.LogAttrs(r.Context(), slog.LevelDebug, "a request cannot be decoded", slog.String("path", r.URL.Path), slog.Any("error", err))
	a.fail(w, r, refusal.New(refusal.Malformed, "the request cannot be decoded", "the contract is at "+a.options.Base+prefix+"/openapi.yaml"))
}

func healthy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// readyz reports whether the service has started. While the disk is full it has: agents, API and pages work, and a
// balancer that took the service away would hide the reason.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) {
	if !a.engine.Ready() {
		a.fail(w, r, refusal.New(refusal.Overloaded, "the journal is being read: traces are not accepted yet", "").Later(time.Second))
		return
	}
	healthy(w, r)
}

// change calls [Engine.Change]. It returns errBusy if ctx ends first.
func (a *API) change(ctx context.Context, x engine.Change) (changed bool, err error) {
	changed, err = a.engine.Change(ctx, x)
	if err != nil && ctx.Err() != nil && !errors.Is(err, refusal.Overloaded) {
		return false, errBusy
	}
	return changed, err
}

// ask calls [Engine.Ask]. It returns errBusy if ctx ends first, and another refusal if the engine has stopped.
func (a *API) ask(ctx context.Context, read func(*engine.View)) error {
	if err := a.engine.Ask(ctx, read); err != nil {
		if ctx.Err() != nil {
			return errBusy
		}
		return refusal.New(refusal.Overloaded, "the service is stopping", "").Later(5 * time.Second)
	}
	return nil
}
