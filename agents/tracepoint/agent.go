package tracepoint

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/attribute"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/exchange"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Agent applies Sibyl's plans to a registry while their leases last.
type Agent struct{ exchange *exchange.Agent }

// options holds the settings of Connect.
type options struct {
	endpoint, token, id string
	resource            map[string]string
	client              *http.Client
	logger              *slog.Logger
	labels              bool
}

// An Option configures [Connect].
type Option func(*options)

// WithEndpoint sets the URL of Sibyl's API for agents, for example "http://sibyl:8321". It is required.
func WithEndpoint(u string) Option { return func(o *options) { o.endpoint = u } }

// WithService sets the name of the process's service. It is required unless [WithResource] sets service.name.
func WithService(name string) Option {
	return WithResource(attribute.String("service.name", name))
}

// WithResource adds attributes of the process's OpenTelemetry resource. Attributes beyond [protocol.MaxResource] are
// ignored.
func WithResource(attributes ...attribute.KeyValue) Option {
	return func(o *options) {
		for _, kv := range attributes {
			if len(o.resource) < protocol.MaxResource {
				o.resource[string(kv.Key)] = kv.Value.String()
			}
		}
	}
}

// WithToken sets the agent's bearer token.
func WithToken(token string) Option { return func(o *options) { o.token = token } }

// WithID sets the ID of the agent, which must be unique. The default is random.
func WithID(id string) Option { return func(o *options) { o.id = id } }

// WithHTTPClient sets the HTTP client, for example a client with a certificate. It should have no timeout, because the
// agent uses long polling.
func WithHTTPClient(c *http.Client) Option {
	return func(o *options) { o.client = cmp.Or(c, http.DefaultClient) }
}

// WithLogger sets the logger for connection failures and recoveries. The default logs nothing.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = cmp.Or(l, o.logger) } }

// WithGoroutineLabels sets the labels trace_id and span_id on goroutines while they run spans, for profilers and kernel
// probes. On Linux, it also publishes the process's resource for such readers. With this option, a span must be ended
// by the goroutine that started it.
func WithGoroutineLabels() Option { return func(o *options) { o.labels = true } }

// Connect applies the plans of Sibyl to the tracepoints of [Default] until ctx is done or the agent is closed. It does
// not wait for a connection: while Sibyl is unreachable, only the baseline is enabled. It returns an error if the
// options are not valid, or if [Default] already has an agent.
func Connect(ctx context.Context, opts ...Option) (*Agent, error) {
	return Default.Connect(ctx, opts...)
}

// Connect is like [Connect], but for the tracepoints of r. It returns an error if r already has an agent that has not
// been closed and whose context is not done.
func (r *Registry) Connect(ctx context.Context, opts ...Option) (*Agent, error) {
	o := options{
		id:       rand.Text(),
		resource: make(map[string]string),
		client:   http.DefaultClient,
		logger:   slog.New(slog.DiscardHandler),
	}
	if name := r.serviceName(); name != UnknownService {
		o.resource["service.name"] = name
	}
	for _, option := range opts {
		option(&o)
	}
	e, err := exchange.New(r.exchangeSettings(&o), registered{r})
	if err != nil {
		return nil, err
	}
	if !r.connected.CompareAndSwap(false, true) {
		return nil, errors.New("connect to Sibyl: the registry already has an agent: close it first")
	}
	r.SetService(o.resource["service.name"])
	r.labels.Store(o.labels)
	if o.labels {
		publish(o.resource)
	}
	select { // the first registration covers the current catalogue
	case <-r.changed:
	default:
	}
	e.Start(ctx, func() { r.connected.Store(false) })
	return &Agent{e}, nil
}

func (r *Registry) exchangeSettings(o *options) exchange.Settings {
	return exchange.Settings{
		Endpoint: o.endpoint,
		Token:    o.token,
		ID:       o.id,
		Resource: o.resource,
		Changed:  r.changed,
		Client:   o.client,
		Logger:   o.logger,
		Capabilities: []protocol.Capability{
			protocol.CanSpan, protocol.CanVariable, protocol.CanRate, protocol.CanFilter, protocol.CanStacks,
		},
	}
}

// Close disables all tracepoints outside the baseline, and waits for the agent's goroutines to end.
func (a *Agent) Close() { a.exchange.Close() }

// ID returns the ID of the agent. It changes if another agent has registered with the same ID.
func (a *Agent) ID() string { return a.exchange.ID() }

// registered adapts a registry to the exchange with Sibyl.
type registered struct{ *Registry }

// Apply implements [exchange.Tracepoints].
func (r registered) Apply(p *protocol.Plan) {
	if err := r.Registry.Apply(p); err != nil {
		panic("tracepoint: " + err.Error())
	}
}
