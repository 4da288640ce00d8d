// Package exchange implements the agents' side of the tracepoint protocol over HTTP. It registers a catalogue with
// Sibyl, applies the plans that Sibyl sends while their leases last, and reports the states and costs of tracepoints.
// Package protocol defines the messages.
package exchange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Timing of the exchange with Sibyl.
const (
	maxWait           = 30 * time.Second // for a new plan in a request; never more than a third of the lease
	statusInterval    = 10 * time.Second
	catalogueDebounce = time.Second // delay before registering a changed catalogue, since changes come in bursts
	minBackoff        = 500 * time.Millisecond
	maxBackoff        = 30 * time.Second
	maxSample         = time.Minute // maximum time of sampling stacks after a status
	minPollInterval   = time.Second // if "not modified" comes earlier, the server does not support long polling
)

// Tracepoints is the set of tracepoints that plans can enable. The agent calls its methods from several goroutines.
type Tracepoints interface {
	// Catalogue returns all tracepoints, ascending by ID.
	Catalogue() []protocol.Tracepoint
	// Apply makes p the current plan. p is valid or nil. If p is nil, only the baseline is enabled.
	Apply(p *protocol.Plan)
	// Outcomes returns the states of the tracepoints of the current plan and the costs of all tracepoints with hits,
	// ascending by ID.
	Outcomes() []protocol.Outcome
}

// StackSampler is implemented by [Tracepoints] that can measure where slow requests spend their time. Their agents
// should have the capability [protocol.CanStacks].
type StackSampler interface {
	// SampleStacks starts sampling stacks, and stops after d.
	SampleStacks(d time.Duration)
	// Stacks returns the stacks sampled since the previous call. They must fit into a status.
	Stacks() []protocol.Stacks
}

// Settings configure an [Agent].
type Settings struct {
	Endpoint     string            // URL of Sibyl's API for agents, for example "http://sibyl:8321"
	Token        string            // bearer token; may be empty
	ID           string            // must be unique
	Resource     map[string]string // attributes of the agent's resource, including service.name
	Capabilities []protocol.Capability
	// Changed receives a value when the catalogue has changed.
	Changed <-chan struct{}
	// Due receives a value when the outcomes have changed and a status should be sent at once.
	Due    <-chan struct{}
	Client *http.Client // without a timeout, because of long polling; http.DefaultClient if nil
	Logger *slog.Logger // for connection failures and recoveries; may be nil
}

// Agent applies Sibyl's plans to tracepoints while their leases last.
type Agent struct {
	tracepoints Tracepoints
	changed     <-chan struct{}
	due         <-chan struct{}
	client      *client
	logger      *slog.Logger
	stop        context.CancelFunc
	done        sync.WaitGroup

	statusDue   chan struct{}  // holds one value if the state to report has changed since the last receive
	registering sync.Mutex     // serializes registrations
	mu          sync.Mutex     // guards the fields below
	plan        *protocol.Plan // nil for the baseline
	planError   string         // reason why the last plan was rejected; empty if it was accepted
}

// New returns an agent that does nothing until [Agent.Start] is called. It returns an error if the settings are not
// valid.
func New(s Settings, tracepoints Tracepoints) (*Agent, error) {
	c, err := newClient(&s)
	if err != nil {
		return nil, fmt.Errorf("connect to Sibyl: %w", err)
	}
	return &Agent{
		tracepoints: tracepoints,
		changed:     s.Changed,
		due:         s.Due,
		client:      c,
		logger:      cmp.Or(s.Logger, slog.New(slog.DiscardHandler)),
		statusDue:   make(chan struct{}, 1),
	}, nil
}

// Start applies the plans of Sibyl in the background until ctx is done or the agent is closed, and then calls ended. It
// does not wait for a connection.
func (a *Agent) Start(ctx context.Context, ended func()) {
	ctx, a.stop = context.WithCancel(ctx)
	a.done.Go(func() {
		defer ended()
		a.followPlans(ctx)
	})
	a.done.Go(func() { a.reportStatus(ctx) })
}

// Close disables all tracepoints outside the baseline, and waits for the agent's goroutines to end.
func (a *Agent) Close() {
	a.stop()
	a.done.Wait()
}

// ID returns the ID of the agent. It changes if Sibyl knows another agent by the same ID.
func (a *Agent) ID() string { return a.client.agentID() }

// followPlans applies plans until ctx is done. It applies nil, that is, the baseline, when a lease expires.
func (a *Agent) followPlans(ctx context.Context) {
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
	hash       string        // of the current plan; empty for the baseline
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

// poll registers the agent if necessary, and then waits for one plan, at most until the lease expires.
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

// apply makes p the current plan. If p is nil, only the baseline remains enabled.
func (a *Agent) apply(p *protocol.Plan) {
	a.tracepoints.Apply(p)
	a.mu.Lock()
	a.plan = p
	a.mu.Unlock()
	a.setPlanError(nil)
}

// setPlanError records err, the reason why the last plan was rejected, and triggers a status. A nil err means that the
// plan was accepted.
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

// register sends the agent's description and catalogue to Sibyl. If another agent has the same ID, it chooses a new ID.
func (a *Agent) register(ctx context.Context) error {
	a.registering.Lock()
	defer a.registering.Unlock()
	err := a.client.register(ctx, a.tracepoints.Catalogue())
	if errors.Is(err, errIDConflict) {
		a.logger.WarnContext(ctx, "another agent has the same ID", slog.String("agent", a.ID()))
		a.client.renewID()
	}
	return err
}

// waitToRetry waits after a failed request for the longer of the backoff and Retry-After, but not beyond the lease.
func (a *Agent) waitToRetry(ctx context.Context, s *pollState, cause error) {
	if !s.failing {
		a.logger.WarnContext(ctx, "cannot get a plan from Sibyl", slog.Any("error", cause))
	}
	s.failing = true
	d := s.backoff.NextBackOff()
	refused, ok := errors.AsType[*responseError](cause)
	if ok && !errors.Is(cause, errIDConflict) { // the new ID can register at once
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
	unregistered := false // a change of the catalogue hasn't been registered yet
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
			unregistered = true
			debounce.Reset(catalogueDebounce)
		case <-debounce.C:
			unregistered = a.register(ctx) != nil
		case <-a.statusDue:
			a.sendStatus(ctx)
		case <-a.due:
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
	s := protocol.Status{Tracepoints: a.tracepoints.Outcomes()}
	a.mu.Lock()
	if s.Error = a.planError; a.plan != nil {
		s.Version, s.Hash = a.plan.Version, a.plan.Hash
	}
	a.mu.Unlock()
	sampler, samples := a.tracepoints.(StackSampler)
	if samples {
		s.Stacks = sampler.Stacks()
	}
	sample, err := a.client.status(ctx, &s)
	if err != nil {
		a.logger.DebugContext(ctx, "cannot send a status to Sibyl", slog.Any("error", err))
	}
	if samples && sample > 0 {
		sampler.SampleStacks(sample)
	}
}
