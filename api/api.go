// Package api serves the HTTP API: what is wrong, what requests do, what is switched on and why, and what people decide
// about it.
//
// openapi.yaml is the contract; package contract is generated from it, requests are held against it, and so are answers
// in tests. The engine is read by asking it ([Engine]); lists are served from a snapshot that is made once in an epoch,
// if somebody reads. What was decided, and the traces that were kept, come from the store ([Past]).
//
// Nothing here reads a clock or starts a goroutine: time is an option, and whoever serves the handler owns the
// goroutines. Errors that callers see say what to do, and nothing of what is inside.
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
	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Engine is the engine while it runs.
type Engine interface {
	// Ask calls read with the core while nothing else uses it. Read is quick and keeps nothing.
	Ask(ctx context.Context, read func(*engine.Core)) error
	// Change has something changed that decisions depend on, durably, and reports whether there was anything to change,
	// and room.
	Change(ctx context.Context, x engine.Change) (bool, error)
	Ready() bool
	Counts() *live.Counts
}

// Agents knows the agents: a [control.Plane].
type Agents interface {
	Agents() []control.Agent
	Summary() control.Summary
	Counts() *control.Counts
}

// Past is what is kept of what was: a [store.Store].
type Past interface {
	// Decisions returns what was decided in [from, to), oldest first, in whole epochs: those of the newest that make up
	// limit decisions.
	Decisions(from, to trace.Nanos, limit int, newest bool) ([]search.Decision, error)
	// Exemplars returns the requests kept of a group, or request type; none if it is not known.
	Exemplars(group analysis.Hash) (*store.Exemplars, error)
	// Trace returns a trace that is kept, as an OTLP request in protobuf; nil if it is not.
	Trace(id trace.ID) ([]byte, error)
}

// Size is how much of something there is, and how much there may be.
type Size struct {
	Name         string // a word for a label, like "arrivals"
	Length, Most int64  // Most 0: no bound
}

// Options say how the API is served.
type Options struct {
	Base     string                  // that all paths begin with, like "/sibyl"; empty: none
	Hosts    []string                // names, without ports, that callers may use besides those of the loopback where no token exists
	Links    []notify.Link           // to traces
	Version  string                  // of this build
	Go       string                  // that it was built with
	Queues   func() []Size           // of the parts of the service; nil: none
	Bytes    func() []Size           // on disk or in memory; nil: none
	Agents   Agents                  // nil: none are controlled
	Registry *prometheus.Registry    // what /metrics shows besides; nil: nothing
	Webhooks func() []notify.Webhook // that are configured
	Letters  *store.Outbox           // whose dead letters are shown
	Resend   func(uint64) error      // has the dead letter with a number sent again
	Tracer   oteltrace.Tracer        // gets a span of each request; nil: none
	// Pages answers requests for pages, outside of the API, and reports whether there was one. Nil: there are none.
	Pages func(http.ResponseWriter, *http.Request) bool
	Clock func() time.Time
	Log   *slog.Logger
}

// API is the handler of everything under /api, and of /healthz, /readyz and /metrics. It is safe for concurrent use.
type API struct {
	engine  Engine
	past    Past
	tokens  *access.Tokens
	notes   *Notes
	options Options

	doc     *openapi3.T
	router  http.Handler
	metrics *metrics
	hub     hub

	links    atomic.Pointer[[]notify.Link]
	answers  atomic.Uint64 // that were errors; names them
	serving  atomic.Int64  // requests
	snapshot snapshots
}

// Bounds on what callers may ask at a time.
const (
	maxServing = 128              // requests, without streams
	maxBody    = 64 << 10         // bytes
	patience   = 10 * time.Second // until an answer is given up
)

// prefix is where the API begins, after the base.
const prefix = "/api/v1"

// New returns the handler.
func New(engine Engine, past Past, tokens *access.Tokens, notes *Notes, options Options) (*API, error) {
	doc, err := loadContract()
	if err != nil {
		return nil, err
	}
	a := &API{engine: engine, past: past, tokens: tokens, notes: notes, options: options, doc: doc}
	a.SetLinks(options.Links)
	a.metrics = newMetrics(a)
	a.hub.begin(options.Clock())
	root := chi.NewRouter()
	root.Use(a.harden, a.requireLocal, middleware.GetHead)
	root.NotFound(func(w http.ResponseWriter, r *http.Request) {
		if options.Pages != nil && !strings.HasPrefix(r.URL.Path, options.Base+"/api/") && options.Pages(w, r) {
			return
		}
		a.fail(w, r, refusal.New(refusal.NotFound, "nothing is here", "the resources are listed at "+options.Base+prefix+"/openapi.yaml"))
	})
	root.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { a.wrongMethod(w, r, root) })
	root.Get(options.Base+"/healthz", healthy)
	root.Get(options.Base+"/readyz", a.readyz)
	root.With(a.requireRole(access.Viewer)).Get(options.Base+"/metrics", a.metrics.handler.ServeHTTP)
	root.Route(options.Base+prefix, a.routes)
	a.router = root
	return a, nil
}

// SetLinks replaces the links to traces that answers have.
func (a *API) SetLinks(links []notify.Link) { a.links.Store(&links) }

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

// readyz reports whether traces are taken.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) {
	if !a.engine.Ready() {
		a.fail(w, r, refusal.New(refusal.Overloaded, "the journal is being read: traces are not taken yet", "").Later(time.Second))
		return
	}
	healthy(w, r)
}

// change changes something that decisions depend on.
func (a *API) change(ctx context.Context, x engine.Change) (changed bool, err error) {
	changed, err = a.engine.Change(ctx, x)
	if err != nil && ctx.Err() != nil && !errors.Is(err, refusal.Overloaded) {
		return false, errBusy
	}
	return changed, err
}

// ask asks the engine.
func (a *API) ask(ctx context.Context, read func(*engine.Core)) error {
	if err := a.engine.Ask(ctx, read); err != nil {
		if ctx.Err() != nil {
			return errBusy
		}
		return refusal.New(refusal.Overloaded, "the service is stopping", "").Later(5 * time.Second)
	}
	return nil
}
