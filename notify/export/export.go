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

// Options choose how an [Exporter] works.
type Options struct {
	URL       string            // OTLP/HTTP endpoint; /v1/traces is added if it is missing
	Transport http.RoundTripper // sends requests, with what proves who sends them; nil: that of package http
	Log       *slog.Logger
}

// Bounds. What is told here helps people who look at a trace, and nothing depends on it: it is given up early.
const (
	mostWaiting  = 256  // traces
	mostTogether = 32   // traces in one request
	mostKnown    = 4096 // traces that are not told again
	attempts     = 5
	firstDelay   = time.Second // doubles with each attempt; as jitter any time up to it is added
	maxDelay     = 30 * time.Second
	timeout      = 10 * time.Second // of a request
	mostAnswer   = 64 << 10         // bytes of an answer that are read
)

// Exporter sends what is on critical paths to a tracing backend. Its life is New, Run. It is safe for concurrent use.
type Exporter struct {
	url    string
	log    *slog.Logger
	client *http.Client
	queue  chan Critical

	mu     sync.Mutex // guards what follows
	known  map[trace.ID]bool
	order  []trace.ID // of known; oldest first
	counts Counts
}

// Counts says what became of traces.
type Counts struct {
	Sent    uint64
	Dropped uint64 // the queue was full
	Failed  uint64 // given up
}

// New returns an Exporter; Run starts it.
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
		url: u.String(), log: o.Log, client: client, queue: make(chan Critical, mostWaiting),
		known: make(map[trace.ID]bool),
	}, nil
}

// Add has a trace told, unless it was lately. It never waits: what finds the queue full is dropped and counted.
func (e *Exporter) Add(c Critical) {
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
	if len(e.order) == mostKnown {
		delete(e.known, e.order[0])
		e.order = append(e.order[:0], e.order[1:]...)
	}
	e.known[c.Trace] = true
	e.order = append(e.order, c.Trace)
}

// Told reports whether a trace was added lately, so that adding it again does nothing.
func (e *Exporter) Told(id trace.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known[id]
}

// Queue returns how many traces wait, and how many can.
func (e *Exporter) Queue() (length, capacity int) { return len(e.queue), cap(e.queue) }

// Counts returns what became of traces since the start.
func (e *Exporter) Counts() Counts {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counts
}

// Run sends what is added until ctx is done.
func (e *Exporter) Run(ctx context.Context) {
	defer e.client.CloseIdleConnections()
	for {
		select {
		case c := <-e.queue:
			e.send(ctx, e.together(c))
		case <-ctx.Done():
			return
		}
	}
}

// together returns c with what else waits.
func (e *Exporter) together(c Critical) []Critical {
	list := []Critical{c}
	for len(list) < mostTogether {
		select {
		case c := <-e.queue:
			list = append(list, c)
		default:
			return list
		}
	}
	return list
}

// send sends traces, again where that may help, and counts what became of them.
func (e *Exporter) send(ctx context.Context, list []Critical) {
	body, err := ptraceotlp.NewExportRequestFromTraces(request(list)).MarshalProto()
	if err != nil {
		panic(err) // it was just made
	}
	err = e.repeat(ctx, body)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		e.counts.Failed += uint64(len(list))
		e.log.WarnContext(ctx, "export: a tracing backend was not told of critical paths", slog.Any("error", err), slog.Int("traces", len(list)))
		return
	}
	e.counts.Sent += uint64(len(list))
}

// repeat posts a body until it is accepted, a retry cannot help, or there were too many attempts.
func (e *Exporter) repeat(ctx context.Context, body []byte) error {
	delays := backoff.ExponentialBackOff{InitialInterval: firstDelay * 3 / 2, RandomizationFactor: 1. / 3, Multiplier: 2, MaxInterval: maxDelay}
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

// post sends a body once. If that fails it says whether another attempt may help, and how long to wait at least.
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
	_, err = io.Copy(io.Discard, io.LimitReader(w.Body, mostAnswer))
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
