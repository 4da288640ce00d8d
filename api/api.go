// Package api serves the HTTP API: problems, groups, calling-context trees, decisions, traces and agents. Clients can
// also override tracepoints, acknowledge and mute problems, and resend dead letters.
//
// openapi.yaml is the contract. Package contract is generated from it, and requests are validated against it. Tests
// also validate the responses. This package contains the router and the middleware, and assembles the handlers. The
// handlers of each kind of resource have their own package: [cases], [requests], [services], [objectives], [plan] and
// [operating]. Code shared by several of them is in internal packages. Handlers read the engine through an
// [epoch.Reader]: either its core or, for lists, a snapshot. A snapshot is built at most once per epoch, and only if a
// client reads one. Decisions and traces come from the [store.Store].
//
// No handler reads a clock or starts a goroutine: time is an option, and the HTTP server owns the goroutines. Errors
// sent to clients contain a hint and no internal details.
package api

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/api/cases"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/login"
	"github.com/sibyl-trace/sibyl/api/objectives"
	"github.com/sibyl-trace/sibyl/api/operating"
	"github.com/sibyl-trace/sibyl/api/plan"
	"github.com/sibyl-trace/sibyl/api/requests"
	"github.com/sibyl-trace/sibyl/api/services"
	"github.com/sibyl-trace/sibyl/api/telemetry"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Running is the running engine. [live.Service] implements it.
type Running interface {
	epoch.Engine
	operating.Service
	// WholeTrace returns the trace of a request kept for comparisons, as an OTLP request in protobuf with all
	// attributes, or nil if the trace isn't kept.
	WholeTrace(id trace.ID) ([]byte, error)
}

// Options configure an API.
type Options struct {
	Tenant      string                  // name of the tenant; empty: the default one
	Tenants     operating.Tenants       // all tenants of the process; nil: there is only one
	Base        string                  // prefix of all paths, like "/sibyl"; may be empty
	Hosts       []string                // host names without ports, accepted besides loopback's while no token exists
	Directory   directory.Directory     // owners of services and templates for links
	Version     string                  // of this build
	Go          string                  // version of the compiler
	Queues      func() []operating.Size // lengths of the service's queues; may be nil
	Bytes       func() []operating.Size // sizes in bytes, on disk or in memory; may be nil
	Agents      plan.Agents             // nil: the service controls no agents
	Registry    *prometheus.Registry    // additional metrics; may be nil
	Webhooks    func() []notify.Webhook // configured webhooks
	DeadLetters *store.Outbox           // holds the dead letters
	Resend      func(uint64) error      // resends the dead letter with the given number
	Backup      func() (string, error)  // copies the data and returns the directory; nil: there is no data
	Failing     ingest.FailureRules     // rules that decide which spans of stored traces have failed
	Notes       *cases.Notes
	Comments    *cases.Comments
	Silences    *cases.Silences
	Edits       *objectives.Edits
	Settings    func() engine.Settings      // those of the configuration
	Settle      func(context.Context) error // makes the engine use the current edits
	// Changed, if not nil, is called after each change that people make, before they get the response.
	Changed   func(context.Context)
	Views     *operating.Views
	Audit     *audit.Log
	Telemetry telemetry.Options // systems with logs and metrics
	// GitHubSecret is the key for the signatures of GitHub's webhooks. If it is empty, they need a token instead.
	GitHubSecret string
	// PagerDutySecret is the key for the signatures of PagerDuty's webhooks.
	PagerDutySecret string
	// SlackSecret is the key for the signatures of clicks in Slack.
	SlackSecret string
	// Reply posts a text to the response URL of a click in Slack.
	Reply func(ctx context.Context, url, text string) error
	// UI is the address of the UI, for links. It is empty if unknown.
	UI     string
	Login  *login.Service   // nil: callers need a token or, while no token exists, must be local
	Tracer oteltrace.Tracer // records a span for each request; may be nil
	// Pages serves a page outside the API, and reports whether the page exists. Nil means that there are no pages.
	Pages func(http.ResponseWriter, *http.Request) bool
	Clock func() time.Time
	Log   *slog.Logger
}

// handlers implements [contract.StrictServerInterface] with the handlers of all resources.
type handlers struct {
	*cases.Cases
	*requests.Requests
	*services.Services
	*objectives.Objectives
	*plan.Plan
	*operating.Operating
}

// API serves all paths under /api, and /healthz, /readyz and /metrics. It is safe for concurrent use.
type API struct {
	engine  Running
	reader  *epoch.Reader
	tokens  *access.Tokens
	options Options

	doc      *openapi3.T
	router   *chi.Mux
	handlers handlers

	directory atomic.Pointer[directory.Directory]
	failures  atomic.Uint64 // number of error responses; used to identify them
	serving   atomic.Int64  // number of requests in progress, excluding streams
	arriving  arrivals      // bodies being received; their requests aren't in progress yet
	large     atomic.Int64  // number of requests with a body above maxBody, arriving or in progress
}

// Limits on requests.
const (
	maxServing     = 128              // concurrent requests, excluding streams
	maxArriving    = 128              // concurrent bodies, which may arrive slowly
	maxUnknown     = 32               // the same, from senders that aren't authenticated yet
	maxBody        = 64 << 10         // bytes
	maxLargeBody   = 1 << 20          // bytes of a webhook of GitHub, which has all notes of a release
	maxLarge       = 4                // concurrent requests with a body above maxBody
	requestTimeout = 10 * time.Second // for receiving the body, and again for the answer
)

// prefix is the common prefix of the API's paths, after the base.
const prefix = "/api/v1"

// New returns an API. It returns an error if the embedded contract is invalid.
func New(engine Running, s *store.Store, tokens *access.Tokens, options Options) (*API, error) {
	doc, err := loadContract()
	if err != nil {
		return nil, err
	}
	a := &API{engine: engine, reader: epoch.NewReader(engine), tokens: tokens, options: options, doc: doc}
	a.SetDirectory(options.Directory)
	a.handlers = a.newHandlers(s)
	root := chi.NewRouter()
	a.router = root
	root.Use(a.harden, a.countAttempts, a.requireLocal, headAsGet)
	root.NotFound(func(w http.ResponseWriter, r *http.Request) {
		if options.Pages != nil && !strings.HasPrefix(r.URL.Path, options.Base+"/api/") && options.Pages(w, r) {
			return
		}
		a.fail(w, r, refusal.New(refusal.NotFound, "no such resource",
			"the resources are listed at "+options.Base+prefix+"/openapi.yaml"))
	})
	root.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) { a.wrongMethod(w, r, root) })
	root.Get(options.Base+"/healthz", healthy)
	root.Get(options.Base+"/readyz", a.readyz)
	root.With(a.requireRole(access.Viewer)).Get(options.Base+"/metrics", a.handlers.Metrics().ServeHTTP)
	if people := options.Login; people != nil {
		root.Get(options.Base+login.StartPath, people.Start)
		root.Get(options.Base+login.CallbackPath, a.recordLogin(people.Callback))
		root.Post(options.Base+login.EndPath, a.countLogout(people.End))
		root.Post(options.Base+login.DevicePath, a.startDevice)
		root.Post(options.Base+login.DeviceTokenPath, a.recordLogin(a.endDevice))
	}
	root.Route(options.Base+prefix, a.routes)
	return a, nil
}

// newHandlers returns the handlers of all resources.
func (a *API) newHandlers(s *store.Store) handlers {
	o := &a.options
	h := handlers{
		Requests: requests.New(a.reader, s, requests.Options{
			Whole:     a.engine.WholeTrace,
			Failing:   o.Failing,
			Directory: a.directory.Load,
			Clock:     o.Clock,
		}),
		Services: services.New(a.reader, a.directory.Load, o.Clock),
		Objectives: objectives.New(a.reader, s.Ticks, objectives.Options{
			Edits:    o.Edits,
			Settings: o.Settings,
			Settle:   o.Settle,
			Clock:    o.Clock,
		}),
		Plan: plan.New(a.reader, s.Decisions, plan.Options{Agents: o.Agents, Clock: o.Clock, Log: o.Log}),
	}
	h.Cases = cases.New(a.reader, s, cases.Options{
		Notes:     o.Notes,
		Comments:  o.Comments,
		Silences:  o.Silences,
		Services:  h.Services,
		Latencies: h.Requests,
		Telemetry: telemetry.New(o.Telemetry),
		Directory: a.directory.Load,
		Reply:     o.Reply,
		UI:        o.UI,
		Clock:     o.Clock,
		Log:       o.Log,
	})
	h.Operating = operating.New(a.reader, a.engine, operating.Options{
		Tenant:      o.Tenant,
		Tenants:     o.Tenants,
		Version:     o.Version,
		Go:          o.Go,
		Calls:       h.Services,
		Silenced:    h.Cases.Silenced,
		Agents:      o.Agents,
		Directory:   a.directory.Load,
		Queues:      o.Queues,
		Bytes:       o.Bytes,
		Registry:    o.Registry,
		Webhooks:    o.Webhooks,
		DeadLetters: o.DeadLetters,
		Resend:      o.Resend,
		Backup:      o.Backup,
		Views:       o.Views,
		Audit:       o.Audit,
		Clock:       o.Clock,
		Log:         o.Log,
	})
	return h
}

// Epoch stores the problems that closed in an epoch and the evidence for the places located in it, builds a snapshot if
// clients need one, and publishes the events. `before` holds the problems that were open before the epoch, and
// decisions the decisions made in it. Only the goroutine that owns the core may call Epoch, after the end of the epoch.
// Epoch returns quickly and doesn't retain parts of the core.
func (a *API) Epoch(c *engine.View, before []detect.Problem, decisions []search.Decision) {
	a.handlers.StoreClosed(c, before, c.Ended)
	a.handlers.StoreLocated(c, decisions, c.Ended)
	a.reader.Epoch(c, a.handlers.Streaming())
	a.handlers.PublishEpoch(c, decisions)
}

// Silenced returns the silences that cover open incidents at the end of an epoch, by incident number. Only the
// goroutine that owns the core may call Silenced, after the end of the epoch.
func (a *API) Silenced(c *engine.View) map[uint64]*contract.Silenced {
	if !a.options.Silences.InForce(a.options.Clock()) {
		return nil // without making a snapshot
	}
	return a.handlers.Cases.Silenced(a.reader.Refresh(c))
}

// Collectors returns the collectors of the tenant's metrics at /metrics, except for those in [Options].Registry.
func (a *API) Collectors() []prometheus.Collector { return a.handlers.Collectors() }

// Close ends all event streams, so that a shutdown needn't wait for their readers. It must be called only once.
func (a *API) Close() { a.handlers.Close() }

// SetDirectory replaces the owners of services and the templates for links.
func (a *API) SetDirectory(d directory.Directory) { a.directory.Store(&d) }

// routes registers the handlers of all operations of the OpenAPI contract with r.
func (a *API) routes(r chi.Router) {
	r = r.With(a.observe, a.authorize, a.negotiate)
	r.With(a.validate).Get("/events", a.streamEvents)
	r = r.With(a.limit, a.verify, a.validate, a.answer, a.record)
	r.Get("/openapi.yaml", a.getContract)
	r.Get("/profile", a.getProfile)
	strict := contract.NewStrictHandlerWithOptions(a.handlers, nil, contract.StrictHTTPServerOptions{
		RequestErrorHandlerFunc: a.malformed, ResponseErrorHandlerFunc: a.fail,
	})
	contract.HandlerWithOptions(strict, contract.ChiServerOptions{BaseRouter: r, ErrorHandlerFunc: a.malformed})
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

// streamEvents serves events for as long as the token or session of the request is valid.
func (a *API) streamEvents(w http.ResponseWriter, r *http.Request) {
	err := a.handlers.StreamEvents(w, r, func() bool {
		who, err := a.identify(r)
		return err == nil && who.Role.Allows(access.Viewer)
	})
	if err != nil {
		a.fail(w, r, err)
	}
}

// getProfile serves the profile of critical paths.
func (a *API) getProfile(w http.ResponseWriter, r *http.Request) {
	if err := a.handlers.WriteProfile(w, r); err != nil {
		a.fail(w, r, err)
	}
}

// malformed responds to a request that passed validation but can't be decoded by generated code. The decoder's errors
// mention Go types, so we only log them.
func (a *API) malformed(w http.ResponseWriter, r *http.Request, err error) {
	a.options.Log.LogAttrs(r.Context(), slog.LevelDebug, "a request cannot be decoded",
		slog.String("path", r.URL.Path), slog.Any("error", err))
	a.fail(w, r, refusal.New(refusal.Malformed, "the request cannot be decoded",
		"the contract is at "+a.options.Base+prefix+"/openapi.yaml"))
}

func healthy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}

// readyz reports whether the service has started and, if there are several replicas, whether this one leads. It
// mentions late decisions and a full disk in the body, but they don't change the status: agents, API and pages still
// work, and a load balancer that took the service out would hide the reason.
func (a *API) readyz(w http.ResponseWriter, r *http.Request) {
	if !a.engine.Ready() {
		err := refusal.New(refusal.Overloaded, "the journal is being read: traces are not accepted yet", "").
			Later(time.Second)
		a.fail(w, r, cmp.Or(a.engine.Standby(), err))
		return
	}
	healthy(w, r)
	if late := a.handlers.Lateness(); late != "" {
		_, _ = w.Write([]byte(late + "\n"))
	}
}

// Files returns the names of the files in the data directory that contain people's input.
func Files() []string {
	return []string{cases.NotesFile, cases.CommentsFile, cases.SilencesFile, objectives.File, operating.ViewsFile}
}
