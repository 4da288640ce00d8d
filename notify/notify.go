// Package notify sends incidents, problems and decisions to webhooks and by e-mail.
//
//	Events ─▶ Notifier.Enqueue ─(store.Outbox)─▶ one worker per endpoint ─▶ calls with retries
//
// Enqueue accepts events. Each event is delivered at least once to every endpoint that subscribes to its type, always
// with the same ID. If delivery fails for too long, the event becomes a dead letter, which can be resent. An endpoint
// receives the events of one incident or problem in order. Endpoints do not wait for each other. There are limits on
// the concurrency and duration of calls, on the size of answers, and on the number and size of messages in the outbox.
//
// Each call checks the address of its endpoint: connections to addresses that are not public are denied unless
// allowed, and redirects are not followed.
package notify

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Endpoint is a webhook, or a destination of e-mails.
type Endpoint struct {
	Name   string // unique; the outbox refers to it
	URL    string // empty for e-mail, see Mail
	Mail   *Mail  // of format email
	Format string // a key of formats
	Key    []byte // signs calls; may be empty
	// authorizes calls: a PagerDuty routing key or an Opsgenie integration key; empty for other formats
	Token        string
	Events       []Type // subscribed types; empty: all
	AllowPrivate bool   // permits addresses that are not public
	Buttons      bool   // of format slack: clicks come back, so messages get buttons
}

// subscribes reports whether e receives events of type t. Paging services keep paging people until somebody
// acknowledges the incident, and a click on a button should have a visible effect. So if such an endpoint receives
// opened incidents, it also receives acknowledgements.
func (e *Endpoint) subscribes(t Type) bool {
	answers := formats[e.Format].acknowledges || e.Buttons
	implied := t == IncidentAcknowledged && answers && slices.Contains(e.Events, IncidentOpened)
	return t == Test || len(e.Events) == 0 || slices.Contains(e.Events, t) || implied
}

// origin returns the scheme and host of the endpoint's address.
func (e *Endpoint) origin() string {
	if e.Mail != nil {
		return "smtp://" + e.Mail.Server
	}
	return origin(e.URL)
}

// Options configure a [Notifier].
type Options struct {
	Outbox *store.Outbox
	Clock  func() time.Time // nil: time.Now
	Log    *slog.Logger
	// Delivered, if not nil, is called when the message about event has been delivered to endpoint.
	Delivered func(ctx context.Context, event, endpoint string)

	transport func(endpoint string) http.RoundTripper // replaces the network in tests
}

const (
	// giveUpAfter is the age at which an undelivered message becomes a dead letter.
	giveUpAfter = 24 * time.Hour
	// callsAtOnce is the maximum number of concurrent calls to one endpoint.
	callsAtOnce = 4
	// firstDelay is the maximum wait after the first failure. The maximum doubles with each further failure, up to
	// maxDelay.
	firstDelay = 5 * time.Second
	maxDelay   = time.Hour
	// sweepEvery is the interval between searches for undeliverable messages.
	sweepEvery = time.Minute
	// maxUnstored is the maximum number of events kept in memory while the outbox cannot be read or written.
	maxUnstored = 1000
	// outboxDelay is the time that a worker waits after an outbox error.
	outboxDelay = 10 * time.Second
)

// Notifier delivers events to endpoints while Run runs. Enqueue may be called at any time; the next Run delivers the
// events. It is safe for concurrent use.
type Notifier struct {
	options Options
	changed chan struct{} // signals a change of the endpoints; holds one

	enqueuing sync.Mutex // guards the next field
	unstored  []*Event   // oldest first

	mu      sync.Mutex // guards the fields below
	callers []*caller
	workers map[string]*worker // running, by name of the endpoint
	counts  map[string]*Count
}

// Count counts the calls to one endpoint since the start.
type Count struct {
	Delivered uint64
	Failed    uint64      // attempts
	Dead      uint64      // messages given up
	Disabled  bool        // the endpoint answered 410 Gone; it is not called until a restart or reload
	LastError string      // of the last attempt, or the recipients that refused it; empty if it succeeded
	Last      trace.Nanos // time of the last delivery; 0 before the first
}

// Webhook is the state of an endpoint without its secrets.
type Webhook struct {
	Name, Format string
	// Origin is the scheme and host of the address, like https://hooks.example. Paths and queries may be secret.
	Origin  string
	Events  []Type // subscribed types; empty: all
	Signed  bool
	Count   Count
	Waiting int // messages
	Dead    int // dead letters
}

// New returns a Notifier for endpoints. See [Notifier.Prepare] for errors.
func New(o Options, endpoints []Endpoint) (*Notifier, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	n := &Notifier{
		options: o, changed: make(chan struct{}, 1),
		workers: make(map[string]*worker), counts: make(map[string]*Count),
	}
	configure, err := n.Prepare(endpoints)
	if err != nil {
		return nil, err
	}
	configure()
	return n, nil
}

// Prepare returns a function that replaces the endpoints and enables disabled ones. Messages to removed endpoints then
// become dead letters. Prepare returns an error if two endpoints have the same name or an endpoint is invalid.
func (n *Notifier) Prepare(endpoints []Endpoint) (configure func(), err error) {
	var callers []*caller
	counts := make(map[string]*Count)
	for i := range endpoints {
		c, err := newCaller(&endpoints[i], n.options.Clock)
		if err != nil {
			return nil, err
		}
		if counts[c.endpoint.Name] != nil {
			return nil, fmt.Errorf("webhook %s: the name is used twice", c.endpoint.Name)
		}
		if n.options.transport != nil {
			c.client.Transport = n.options.transport(c.endpoint.Name)
		}
		counts[c.endpoint.Name] = &Count{}
		callers = append(callers, c)
	}
	return func() {
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
	}, nil
}

func (n *Notifier) now() trace.Nanos { return trace.Nanos(n.options.Clock().UnixNano()) }

// Enqueue accepts events for all endpoints that subscribe to their types. When it returns nil, these and all earlier
// events are durable. If it returns an error, the next call tries to store the rest. Enqueue ignores events with IDs
// that it has accepted before, so the caller may enqueue events again after a restart. The caller must not save a state
// that no longer produces an event before Enqueue has returned nil.
func (n *Notifier) Enqueue(events ...*Event) (err error) {
	n.enqueuing.Lock()
	defer n.enqueuing.Unlock()
	n.unstored = append(n.unstored, events...)
	behind := make(map[search.Subject]bool) // subjects with an older event that isn't stored
	n.unstored = slices.DeleteFunc(n.unstored, func(e *Event) bool {
		if behind[e.subject] {
			return false
		}
		failed := n.store(e)
		behind[e.subject] = failed != nil && !e.subject.IsZero()
		err = cmp.Or(err, failed)
		return failed == nil
	})
	if surplus := len(n.unstored) - maxUnstored; surplus > 0 {
		n.unstored = slices.Delete(n.unstored, 0, surplus)
		n.options.Log.Error("webhooks: too many events could not be stored: the oldest are lost",
			slog.Int("events", surplus))
	}
	return err
}

// store puts e into the outbox for all endpoints that subscribe to its type.
func (n *Notifier) store(e *Event) error {
	n.mu.Lock()
	callers := n.callers
	n.mu.Unlock()
	var messages []store.Message
	for _, c := range callers {
		informed := c.format.keepsState && (e.resolved || e.Type == IncidentAcknowledged)
		if e.muted && !informed || !c.endpoint.subscribes(e.Type) || !e.routedTo(c.endpoint.Name) {
			continue
		}
		if body := c.format.render(e); body != nil {
			messages = append(messages, store.Message{
				ID:       e.ID,
				Endpoint: c.endpoint.Name,
				Event:    string(e.Type),
				Format:   c.endpoint.Format,
				Subject:  e.subject,
				At:       trace.Nanos(e.At),
				Body:     body,
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

// Resend makes a waiting message due at once, or sends a dead letter again. The error is [store.ErrNoMessage] if there
// is no such message.
func (n *Notifier) Resend(number uint64) error {
	endpoint, err := n.options.Outbox.Resend(number, n.now())
	n.wake(endpoint)
	return err
}

// wake makes the worker of an endpoint look for due messages.
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

// Counts returns the counts of all endpoints by name.
func (n *Notifier) Counts() map[string]Count {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[string]Count, len(n.counts))
	for name, c := range n.counts {
		all[name] = *c
	}
	return all
}

// Webhooks returns the endpoints in their configured order.
func (n *Notifier) Webhooks() []Webhook {
	counts := n.Counts()
	n.mu.Lock()
	callers := n.callers
	n.mu.Unlock()
	all := make([]Webhook, len(callers))
	for i, c := range callers {
		e := &c.endpoint
		all[i] = Webhook{
			Name:   e.Name,
			Format: e.Format,
			Origin: e.origin(),
			Events: e.Events,
			Signed: e.Key != nil,
			Count:  counts[e.Name],
		}
		all[i].Waiting, all[i].Dead = n.options.Outbox.Count(e.Name)
	}
	return all
}

// origin returns the scheme and host of an address, or "" if it has no host.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// count calls change with the counts of the endpoint with the given name, if it still exists.
func (n *Notifier) count(endpoint string, change func(*Count)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.counts[endpoint]; c != nil {
		change(c)
	}
}

// disabled reports whether the endpoint with the given name is disabled because it answered 410 Gone.
func (n *Notifier) disabled(endpoint string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.counts[endpoint]
	return c != nil && c.Disabled
}

// Run delivers events until ctx is done. It then cancels calls in progress; the next Run repeats them. When the
// endpoints change, Run first waits for calls in progress.
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

// drain clears the signal that the endpoints changed.
func (n *Notifier) drain() {
	select {
	case <-n.changed:
	default:
	}
}

// start starts a worker for each endpoint. stop stops the workers and waits until they have returned.
func (n *Notifier) start(ctx context.Context) (stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all sync.WaitGroup
	stopped := make(chan struct{})
	for _, c := range n.callers {
		w := &worker{
			notifier: n,
			caller:   c,
			woken:    make(chan struct{}, 1),
			finished: make(chan struct{}, callsAtOnce),
			stopped:  stopped,
		}
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

// sweep turns messages that are too old, or that are for removed endpoints, into dead letters.
func (n *Notifier) sweep() {
	n.mu.Lock()
	known := make(map[string]bool)
	for _, c := range n.callers {
		known[c.endpoint.Name] = true
	}
	n.mu.Unlock()
	now := n.now()
	expired, err := n.options.Outbox.Expire(now, now.Add(-giveUpAfter),
		func(endpoint string) bool { return known[endpoint] })
	if err != nil {
		n.options.Log.Error("webhooks: the outbox could not be cleaned up", slog.Any("error", err))
	}
	if expired > 0 {
		n.options.Log.Warn("webhooks: messages were given up; they can be sent again", slog.Int("messages", expired))
	}
}

// delay returns a random wait for use after the given number of consecutive failures. The upper bound doubles with each
// failure, from firstDelay to maxDelay.
func delay(failures int) time.Duration {
	b := backoff.ExponentialBackOff{
		InitialInterval:     firstDelay / 2,
		RandomizationFactor: 1,
		Multiplier:          2,
		MaxInterval:         maxDelay / 2,
	}
	var wait time.Duration
	for range min(failures, 20) { // enough to reach maxDelay
		wait = b.NextBackOff()
	}
	return wait
}

// Try calls an endpoint once with a test event, bypassing the outbox, and returns its answer, which may be a rejection.
func Try(ctx context.Context, e *Endpoint, source string, clock func() time.Time) (*Answer, error) {
	c, err := newCaller(e, clock)
	if err != nil {
		return nil, err
	}
	defer c.close()
	event := NewTest(trace.Nanos(clock().UnixNano()), source)
	answer, err := c.call(ctx, &store.Message{
		ID:      event.ID,
		Event:   string(event.Type),
		Subject: event.subject,
		At:      trace.Nanos(event.At),
		Body:    c.format.render(event),
	})
	if err != nil {
		return nil, fmt.Errorf("call webhook %s: %w", e.Name, err)
	}
	return answer, nil
}
