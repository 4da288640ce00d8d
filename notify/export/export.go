package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure an [Exporter].
type Options struct {
	URL       string            // OTLP/HTTP endpoint; /v1/traces is added if it is missing
	Transport http.RoundTripper // sends requests and adds credentials; nil: http.DefaultTransport
	Log       *slog.Logger
}

// Limits on the exporter. It gives up early, because nothing depends on the additional spans: they only help people who
// look at a trace.
const (
	maxWaiting = 256  // traces
	maxBatch   = 32   // traces in one request
	maxKnown   = 4096 // latest traces, which are not sent again
	attempts   = 5
	firstDelay = time.Second // doubles with each attempt; jitter adds up to 100 %
	maxDelay   = 30 * time.Second
	timeout    = 10 * time.Second // of a request
	maxAnswer  = 64 << 10         // bytes of a response that are read
)

// Exporter sends critical paths to a tracing backend while Run runs. It is safe for concurrent use.
type Exporter struct {
	url    string
	log    *slog.Logger
	client *http.Client
	queue  chan Path

	mu     sync.Mutex // guards the fields below
	known  map[trace.ID]bool
	order  []trace.ID // of known; oldest first
	counts Counts
}

// Counts counts traces by result.
type Counts struct {
	Sent    uint64
	Dropped uint64 // the queue was full
	Failed  uint64 // all attempts failed
}

// New returns an Exporter, which sends nothing until Run is called. It returns an error unless o.URL is an http or
// https URL.
func New(o Options) (*Exporter, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("export: want a URL that starts with http:// or https://, not %q", o.URL)
	}
	if path := strings.TrimSuffix(u.Path, "/"); !strings.HasSuffix(path, "/v1/traces") {
		u.Path = path + "/v1/traces"
	}
	client := &http.Client{
		Transport:     o.Transport,
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Exporter{
		url:    u.String(),
		log:    o.Log,
		client: client,
		queue:  make(chan Path, maxWaiting),
		known:  make(map[trace.ID]bool),
	}, nil
}

// Add enqueues a path unless it has no spans or its trace was added recently. It never blocks: if the queue is full, it
// drops and counts the path.
func (e *Exporter) Add(c Path) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known[c.Trace] || len(c.Spans) == 0 {
		return
	}
	select {
	case e.queue <- c:
	default:
		e.counts.Dropped++
		return
	}
	if len(e.order) == maxKnown {
		delete(e.known, e.order[0])
		e.order = append(e.order[:0], e.order[1:]...)
	}
	e.known[c.Trace] = true
	e.order = append(e.order, c.Trace)
}

// Known reports whether a trace was added recently, so that adding it again has no effect.
func (e *Exporter) Known(id trace.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[id]
}

// Queue returns the length and the capacity of the queue.
func (e *Exporter) Queue() (length, capacity int) { return len(e.queue), cap(e.queue) }

// Counts returns the counts since the start.
func (e *Exporter) Counts() Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts
}

// Run sends added traces until ctx is done.
func (e *Exporter) Run(ctx context.Context) {
	defer e.client.CloseIdleConnections()
	for {
		select {
		case c := <-e.queue:
			e.send(ctx, e.batch(c))
		case <-ctx.Done():
			return
		}
	}
}

// batch returns c, followed by queued paths. The result contains at most maxBatch paths.
func (e *Exporter) batch(c Path) []Path {
	list := []Path{c}
	for len(list) < maxBatch {
		select {
		case c := <-e.queue:
			list = append(list, c)
		default:
			return list
		}
	}
	return list
}

// send sends the paths in list, with retries, and counts the result.
func (e *Exporter) send(ctx context.Context, list []Path) {
	body, err := ptraceotlp.NewExportRequestFromTraces(request(list)).MarshalProto()
	if err != nil {
		panic(err) // the request is valid
	}
	err = e.retry(ctx, body)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.counts.Failed += uint64(len(list))
		e.log.WarnContext(ctx, "export: critical paths could not be sent to the tracing backend",
			slog.Any("error", err), slog.Int("traces", len(list)))
		return
	}
	e.counts.Sent += uint64(len(list))
}

// retry posts a body until the backend accepts it, another attempt can't help, or all attempts are used up.
func (e *Exporter) retry(ctx context.Context, body []byte) error {
	delays := backoff.ExponentialBackOff{
		InitialInterval:     firstDelay * 3 / 2,
		RandomizationFactor: 1. / 3,
		Multiplier:          2,
		MaxInterval:         maxDelay,
	}
	for attempt := 1; ; attempt++ {
		after, again, err := e.post(ctx, body)
		if err == nil || !again || attempt == attempts || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(min(max(delays.NextBackOff(), after), maxDelay)):
		case <-ctx.Done():
			return err
		}
	}
}

// post sends a body once. If that fails, it returns an error. again reports whether another attempt may succeed, and
// after is the minimum wait before it.
func (e *Exporter) post(ctx context.Context, body []byte) (after time.Duration, again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return 0, false, err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "sibyl")
	w, err := e.client.Do(r)
	if err != nil {
		return 0, true, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(w.Body, maxAnswer))
	if err = errors.Join(err, w.Body.Close()); err != nil && w.StatusCode == http.StatusOK {
		return 0, true, err
	}
	switch w.StatusCode {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return 0, false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	if seconds, err := strconv.ParseUint(w.Header.Get("Retry-After"), 10, 16); err == nil {
		after = time.Duration(seconds) * time.Second
	}
	return after, again, fmt.Errorf("%s answered %s", e.url, w.Status)
}
