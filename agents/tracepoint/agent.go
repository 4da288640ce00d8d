package tracepoint

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel/attribute"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Timing of the exchange with Sibyl.
const (
	maxWait           = 30 * time.Second // of a request for a plan; never more than a third of the lease
	statusInterval    = 10 * time.Second
	catalogueDebounce = time.Second // between a change of the catalogue and its registration, since changes come in bursts
	minBackoff        = 500 * time.Millisecond
	maxBackoff        = 30 * time.Second
	minPollInterval   = time.Second // an earlier "not modified" comes from a server that does not support long polling
)

// Agent applies the plans of Sibyl to a registry for as long as their leases last.
type Agent struct {
	registry *Registry
	client   *client
	logger   *slog.Logger
	stop     context.CancelFunc
	done     sync.WaitGroup

	statusDue   chan struct{} // holds one value if the state to report changed since the last receive
	registering sync.Mutex    // serializes registrations
	mu          sync.Mutex    // guards planError
	planError   string        // why the last plan was rejected; "": it was not
}

// options holds the settings of Connect.
type options struct {
	endpoint, token, id string
	resource            map[string]string
	client              *http.Client
	logger              *slog.Logger
	explore, labels     bool
}

// An Option configures [Connect].
type Option func(*options)

// WithEndpoint sets the URL at which Sibyl serves agents, for example "http://sibyl:8321". It is required.
func WithEndpoint(u string) Option { return func(o *options) { o.endpoint = u } }

// WithService sets the name of the process's service. It is required unless [WithResource] sets service.name.
func WithService(name string) Option {
	return WithResource(attribute.String("service.name", name))
}

// WithResource adds attributes of the process's OpenTelemetry resource.
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

// WithHTTPClient sets the HTTP client, for example one with a client certificate. It should have no timeout, because
// the agent uses long polling.
func WithHTTPClient(c *http.Client) Option {
	return func(o *options) { o.client = cmp.Or(c, http.DefaultClient) }
}

// WithLogger sets the logger for connection failures and recoveries. By default nothing is logged.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = cmp.Or(l, o.logger) } }

// WithoutExplore disables explore arms, which enable all tracepoints for a share of the requests.
func WithoutExplore() Option { return func(o *options) { o.explore = false } }

// WithGoroutineLabels sets the labels trace_id and span_id on goroutines while they run spans, for profilers and kernel
// probes, and on Linux publishes the process's resource for them. A span must then be ended by the goroutine that
// started it.
func WithGoroutineLabels() Option { return func(o *options) { o.labels = true } }

// Connect applies the plans of Sibyl to the tracepoints of [Default] until ctx is done or the agent is closed. It does
// not wait for a connection: while Sibyl is unreachable, only the baseline is enabled. It returns an error if the
// options are not valid or [Default] has an agent.
func Connect(ctx context.Context, opts ...Option) (*Agent, error) {
	return Default.Connect(ctx, opts...)
}

// Connect is like [Connect] for the tracepoints of r. It returns an error if r has another agent that is not closed and
// whose context is not done.
func (r *Registry) Connect(ctx context.Context, opts ...Option) (*Agent, error) {
	o := options{id: rand.Text(), resource: make(map[string]string), client: http.DefaultClient, logger: slog.New(slog.DiscardHandler), explore: true}
	if name := r.serviceName(); name != UnknownService {
		o.resource["service.name"] = name
	}
	for _, option := range opts {
		option(&o)
	}
	c, err := newClient(&o)
	if err != nil {
		return nil, fmt.Errorf("connect to Sibyl: %w", err)
	}
	if !r.connected.CompareAndSwap(false, true) {
		return nil, errors.New("connect to Sibyl: the registry already has an agent: close it first")
	}
	r.SetService(c.service())
	r.setExplore(o.explore)
	r.labels.Store(o.labels)
	if o.labels {
		publish(o.resource)
	}
	select { // the first registration covers the present catalogue
	case <-r.changed:
	default:
	}
	ctx, stop := context.WithCancel(ctx)
	a := &Agent{registry: r, client: c, logger: o.logger, stop: stop, statusDue: make(chan struct{}, 1)}
	a.done.Go(func() { a.followPlans(ctx) })
	a.done.Go(func() { a.reportStatus(ctx) })
	return a, nil
}

// Close returns to the baseline and waits for the agent's goroutines to end.
func (a *Agent) Close() {
	a.stop()
	a.done.Wait()
}

// ID returns the ID of the agent. It changes if Sibyl knows another agent by the same ID.
func (a *Agent) ID() string { return a.client.agentID() }

// followPlans applies plans until ctx is done. It returns to the baseline when a lease expires.
func (a *Agent) followPlans(ctx context.Context) {
	defer a.registry.connected.Store(false)
	defer a.apply(nil)
	s := pollState{wait: maxWait, backoff: newBackoff()}
	for ctx.Err() == nil {
		err := a.poll(ctx, &s)
		if s.hash != "" && !time.Now().Before(s.expires) {
			a.logger.WarnContext(ctx, "the lease of the plan has expired", slog.Int64("plan", s.version))
			a.apply(nil)
			s.hash, s.version = "", 0
		}
		if err != nil && ctx.Err() == nil {
			a.waitToRetry(ctx, &s, err)
		}
	}
}

// pollState is the state of followPlans.
type pollState struct {
	registered bool
	hash       string        // of the current plan; "": none
	version    int64         // of the current plan
	expires    time.Time     // end of the lease
	lease      time.Duration // granted by every response
	wait       time.Duration // for the next plan
	failing    bool          // the last request failed
	backoff    *backoff.ExponentialBackOff
}

// newBackoff returns an exponential backoff whose jitter keeps many agents from reconnecting at once.
func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = minBackoff, maxBackoff, 2
	return b
}

// poll registers the agent if necessary and waits for one plan, at most until the lease expires.
func (a *Agent) poll(ctx context.Context, s *pollState) error {
	if s.hash != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, s.expires)
		defer cancel()
	}
	if !s.registered {
		if err := a.register(ctx); err != nil {
			return err
		}
		s.registered = true
	}
	sent := time.Now()
	p, err := a.client.plan(ctx, s.hash, s.wait)
	switch {
	case errors.Is(err, errNotRegistered), errors.Is(err, errIDConflict):
		s.registered = false
		s.backoff.Reset() // Sibyl is up, and Retry-After already spreads the agents
	case errors.Is(err, errInvalidPlan):
		a.setPlanError(err)
	}
	if err != nil {
		return err
	}
	if p == nil || p.Hash == s.hash {
		s.expires = time.Now().Add(s.lease)
		if time.Since(sent) < min(minPollInterval, s.wait/2) {
			return errNoLongPolling
		}
		a.recovered(ctx, s)
		return nil
	}
	a.recovered(ctx, s)
	a.apply(p)
	s.hash, s.version, s.lease = p.Hash, p.Version, time.Duration(p.LeaseSeconds)*time.Second
	s.wait = min(maxWait, s.lease/3)
	s.expires = time.Now().Add(s.lease)
	return nil
}

// recovered resets the backoff after a successful request.
func (a *Agent) recovered(ctx context.Context, s *pollState) {
	if s.failing {
		a.logger.InfoContext(ctx, "the connection to Sibyl has recovered")
	}
	s.failing = false
	s.backoff.Reset()
}

// apply makes p, which must be valid, the current plan. If p is nil, it returns to the baseline.
func (a *Agent) apply(p *protocol.Plan) {
	if err := a.registry.Apply(p); err != nil {
		panic("tracepoint: " + err.Error())
	}
	a.setPlanError(nil)
}

// setPlanError records why the last plan was rejected, nil if it was not, and triggers a status.
func (a *Agent) setPlanError(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.planError = ""; err != nil {
		a.planError = protocol.Printable(err.Error(), protocol.MaxReason)
	}
	select {
	case a.statusDue <- struct{}{}:
	default: // a status is due already
	}
}

// register sends the agent's description and catalogue to Sibyl. If another agent has the same ID, it chooses a new
// one.
func (a *Agent) register(ctx context.Context) error {
	a.registering.Lock()
	defer a.registering.Unlock()
	err := a.client.register(ctx, a.registry.Catalogue(), a.registry.exploreAllowed())
	if errors.Is(err, errIDConflict) {
		a.logger.WarnContext(ctx, "another agent has the same ID", slog.String("agent", a.ID()))
		a.client.renewID()
	}
	return err
}

// waitToRetry waits after a failed request: as long as the backoff or Retry-After says, but not beyond the lease.
func (a *Agent) waitToRetry(ctx context.Context, s *pollState, cause error) {
	if !s.failing {
		a.logger.WarnContext(ctx, "cannot get a plan from Sibyl", slog.Any("error", cause))
	}
	s.failing = true
	d := s.backoff.NextBackOff()
	if refused, ok := errors.AsType[*responseError](cause); ok && !errors.Is(cause, errIDConflict) { // the new ID can register at once
		d = max(d, refused.retryAfter)
	}
	if s.hash != "" {
		d = min(d, max(0, time.Until(s.expires)))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// reportStatus sends statuses, and registers again when the catalogue has changed, until ctx is done.
func (a *Agent) reportStatus(ctx context.Context) {
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	debounce := time.NewTimer(catalogueDebounce)
	debounce.Stop()
	defer debounce.Stop()
	unregistered := false // a change of the catalogue is not registered yet
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.registry.changed:
			unregistered = true
			debounce.Reset(catalogueDebounce)
		case <-debounce.C:
			unregistered = a.register(ctx) != nil
		case <-a.statusDue:
			a.sendStatus(ctx)
		case <-ticker.C:
			if unregistered {
				unregistered = a.register(ctx) != nil
			}
			a.sendStatus(ctx)
		}
	}
}

// sendStatus sends a status. If that fails, the next status replaces it.
func (a *Agent) sendStatus(ctx context.Context) {
	s := protocol.Status{Tracepoints: a.registry.Outcomes()}
	s.Version, s.Hash = a.registry.currentPlan()
	a.mu.Lock()
	s.Error = a.planError
	a.mu.Unlock()
	if err := a.client.status(ctx, &s); err != nil {
		a.logger.DebugContext(ctx, "cannot send a status to Sibyl", slog.Any("error", err))
	}
}
