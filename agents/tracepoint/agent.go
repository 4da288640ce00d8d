package tracepoint

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// How an agent talks to Sibyl.
const (
	longestWait  = 30 * time.Second // for a plan, and never more than a third of the lease
	statusPeriod = 10 * time.Second // between statuses while something is on
	settleTime   = time.Second      // after the catalogue grew, until it is told: it mostly grows on
	firstBackOff = 500 * time.Millisecond
	lastBackOff  = 30 * time.Second
	hasty        = time.Second // an answer that nothing changed that comes earlier is one of a server that does not wait
)

// Agent keeps what is on as Sibyl says, as long as Sibyl says so.
type Agent struct {
	registry *Registry
	client   *client
	logger   *slog.Logger
	stop     context.CancelFunc
	done     sync.WaitGroup

	applied     chan struct{} // holds one value if what applies changed since it was last received
	registering sync.Mutex    // held while it registers
	mu          sync.Mutex    // guards what follows
	problem     string        // why the last plan does not apply
}

// options is what Connect is told.
type options struct {
	endpoint, token, id string
	resource            map[string]string
	client              *http.Client
	logger              *slog.Logger
	explore, labels     bool
}

// An Option changes what [Connect] does.
type Option func(*options)

// WithEndpoint says where Sibyl listens for agents: "http://sibyl:8321". It must be given.
func WithEndpoint(u string) Option { return func(o *options) { o.endpoint = u } }

// WithService says which service the process belongs to. Without it the resource must say.
func WithService(name string) Option {
	return WithResource(attribute.String("service.name", name))
}

// WithResource says what the process is: the attributes of its OpenTelemetry resource.
func WithResource(attributes ...attribute.KeyValue) Option {
	return func(o *options) {
		for _, kv := range attributes {
			if len(o.resource) < protocol.MaxResource {
				o.resource[string(kv.Key)] = kv.Value.String()
			}
		}
	}
}

// WithToken gives the bearer token of the agent.
func WithToken(token string) Option { return func(o *options) { o.token = token } }

// WithID says what Sibyl calls the process. It must not be that of any other. Without it, it is made up.
func WithID(id string) Option { return func(o *options) { o.id = id } }

// WithHTTPClient gives the client to use, for instance one with a certificate. It should have no timeout: plans are waited for.
func WithHTTPClient(c *http.Client) Option {
	return func(o *options) { o.client = cmp.Or(c, http.DefaultClient) }
}

// WithLogger says where to log that Sibyl cannot be reached, and that it can again. Without it nothing is logged.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = cmp.Or(l, o.logger) } }

// WithoutExplore says that no request may have everything on.
func WithoutExplore() Option { return func(o *options) { o.explore = false } }

// WithGoroutineLabels sets the labels trace_id and span_id on goroutines that start spans, until the spans end, so that
// profilers and kernel probes know what a goroutine works on. Spans must then be ended by the goroutine that starts them.
func WithGoroutineLabels() Option { return func(o *options) { o.labels = true } }

// Connect keeps the tracepoints of the process as Sibyl says, until ctx is done or the agent is closed. It does not wait for
// Sibyl: while that cannot be reached, only the baseline is on. It returns an error if the options are not valid.
func Connect(ctx context.Context, opts ...Option) (*Agent, error) {
	return Default.Connect(ctx, opts...)
}

// Connect is [Connect], for r. A registry has one agent at a time: it returns an error while another one, whose context is not done, is not
// closed.
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
		return nil, errors.New("connect to Sibyl: there is an agent already: close it first")
	}
	r.SetService(c.service())
	r.allowExplore(o.explore)
	r.labels.Store(o.labels)
	select { // what is there by now is registered at once
	case <-r.changed:
	default:
	}
	ctx, stop := context.WithCancel(ctx)
	a := &Agent{registry: r, client: c, logger: o.logger, stop: stop, applied: make(chan struct{}, 1)}
	a.done.Go(func() { a.follow(ctx) })
	a.done.Go(func() { a.report(ctx) })
	return a, nil
}

// Close goes back to the baseline, and waits until the agent's goroutines are done.
func (a *Agent) Close() {
	a.stop()
	a.done.Wait()
}

// ID returns what Sibyl calls the agent.
func (a *Agent) ID() string { return a.client.identity() }

// follow applies plans until ctx is done, and goes back to the baseline when a lease ends.
func (a *Agent) follow(ctx context.Context) {
	defer a.registry.connected.Store(false)
	defer a.adopt(nil)
	f := following{wait: longestWait, delay: firstBackOff}
	for ctx.Err() == nil {
		err := a.step(ctx, &f)
		if f.hash != "" && !time.Now().Before(f.until) {
			a.logger.WarnContext(ctx, "lease_ended", slog.Int64("plan", f.version))
			a.adopt(nil)
			f.hash, f.version = "", 0
		}
		if err != nil && ctx.Err() == nil {
			a.pause(ctx, &f, err)
		}
	}
}

// following is where follow is.
type following struct {
	registered bool
	hash       string // of the plan that applies; "": none
	version    int64
	until      time.Time     // its lease ends
	lease      time.Duration // from answer to answer
	wait       time.Duration // how long to wait for the next plan
	delay      time.Duration // how long to wait after the next failure
}

// step registers if it must, and waits for one plan; not beyond the lease.
func (a *Agent) step(ctx context.Context, f *following) error {
	if f.hash != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, f.until)
		defer cancel()
	}
	if !f.registered {
		if err := a.register(ctx); err != nil {
			return err
		}
		f.registered = true
	}
	asked := time.Now()
	p, err := a.client.plan(ctx, f.hash, f.wait)
	switch {
	case errors.Is(err, errUnknown), errors.Is(err, errTaken):
		f.registered, f.delay = false, firstBackOff // Sibyl is there: agents come one by one already, as they waited
	case errors.Is(err, errPlan):
		a.complain(err)
	}
	if err != nil {
		return err
	}
	if f.delay > firstBackOff {
		a.logger.InfoContext(ctx, "sibyl_is_back")
	}
	if p == nil || p.Hash == f.hash {
		f.until = time.Now().Add(f.lease)
		if time.Since(asked) < min(hasty, f.wait/2) {
			return errHasty
		}
		f.delay = firstBackOff
		return nil
	}
	f.delay = firstBackOff
	a.adopt(p)
	f.hash, f.version, f.lease = p.Hash, p.Version, time.Duration(p.LeaseSeconds)*time.Second
	f.wait = min(longestWait, f.lease/3)
	f.until = time.Now().Add(f.lease)
	return nil
}

// adopt makes p, which is valid, what applies; nil: the baseline.
func (a *Agent) adopt(p *protocol.Plan) {
	if err := a.registry.Apply(p); err != nil {
		panic("tracepoint: " + err.Error())
	}
	a.complain(nil)
}

// complain makes err, nil for none, the reason that the status gives for the last plan not to apply, and has it sent.
func (a *Agent) complain(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.problem = ""; err != nil {
		a.problem = protocol.Printable(err.Error(), protocol.MaxReason)
	}
	select {
	case a.applied <- struct{}{}:
	default: // told already
	}
}

// register tells Sibyl who the agent is and what it can switch on. If its id turns out to be another's, it takes a new one.
func (a *Agent) register(ctx context.Context) error {
	a.registering.Lock()
	defer a.registering.Unlock()
	err := a.client.register(ctx, a.registry.Catalogue(), a.registry.explores())
	if errors.Is(err, errTaken) {
		a.logger.WarnContext(ctx, "agent_id_is_taken", slog.String("agent", a.ID()))
		a.client.rename()
	}
	return err
}

// pause waits before the next try: longer each time, by chance, so that many agents do not come back at once, and not beyond
// the lease.
func (a *Agent) pause(ctx context.Context, f *following, cause error) {
	if f.delay == firstBackOff {
		a.logger.WarnContext(ctx, "no_plan", slog.Any("error", cause))
	}
	d := f.delay/2 + mathrand.N(f.delay)
	f.delay = min(2*f.delay, lastBackOff)
	if after, ok := errors.AsType[*refusedError](cause); ok && !errors.Is(cause, errTaken) { // another id need not wait
		d = max(d, after.retry)
	}
	if f.hash != "" {
		d = min(d, max(0, time.Until(f.until)))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// report tells what became of plans and what they cost, and what else can be switched on, until ctx is done.
func (a *Agent) report(ctx context.Context) {
	ticker := time.NewTicker(statusPeriod)
	defer ticker.Stop()
	settle := time.NewTimer(settleTime)
	settle.Stop()
	defer settle.Stop()
	grown := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.registry.changed:
			grown = true
			settle.Reset(settleTime)
		case <-settle.C:
			grown = a.register(ctx) != nil
		case <-a.applied:
			a.tell(ctx)
		case <-ticker.C:
			if grown {
				grown = a.register(ctx) != nil
			}
			a.tell(ctx)
		}
	}
}

// tell sends a status. One that does not arrive is made up for by the next.
func (a *Agent) tell(ctx context.Context) {
	s := protocol.Status{Tracepoints: a.registry.Outcomes()}
	s.Version, s.Hash = a.registry.applied()
	a.mu.Lock()
	s.Error = a.problem
	a.mu.Unlock()
	if err := a.client.status(ctx, &s); err != nil {
		a.logger.DebugContext(ctx, "no_status", slog.Any("error", err))
	}
}
