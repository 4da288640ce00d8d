// Package query fetches traces from a running Jaeger, window of time by window of time, and hands them on as OTLP.
//
// Input: the query service of a Jaeger, over HTTP (/api/v3/traces) or gRPC (api_v2.QueryService). Output: calls of
// [receiver.Intake.Take], as receivers make them; whole traces, each once.
//
//  1. The windows [from, to) follow each other without gaps and stay [Options.Lag] behind now, so that a trace that is fetched is whole.
//  2. In each window the traces of each service are asked for. Jaeger has no pages: where it gives as many traces as were asked for, or more
//     bytes than allowed, the window is halved for that service and both halves are asked for.
//  3. Jaeger finds a trace by any span of the service in the window. It belongs to the window in which the first of its spans of the
//     services that are asked for starts; others leave it alone.
//  4. What belongs to the window is handed on. When all was taken, the end of the window is saved: the next one begins there, also after a
//     restart.
//
// What holds: without crashes every trace whose spans reached Jaeger within Lag is handed on exactly once. After a crash the window that was
// not finished is fetched again; the engine, which knows the IDs of closed traces for a while (assembly.remember), leaves copies out as long
// as the restart comes within that time. The same knowledge tells apart traces whose spans also come by OTLP, because windows lag behind: the
// trace was closed before it is fetched. It does not help against OTLP that came longer ago than that, as when the first fetch
// looks back further. What reaches Jaeger later than Lag is missed, or incomplete.
//
// Memory is bounded: one response at a time, of at most [Options.MaxResponse] bytes before it is decoded, and the IDs of one window.
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
)

// Options say what is fetched. A zero field that has a default stands for it.
type Options struct {
	URL      string        // of the query service, with scheme
	Protocol string        // http or grpc; with grpc the scheme http stands for clear text, https for TLS
	Services []string      // of which traces are fetched; none: of all that Jaeger knows
	Interval time.Duration // between two fetches; default 10 s
	Lookback time.Duration // how far back the first fetch goes; 0: not at all

	Lag         time.Duration // how far windows stay behind now; default 30 s
	MaxTraces   int           // asked for at once; default 200
	MaxResponse int64         // bytes, which take some six times as much memory while they are decoded; default 32 MiB

	Log *slog.Logger // nil: nowhere
}

// Positions keeps how far fetching has come. A zero time stands for "not yet begun". Both methods are called by one goroutine.
type Positions interface {
	Load(ctx context.Context) (time.Time, error)
	Save(ctx context.Context, through time.Time) error
}

// Counts counts what happened since the start. All fields may be read at any time.
type Counts struct {
	Traces   atomic.Int64 // handed on
	Spans    atomic.Int64 // of them
	Rejected atomic.Int64 // of these, by the intake
	Queries  atomic.Int64 // to Jaeger
	Failed   atomic.Int64 // of these
	Cut      atomic.Int64 // windows that something is missing of: too short to be halved, they held more than may be asked for, or cannot be read
	Through  atomic.Int64 // end of the last finished window, in nanoseconds since the epoch; 0: none
}

// Defaults and fixed limits.
const (
	defaultInterval = 10 * time.Second
	defaultLag      = 30 * time.Second // SDKs export every 5 s; a Collector's batches and Jaeger's storage take some more
	defaultTraces   = 200
	defaultResponse = 32 << 20

	longestWindow  = time.Minute      // while catching up
	leastTried     = time.Second      // that a window is shortened to after errors
	shortestWindow = time.Millisecond // nothing is halved below
	precision      = time.Microsecond // of times in Jaeger's storage
	queryTimeout   = time.Minute
	firstPause     = time.Second // after an error; doubled each time
	longestPause   = time.Minute
	requestSpans   = 2000    // handed on at once, but for larger traces
	mostServices   = 10_000  // of which traces are fetched
	mostIDs        = 1 << 20 // of one window that are known; beyond, the engine tells copies by itself
)

// Puller fetches from one Jaeger. Its life is New, Run, and when Run has returned it is over.
type Puller struct {
	options   Options
	name      string
	intake    receiver.Intake
	positions Positions
	source    source
	log       *slog.Logger
	counts    Counts

	// Of the window that is being fetched:
	services map[string]bool // that are asked for
	window   window
	taken    map[pcommon.TraceID]struct{}
}

// window is a stretch of time [from, to).
type window struct{ from, to time.Time }

func (w window) has(t time.Time) bool { return !t.Before(w.from) && t.Before(w.to) }

// source is a Jaeger. Its errors are worth another try.
type source interface {
	services(ctx context.Context) ([]string, error)
	// find returns at most n traces with a span of the service that starts in the window, or shortly after. It returns errLarge if they
	// are larger than allowed.
	find(ctx context.Context, service string, w window, n int) (ptrace.Traces, error)
	close() error
}

// What can be wrong with a response itself.
var (
	errLarge      = errors.New("the response is larger than allowed")
	errUnreadable = errors.New("the response cannot be read")
)

// New returns a Puller that hands traces to intake. It connects to nothing.
func New(intake receiver.Intake, positions Positions, o Options) (*Puller, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no URL of a query service: want one like http://jaeger:16686", o.URL)
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
	p := &Puller{options: o, name: u.Redacted(), intake: intake, positions: positions, log: o.Log.With(slog.String("jaeger", u.Redacted()))}
	switch o.Protocol {
	case "http", "":
		p.source = newHTTP(u, o.MaxResponse)
	case "grpc":
		p.source, err = newGRPC(u, o.MaxResponse)
	default:
		err = fmt.Errorf("protocol %q of %s: want http or grpc", o.Protocol, u.Redacted())
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Name returns what the server is called in logs and metrics: its URL without a password.
func (p *Puller) Name() string { return p.name }

// Counts returns what is counted.
func (p *Puller) Counts() *Counts { return &p.counts }

// Run fetches until ctx is done; then it returns nil. It returns an error if the position cannot be loaded.
func (p *Puller) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, p.source.close()) }()
	from, err := p.positions.Load(ctx)
	if err != nil {
		return fmt.Errorf("load how far fetching from Jaeger has come: %w", err)
	}
	if from.IsZero() {
		from = time.Now().Add(-p.options.Lag - p.options.Lookback)
	}
	from = from.Truncate(precision)
	length, pause := longestWindow, firstPause
	for ctx.Err() == nil {
		to := from.Add(length)
		if latest := time.Now().Add(-p.options.Lag).Truncate(precision); to.After(latest) {
			to = latest
		}
		if to.After(from) {
			if err := p.fetch(ctx, window{from, to}); err != nil {
				if ctx.Err() != nil {
					break
				}
				p.log.WarnContext(ctx, "fetching from Jaeger failed: it is tried again", slog.Any("error", err), slog.Duration("pause", pause))
				sleep(ctx, jittered(pause))
				if errors.Is(err, errUnreadable) && to.Sub(from) <= leastTried && p.leave(ctx, to) == nil {
					from = to
				}
				length, pause = max(length/2, leastTried), min(2*pause, longestPause)
				continue
			}
			from = to
			length, pause = min(2*length, longestWindow), firstPause
		}
		if time.Since(from) < p.options.Lag+p.options.Interval { // nothing to catch up with
			sleep(ctx, jittered(p.options.Interval))
		}
	}
	return nil
}

// leave gives up what is left of a window, which can never be read.
func (p *Puller) leave(ctx context.Context, to time.Time) error {
	p.counts.Cut.Add(1)
	p.log.ErrorContext(ctx, "what Jaeger returns cannot be read: some traces are missing", slog.Time("until", to))
	return p.save(ctx, to)
}

// jittered returns between 75 % and 125 % of d, so that many do not ask at the same time.
func jittered(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2+1) }

// sleep waits, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fetch hands on what belongs to a window, and saves that.
func (p *Puller) fetch(ctx context.Context, w window) error {
	services := p.options.Services
	if len(services) == 0 {
		var err error
		if services, err = p.allServices(ctx); err != nil {
			return err
		}
	}
	p.window, p.taken, p.services = w, make(map[pcommon.TraceID]struct{}), make(map[string]bool, len(services))
	for _, s := range services {
		p.services[s] = true
	}
	for _, s := range services {
		if err := p.find(ctx, s, w); err != nil {
			return err
		}
	}
	return p.save(ctx, w.to)
}

func (p *Puller) save(ctx context.Context, through time.Time) error {
	if err := p.positions.Save(ctx, through); err != nil {
		return fmt.Errorf("save how far fetching from Jaeger has come: %w", err)
	}
	p.counts.Through.Store(through.UnixNano())
	return nil
}

func (p *Puller) allServices(ctx context.Context) ([]string, error) {
	services, err := ask(ctx, p, p.source.services)
	if err != nil {
		return nil, err
	}
	slices.Sort(services)
	services = slices.Compact(services)
	if len(services) > mostServices {
		p.log.WarnContext(ctx, "Jaeger knows more services than are fetched: name those that matter", slog.Int("services", len(services)), slog.Int("fetched", mostServices))
		services = services[:mostServices]
	}
	return services, nil
}

// ask asks Jaeger something, within bounds of time, and counts it.
func ask[T any](ctx context.Context, p *Puller, question func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	p.counts.Queries.Add(1)
	answer, err := question(limited)
	if err != nil && !errors.Is(err, errLarge) && ctx.Err() == nil {
		p.counts.Failed.Add(1)
	}
	return answer, err
}

// find hands on the traces that were found by spans of a service in w, a part of the window.
func (p *Puller) find(ctx context.Context, service string, w window) error {
	found, err := ask(ctx, p, func(ctx context.Context) (ptrace.Traces, error) {
		return p.source.find(ctx, service, w, p.options.MaxTraces)
	})
	if err != nil && !errors.Is(err, errLarge) {
		return err
	}
	var traces []otlp.TraceSpans
	if err == nil {
		traces = otlp.SplitByTrace(found, 0)
	}
	if err == nil && len(traces) < p.options.MaxTraces {
		return p.handOn(ctx, traces)
	}
	if half := w.to.Sub(w.from).Truncate(2*precision) / 2; half >= shortestWindow {
		middle := w.from.Add(half)
		if err := p.find(ctx, service, window{w.from, middle}); err != nil {
			return err
		}
		return p.find(ctx, service, window{middle, w.to})
	}
	p.counts.Cut.Add(1)
	p.log.WarnContext(ctx, "more traces at one time than are asked for: some are missing", slog.String("service", service), slog.Time("time", w.from))
	return p.handOn(ctx, traces)
}

// handOn hands on those of traces that belong to the window and were not handed on yet.
func (p *Puller) handOn(ctx context.Context, traces []otlp.TraceSpans) error {
	pending := ptrace.NewTraces()
	n, spans := int64(0), 0
	flush := func() error {
		if n == 0 {
			return nil
		}
		if err := p.take(ctx, pending, int64(spans)); err != nil {
			return err
		}
		p.counts.Traces.Add(n)
		pending, n, spans = ptrace.NewTraces(), 0, 0
		return nil
	}
	for _, t := range traces {
		if _, ok := p.taken[t.Trace]; ok || !p.window.has(p.begin(t.Traces)) {
			continue
		}
		if len(p.taken) < mostIDs {
			p.taken[t.Trace] = struct{}{}
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

// begin returns when the first span of t starts that is of a service which is asked for; a zero time if there is none.
func (p *Puller) begin(t ptrace.Traces) time.Time {
	var first pcommon.Timestamp
	for _, rs := range t.ResourceSpans().All() {
		name, ok := rs.Resource().Attributes().Get("service.name")
		if !ok || !p.services[name.AsString()] {
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

// take hands traces to the intake until it takes them, or says that it never will.
func (p *Puller) take(ctx context.Context, traces ptrace.Traces, spans int64) error {
	body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	if err != nil {
		return fmt.Errorf("encode traces from Jaeger: %w", err)
	}
	for {
		rejected, err := p.intake.Take(ctx, body, receiver.Protobuf)
		if busy, ok := errors.AsType[*receiver.Overload](err); ok {
			sleep(ctx, jittered(max(busy.After, firstPause)))
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			continue
		}
		if bad, ok := errors.AsType[*ingest.RecordError](err); ok {
			p.log.WarnContext(ctx, "what Jaeger returned cannot be used", slog.Any("error", bad))
			rejected.Spans, err = int(spans), nil
		}
		if err != nil {
			return err
		}
		p.counts.Spans.Add(spans)
		p.counts.Rejected.Add(int64(rejected.Spans))
		return nil
	}
}
