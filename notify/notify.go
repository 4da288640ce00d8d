// Package notify tells others about problems and decisions: it calls webhooks.
//
//	Events ─▶ Notifier.Tell ─(store.Outbox)─▶ one worker an endpoint ─▶ calls, retried
//
// An event that Tell accepted is told at least once to every endpoint that wants it, with the same ID each time, or becomes a dead
// letter, which is kept, shown, and can be sent again. Events of one problem come to an endpoint in their order. Endpoints do not
// wait for each other. Everything is bounded: calls at the same time and in time, answers in size, the outbox in messages and bytes.
//
// Where an endpoint leads is checked when it is called: addresses that are not public are refused unless that is allowed, and
// redirects are not followed.
package notify

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Endpoint is somebody who is told.
type Endpoint struct {
	Name         string // unique; under it messages wait
	URL          string
	Format       string // sibyl, cloudevents, alertmanager, grafana-annotation or slack
	Key          []byte // with which calls are signed; nil: they are not
	Events       []Type // that are told; empty: all
	AllowPrivate bool   // addresses that are not public may be called
}

// wants reports whether events of a type are told to e.
func (e *Endpoint) wants(t Type) bool {
	return t == Test || len(e.Events) == 0 || slices.Contains(e.Events, t)
}

// Options choose how a [Notifier] works.
type Options struct {
	Outbox *store.Outbox
	Clock  func() time.Time // nil: time.Now
	Log    *slog.Logger
}

const (
	// giveUpAfter is how long a message is tried before it is a dead letter.
	giveUpAfter = 24 * time.Hour
	// callsAtOnce bounds the calls to one endpoint at the same time.
	callsAtOnce = 4
	// firstDelay bounds the wait after the first failure; it doubles with each, up to maxDelay.
	firstDelay = 5 * time.Second
	maxDelay   = time.Hour
	// sweepEvery is how often it is looked for messages that are too old.
	sweepEvery = time.Minute
	// afterTrouble is how long a worker waits when the outbox cannot be read.
	afterTrouble = 10 * time.Second
)

// Notifier tells endpoints. Its life is New, Run; Tell may be called before and after, and what it accepted is told by the next Run. It
// is safe for concurrent use.
type Notifier struct {
	options Options
	changed chan struct{} // the endpoints changed; holds one

	mu      sync.Mutex // guards what follows
	callers []*caller
	workers map[string]*worker // by name of the endpoint; those that run
	counts  map[string]*Count
}

// Count is what became of the calls to one endpoint since the start.
type Count struct {
	Delivered uint64
	Failed    uint64      // attempts
	Dead      uint64      // messages that were given up
	Disabled  bool        // it said that it is gone: it is called again after a restart or reload
	LastError string      // of the last attempt; empty: it was accepted
	Last      trace.Nanos // when a message was last accepted; 0: none was
}

// Webhook is what people may know of an endpoint and of what became of its messages.
type Webhook struct {
	Name, Format string
	// Origin is where it leads, like https://hooks.example. Paths and queries may be secret.
	Origin  string
	Events  []Type // that are told; empty: all
	Signed  bool
	Count   Count
	Waiting int // messages
	Dead    int // dead letters
}

// New returns a Notifier for endpoints.
func New(o Options, endpoints []Endpoint) (*Notifier, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	n := &Notifier{
		options: o, changed: make(chan struct{}, 1),
		workers: make(map[string]*worker), counts: make(map[string]*Count),
	}
	return n, n.Configure(endpoints)
}

// Configure replaces the endpoints; those that are disabled are called again. Messages to endpoints that are no more become dead letters.
func (n *Notifier) Configure(endpoints []Endpoint) error {
	var callers []*caller
	counts := make(map[string]*Count)
	for i := range endpoints {
		c, err := newCaller(&endpoints[i], n.options.Clock)
		if err != nil {
			return err
		}
		if counts[c.endpoint.Name] != nil {
			return fmt.Errorf("there are two webhooks %s", c.endpoint.Name)
		}
		counts[c.endpoint.Name] = &Count{}
		callers = append(callers, c)
	}
	n.mu.Lock()
	for name, count := range counts {
		if old := n.counts[name]; old != nil {
			*count = *old
			count.Disabled = false
		}
	}
	n.callers, n.counts = callers, counts
	n.mu.Unlock()
	select {
	case n.changed <- struct{}{}:
	default:
	}
	return nil
}

func (n *Notifier) now() trace.Nanos { return trace.Nanos(n.options.Clock().UnixNano()) }

// Tell accepts an event for all endpoints that want it. When it returns without an error the event is durable. An event that was told
// before, with the same ID, is not told again: so whoever makes events again after a restart need not know which were told, as long as it
// tells them before it saves a state in which they are made no more.
func (n *Notifier) Tell(e *Event) error {
	n.mu.Lock()
	callers := n.callers
	n.mu.Unlock()
	var messages []store.Message
	for _, c := range callers {
		if !c.endpoint.wants(e.Type) {
			continue
		}
		if body := c.format.render(e); body != nil {
			messages = append(messages, store.Message{
				ID: e.ID, Endpoint: c.endpoint.Name, Event: string(e.Type), Format: c.endpoint.Format, Problem: e.problem,
				At: trace.Nanos(e.At), Body: body,
			})
		}
	}
	if _, err := n.options.Outbox.Put(n.now(), messages); err != nil {
		return err
	}
	for i := range messages {
		n.wake(messages[i].Endpoint)
	}
	return nil
}

// Resend has a message that waits tried at once, or a dead letter sent again. The error is [store.ErrNoMessage] if there is no such
// message.
func (n *Notifier) Resend(number uint64) error {
	endpoint, err := n.options.Outbox.Resend(number, n.now())
	n.wake(endpoint)
	return err
}

// wake has the worker of an endpoint look for messages.
func (n *Notifier) wake(endpoint string) {
	n.mu.Lock()
	w := n.workers[endpoint]
	n.mu.Unlock()
	if w == nil {
		return
	}
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// Counts returns what became of the calls, by the name of the endpoint.
func (n *Notifier) Counts() map[string]Count {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[string]Count, len(n.counts))
	for name, c := range n.counts {
		all[name] = *c
	}
	return all
}

// Webhooks returns the endpoints, in their order in the configuration.
func (n *Notifier) Webhooks() []Webhook {
	counts := n.Counts()
	n.mu.Lock()
	callers := n.callers
	n.mu.Unlock()
	all := make([]Webhook, len(callers))
	for i, c := range callers {
		e := &c.endpoint
		all[i] = Webhook{Name: e.Name, Format: e.Format, Origin: origin(e.URL), Events: e.Events, Signed: e.Key != nil, Count: counts[e.Name]}
		all[i].Waiting, all[i].Dead = n.options.Outbox.Held(e.Name)
	}
	return all
}

// origin returns the scheme and host of an address; empty where it has none.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// count changes what is counted of an endpoint, if it still exists.
func (n *Notifier) count(endpoint string, change func(*Count)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.counts[endpoint]; c != nil {
		change(c)
	}
}

// disabled reports whether an endpoint said that it is gone.
func (n *Notifier) disabled(endpoint string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.counts[endpoint]
	return c != nil && c.Disabled
}

// Run tells endpoints until ctx is done. Calls that are under way then are broken off, and made again after the next start. When the
// endpoints change, calls under way come to their end first.
func (n *Notifier) Run(ctx context.Context) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for ctx.Err() == nil {
		n.drain()
		stop := n.start(ctx)
		n.sweep()
		for again := true; again; {
			select {
			case <-sweep.C:
				n.sweep()
			case <-n.changed:
				again = false
			case <-ctx.Done():
				again = false
			}
		}
		stop()
	}
}

// drain forgets that the endpoints changed: their present state is looked at next.
func (n *Notifier) drain() {
	select {
	case <-n.changed:
	default:
	}
}

// start starts a worker for each endpoint and returns what ends them, and waits for them.
func (n *Notifier) start(ctx context.Context) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all sync.WaitGroup
	stopped := make(chan struct{})
	for _, c := range n.callers {
		w := &worker{Notifier: n, caller: c, woken: make(chan struct{}, 1), finished: make(chan struct{}, callsAtOnce), stopped: stopped}
		n.workers[c.endpoint.Name] = w
		all.Go(func() { w.run(ctx) })
	}
	return func() {
		close(stopped)
		all.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		clear(n.workers)
	}
}

// sweep gives up what was tried for too long, and what has nowhere to go.
func (n *Notifier) sweep() {
	n.mu.Lock()
	known := make(map[string]bool)
	for _, c := range n.callers {
		known[c.endpoint.Name] = true
	}
	n.mu.Unlock()
	now := n.now()
	died, err := n.options.Outbox.Expire(now, now.Add(-giveUpAfter), func(endpoint string) bool { return known[endpoint] })
	if err != nil {
		n.options.Log.Error("webhooks: the outbox could not be cleaned up", slog.Any("error", err))
	}
	if died > 0 {
		n.options.Log.Warn("webhooks: messages were given up; they can be sent again", slog.Int("messages", died))
	}
}

// delay returns a random wait after a number of failures. Its bound doubles with each failure, from firstDelay to maxDelay.
func delay(failures int) time.Duration {
	b := backoff.ExponentialBackOff{InitialInterval: firstDelay / 2, RandomizationFactor: 1, Multiplier: 2, MaxInterval: maxDelay / 2}
	var wait time.Duration
	for range min(failures, 20) { // the bound has long been reached
		wait = b.NextBackOff()
	}
	return wait
}

// Try calls an endpoint once with a test event, outside of all queues, and returns its answer.
func Try(ctx context.Context, e *Endpoint, source string, clock func() time.Time) (*Answer, error) {
	c, err := newCaller(e, clock)
	if err != nil {
		return nil, err
	}
	defer c.close()
	event := NewTest(trace.Nanos(clock().UnixNano()), source)
	answer, err := c.call(ctx, event.ID, c.format.render(event))
	if err != nil {
		return nil, fmt.Errorf("call webhook %s: %w", e.Name, err)
	}
	return answer, nil
}

// Err returns why a test was not accepted; nil if it was.
func (a *Answer) Err() error { return a.err() }
