// Package query fetches traces from a running Jaeger and forwards them as OTLP. It queries consecutive windows of time.
//
// The input is the query service of a Jaeger, over HTTP (/api/v3/traces) or gRPC (api_v2.QueryService). The output is
// calls to [receiver.Intake.Take], as from a receiver, with whole traces, each of them once:
//
//  1. Windows [from, to) follow each other without gaps. They end at least [Options.Lag] before now, so that fetched
//     traces are complete.
//  2. In each window, query the traces of each service. Jaeger's API has no pages: if a response contains the maximum
//     number of traces or exceeds the allowed size, halve the window for that service and query both halves.
//  3. Jaeger finds a trace by any span of the service in the window. The trace belongs to the window that contains its
//     first span of the queried services; ignore it in other windows.
//  4. Forward the traces of the window. When all are accepted, save the end of the window. The next window starts
//     there, even after a restart.
//
// Invariants: without crashes, every trace whose spans reach Jaeger within Lag is forwarded exactly once. After a
// crash, the unfinished window is fetched again; the engine, which remembers the IDs of closed traces, drops the
// duplicates if the restart comes soon enough. In the same way, it drops traces whose spans also arrive by OTLP:
// windows lag behind, so the engine has closed these traces before they are fetched. It cannot drop traces that arrived
// by OTLP longer ago, for example if the first fetch looks back further. Spans that reach Jaeger later than Lag are
// missed.
//
// Memory is bounded: one response at a time, of at most [Options.MaxResponse] bytes before decoding, and the IDs of one
// window.
package query

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/ingest/otlp/receiver"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Options configures a [Fetcher]. Zero fields stand for their defaults, if they have one.
type Options struct {
	URL      string        // URL of the query service, with scheme
	Protocol string        // http or grpc; for grpc, the URL's scheme http means plain text and https means TLS
	Services []string      // services to fetch traces of; if empty, all services that Jaeger knows
	Interval time.Duration // between fetches; default 10 s
	Lookback time.Duration // time from the start of the first window to now−Lag; default 0

	Lag         time.Duration // minimum age of the end of a window; default 30 s
	MaxTraces   int           // maximum number of traces per query; default 200
	MaxResponse int64         // maximum size before decoding, which takes about six times the memory; default 32 MiB

	Log *slog.Logger // discards messages if nil
}

// Positions stores the end of the last finished window. Load returns the zero time if no window is finished yet. Only
// one goroutine calls the methods.
type Positions interface {
	Load(ctx context.Context) (time.Time, error)
	Save(ctx context.Context, through time.Time) error
}

// Counts counts the work of a [Fetcher] since its start. All fields may be read at any time.
type Counts struct {
	Traces     atomic.Int64 // number of forwarded traces
	Spans      atomic.Int64 // number of spans in forwarded traces
	Rejected   atomic.Int64 // number of spans that the intake rejected
	Queries    atomic.Int64 // number of queries to Jaeger
	Failed     atomic.Int64 // number of failed queries
	Incomplete atomic.Int64 // incomplete windows: unreadable, or with too many traces but too short to halve
	Through    atomic.Int64 // end of the last finished window, in nanoseconds since the epoch; may be 0
}

// Defaults of [Options] and fixed limits.
const (
	defaultInterval = 10 * time.Second
	defaultLag      = 30 * time.Second // SDKs export every 5 s; a Collector's batches and Jaeger's storage add to that
	defaultTraces   = 200
	defaultResponse = 32 << 20

	maxWindow      = time.Minute      // maximum length of windows while catching up
	minRetryWindow = time.Second      // minimum length of windows after errors
	minWindow      = time.Millisecond // windows are not halved below this
	precision      = time.Microsecond // precision of times in Jaeger's storage
	queryTimeout   = time.Minute
	firstPause     = time.Second // pause after an error; doubled each time
	maxPause       = time.Minute
	requestSpans   = 2000    // maximum number of spans in a forwarded request, unless a trace is larger
	maxServices    = 10_000  // maximum number of services to query
	maxIDs         = 1 << 20 // maximum number of IDs remembered per window; beyond that, the engine detects duplicates
)

// Fetcher fetches traces from one Jaeger. Call New, then Run once.
type Fetcher struct {
	options   Options
	name      string
	intake    receiver.Intake
	positions Positions
	source    source
	log       *slog.Logger
	counts    Counts

	// State of the current window:
	services map[string]bool // services queried in the window
	window   window
	taken    map[pcommon.TraceID]struct{}
}

// window is an interval of time [from, to).
type window struct{ from, to time.Time }

func (w window) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

// source is a connection to Jaeger. Failed calls may be retried.
type source interface {
	services(ctx context.Context) ([]string, error)
	// find returns at most n traces with a span of service that starts in w, or shortly after. It returns errLarge if
	// the traces exceed the allowed size.
	find(ctx context.Context, service string, w window, n int) (ptrace.Traces, error)
	close() error
}

// Errors in responses.
var (
	errLarge      = errors.New("the response is larger than allowed")
	errUnreadable = errors.New("the response cannot be read")
)

// New returns a Fetcher that forwards traces to intake. It does not connect yet. It returns an error if o is invalid.
func New(intake receiver.Intake, positions Positions, o Options) (*Fetcher, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the URL of a query service, for example http://jaeger:16686", o.URL)
	}
	if o.Interval <= 0 {
		o.Interval = defaultInterval
	}
	if o.Lag <= 0 {
		o.Lag = defaultLag
	}
	if o.MaxTraces <= 0 {
		o.MaxTraces = defaultTraces
	}
	if o.MaxResponse <= 0 {
		o.MaxResponse = defaultResponse
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Fetcher{
		options:   o,
		name:      shown(u),
		intake:    intake,
		positions: positions,
		log:       o.Log.With(slog.String("jaeger", shown(u))),
	}
	switch o.Protocol {
	case "http", "":
		f.source = newHTTP(u, o.MaxResponse)
	case "grpc":
		f.source, err = newGRPC(u, o.MaxResponse)
	default:
		err = fmt.Errorf("protocol %q of %s: want http or grpc", o.Protocol, shown(u))
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// shown returns u without user name, password, query and fragment, because any of them may contain a token.
func shown(u *url.URL) string {
	x := *u
	x.User, x.RawQuery, x.Fragment = nil, "", ""
	return x.String()
}

// Name returns the URL of the server without user name, password and query, for logs and metrics.
func (f *Fetcher) Name() string { return f.name }

// Counts returns the counters of f.
func (f *Fetcher) Counts() *Counts { return &f.counts }

// Run fetches until ctx is done and then returns nil. It returns an error if the position cannot be loaded.
func (f *Fetcher) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, f.source.close()) }()
	from, err := f.positions.Load(ctx)
	if err != nil {
		return fmt.Errorf("load the position in Jaeger: %w", err)
	}
	if from.IsZero() {
		from = time.Now().Add(-f.options.Lag - f.options.Lookback)
	}
	from = from.Truncate(precision)
	length, pause := maxWindow, firstPause
	for ctx.Err() == nil {
		to := from.Add(length)
		if latest := time.Now().Add(-f.options.Lag).Truncate(precision); to.After(latest) {
			to = latest
		}
		if to.After(from) {
			if err := f.fetch(ctx, window{from, to}); err != nil {
				if ctx.Err() != nil {
					break
				}
				f.log.WarnContext(ctx, "fetching from Jaeger failed, retrying", slog.Any("error", err),
					slog.Duration("pause", pause))
				sleep(ctx, jittered(pause))
				if errors.Is(err, errUnreadable) && to.Sub(from) <= minRetryWindow && f.skip(ctx, to) == nil {
					from = to
				}
				length, pause = max(length/2, minRetryWindow), min(2*pause, maxPause)
				continue
			}
			from = to
			length, pause = min(2*length, maxWindow), firstPause
		}
		if time.Since(from) < f.options.Lag+f.options.Interval { // caught up
			sleep(ctx, jittered(f.options.Interval))
		}
	}
	return nil
}

// skip counts an unreadable window that ends at `to` as incomplete, and saves the end of the window as the position.
func (f *Fetcher) skip(ctx context.Context, to time.Time) error {
	f.counts.Incomplete.Add(1)
	f.log.ErrorContext(ctx, "cannot read Jaeger's responses: some traces are missing", slog.Time("until", to))
	return f.save(ctx, to)
}

// jittered returns a random duration between 75 % and 125 % of d, to spread the load of many clients.
func jittered(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2+1) }

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fetch forwards the traces of w and saves the end of w.
func (f *Fetcher) fetch(ctx context.Context, w window) error {
	services := f.options.Services
	if len(services) == 0 {
		var err error
		if services, err = f.allServices(ctx); err != nil {
			return err
		}
	}
	f.window, f.taken, f.services = w, make(map[pcommon.TraceID]struct{}), make(map[string]bool, len(services))
	for _, s := range services {
		f.services[s] = true
	}
	for _, s := range services {
		if err := f.find(ctx, s, w); err != nil {
			return err
		}
	}
	return f.save(ctx, w.to)
}

func (f *Fetcher) save(ctx context.Context, through time.Time) error {
	if err := f.positions.Save(ctx, through); err != nil {
		return fmt.Errorf("save the position in Jaeger: %w", err)
	}
	f.counts.Through.Store(through.UnixNano())
	return nil
}

func (f *Fetcher) allServices(ctx context.Context) ([]string, error) {
	services, err := ask(ctx, f, f.source.services)
	if err != nil {
		return nil, err
	}
	slices.Sort(services)
	services = slices.Compact(services)
	if len(services) > maxServices {
		f.log.WarnContext(ctx, "Jaeger has too many services to fetch all: configure the relevant ones",
			slog.Int("services", len(services)), slog.Int("fetched", maxServices))
		services = services[:maxServices]
	}
	return services, nil
}

// ask calls question with a timeout and counts the query. It also counts failed queries, but not those with errLarge.
func ask[T any](ctx context.Context, f *Fetcher, question func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	f.counts.Queries.Add(1)
	answer, err := question(limited)
	if err != nil && !errors.Is(err, errLarge) && ctx.Err() == nil {
		f.counts.Failed.Add(1)
	}
	return answer, err
}

// find forwards the traces that have spans of service in w, a part of the current window.
func (f *Fetcher) find(ctx context.Context, service string, w window) error {
	found, err := ask(ctx, f, func(ctx context.Context) (ptrace.Traces, error) {
		return f.source.find(ctx, service, w, f.options.MaxTraces)
	})
	if err != nil && !errors.Is(err, errLarge) {
		return err
	}
	var traces []otlp.TraceSpans
	if err == nil {
		traces = otlp.SplitByTrace(found, 0)
	}
	if err == nil && len(traces) < f.options.MaxTraces {
		return f.forward(ctx, traces)
	}
	if half := w.to.Sub(w.from).Truncate(2*precision) / 2; half >= minWindow {
		middle := w.from.Add(half)
		if err := f.find(ctx, service, window{w.from, middle}); err != nil {
			return err
		}
		return f.find(ctx, service, window{middle, w.to})
	}
	f.counts.Incomplete.Add(1)
	f.log.WarnContext(ctx, "more traces at one time than a query may return: some are missing",
		slog.String("service", service), slog.Time("time", w.from))
	return f.forward(ctx, traces)
}

// forward forwards traces, except traces that belong to other windows or have already been forwarded.
func (f *Fetcher) forward(ctx context.Context, traces []otlp.TraceSpans) error {
	pending := ptrace.NewTraces()
	n, spans := int64(0), 0
	flush := func() error {
		if n == 0 {
			return nil
		}
		if err := f.take(ctx, pending, int64(spans)); err != nil {
			return err
		}
		f.counts.Traces.Add(n)
		pending, n, spans = ptrace.NewTraces(), 0, 0
		return nil
	}
	for _, t := range traces {
		if _, ok := f.taken[t.Trace]; ok || !f.window.has(f.begin(t.Traces)) {
			continue
		}
		if len(f.taken) < maxIDs {
			f.taken[t.Trace] = struct{}{}
		}
		more := t.Traces.SpanCount()
		if spans > 0 && spans+more > requestSpans {
			if err := flush(); err != nil {
				return err
			}
		}
		t.Traces.ResourceSpans().MoveAndAppendTo(pending.ResourceSpans())
		n, spans = n+1, spans+more
	}
	return flush()
}

// begin returns the start of the earliest span of a queried service in t, or the zero time if there is no such span.
func (f *Fetcher) begin(t ptrace.Traces) time.Time {
	var first pcommon.Timestamp
	for _, rs := range t.ResourceSpans().All() {
		name, ok := rs.Resource().Attributes().Get("service.name")
		if !ok || !f.services[name.AsString()] {
			continue
		}
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				if start := s.StartTimestamp(); first == 0 || start < first {
					first = start
				}
			}
		}
	}
	if first == 0 {
		return time.Time{}
	}
	return first.AsTime()
}

// take passes traces, which contain the given number of spans, to the intake. It retries while the intake is
// overloaded.
func (f *Fetcher) take(ctx context.Context, traces ptrace.Traces, spans int64) error {
	body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	if err != nil {
		return fmt.Errorf("encode traces from Jaeger: %w", err)
	}
	for {
		rejected, err := f.intake.Take(ctx, body, receiver.Protobuf)
		if busy, ok := errors.AsType[*refusal.Error](err); ok && errors.Is(busy, refusal.Overloaded) {
			sleep(ctx, jittered(max(busy.After, firstPause)))
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			continue
		}
		if bad, ok := errors.AsType[*ingest.RecordError](err); ok {
			f.log.WarnContext(ctx, "the intake rejected traces from Jaeger", slog.Any("error", bad))
			rejected.Spans, err = int(spans), nil
		}
		if err != nil {
			return err
		}
		f.counts.Spans.Add(spans)
		f.counts.Rejected.Add(int64(rejected.Spans))
		return nil
	}
}
