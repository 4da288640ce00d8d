package tracepoint

import (
	"context"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// span is a span that is on, and the context that holds it. Beside what it wraps it knows its request, and leads instrumentation
// that asks a span for its provider (otelhttp does) back to ours.
type span struct {
	context.Context           //nolint:containedctx // a span is a context; see within
	trace.Span                // as the SDK made it
	provider        *provider // nil: made below a span that no provider made
	request         *request
	extra           *extra // nil: none
	sampled         bool   // as the first span of the request in this service
}

// extra is what few spans have.
type extra struct {
	context *trace.SpanContext // with the request's mark; nil: as the SDK made it
	point   *Point             // that is measured; nil: this span is not
	base    *Point             // of the span, if it is of the baseline
	spent   time.Duration      // by the start, if measured
	restore func()             // sets the goroutine's labels as they were; nil: they were not set
}

// spanKey is the key under which OpenTelemetry looks for the span of a context; nil if it does not look for one key. With it a
// span can be its own context, which spares an allocation of every span.
var spanKey = func() any {
	var w witness
	trace.SpanFromContext(&w)
	return w.key
}()

// witness is a context that remembers the key that it was asked for.
type witness struct {
	context.Context //nolint:containedctx // it is a context
	key             any
}

// Value remembers key.
func (w *witness) Value(key any) any {
	w.key = key
	return nil
}

// within returns ctx with the span.
func (s *span) within(ctx context.Context) context.Context {
	if spanKey == nil {
		return trace.ContextWithSpan(ctx, s)
	}
	s.Context = ctx
	return s
}

// Value returns what the context has under key: the span itself, where a span is looked for.
func (s *span) Value(key any) any {
	if key == spanKey {
		return s
	}
	return s.Context.Value(key)
}

// SpanContext returns the identity of the span, with what was decided about its request.
func (s *span) SpanContext() trace.SpanContext {
	if s.extra != nil && s.extra.context != nil {
		return *s.extra.context
	}
	return s.Span.SpanContext()
}

// TracerProvider returns the provider whose spans can be switched.
func (s *span) TracerProvider() trace.TracerProvider {
	if s.provider != nil {
		return s.provider
	}
	return s.Span.TracerProvider()
}

// SetName names the span.
func (s *span) SetName(name string) {
	if s.extra != nil && s.extra.base != nil {
		s.extra.base.rename(name)
	}
	s.Span.SetName(name)
}

// End ends the span. If it is deferred and the goroutine panics, the span says so.
func (s *span) End(options ...trace.SpanEndOption) { s.end(recover(), options) }

// end ends the span of a function that panicked with the given value; nil: that did not. It panics on.
func (s *span) end(panicked any, options []trace.SpanEndOption) {
	if panicked != nil { // the SDK looks for it only if it is deferred itself
		defer panic(panicked)
		s.recordPanic(panicked, options)
	}
	x := s.extra
	if x != nil && x.restore != nil {
		x.restore()
	}
	if x == nil || x.point == nil {
		s.Span.End(options...)
		return
	}
	bytes := bytesOf(s.Span)
	began := time.Now()
	s.Span.End(options...)
	x.point.measured.add(x.spent+time.Since(began), bytes)
}

// recordPanic adds the event that the SDK adds.
func (s *span) recordPanic(panicked any, options []trace.SpanEndOption) {
	what := []attribute.KeyValue{attribute.String("exception.type", fmt.Sprintf("%T", panicked)), attribute.String("exception.message", fmt.Sprint(panicked))}
	if c := trace.NewSpanEndConfig(options...); c.StackTrace() {
		what = append(what, attribute.String("exception.stacktrace", string(debug.Stack())))
	}
	s.AddEvent("exception", trace.WithAttributes(what...))
}

// off is a span that is off, and the context that holds it: it has its parent's identity, so that the parent becomes that of
// the children, and does nothing. It is not the parent itself, because there is instrumentation that takes its span from the
// context and ends it (otelgrpc does).
type off struct {
	context.Context //nolint:containedctx // it is a context
	noop.Span
	provider *provider
	request  *request
	identity trace.SpanContext // the parent's
	parent   trace.Span        // the nearest span that is on, which may be another process's
}

func (o *off) within(ctx context.Context) context.Context {
	if spanKey == nil {
		return trace.ContextWithSpan(ctx, o)
	}
	o.Context = ctx
	return o
}

// Value returns what the context has under key: the span itself, where a span is looked for.
func (o *off) Value(key any) any {
	if key == spanKey {
		return o
	}
	return o.Context.Value(key)
}

// SpanContext returns the identity of the nearest span above that is on.
func (o *off) SpanContext() trace.SpanContext { return o.identity }

// TracerProvider returns the provider that made the span.
func (o *off) TracerProvider() trace.TracerProvider { return o.provider }

// spanOf returns the span of ctx, one that does nothing if there is none.
func spanOf(ctx context.Context) trace.Span {
	if s, ok := ctx.(*span); ok { // mostly, and faster
		return s
	}
	return trace.SpanFromContext(ctx)
}

// surroundings is what a new span is started in.
type surroundings struct {
	span     trace.Span // nearest that is on
	request  *request   // nil: nothing is known of the span, it is none of ours
	provider *provider  // nil: none of ours
	local    bool       // span is one of ours, so that the new one is not the first of the request in this service
	sampled  bool       // what is known of it: if nothing, true
}

// around returns what is known of a context with the given span.
func (r *Registry) around(s trace.Span) surroundings {
	switch s := s.(type) {
	case *span:
		if s.request.registry == r {
			return surroundings{s, s.request, s.provider, true, s.sampled}
		}
	case *off:
		if s.request.registry == r {
			parent, local := s.parent.(*span)
			return surroundings{s.parent, s.request, s.provider, local, !local || parent.sampled}
		}
	}
	return surroundings{span: s, sampled: true}
}

// nothing ends a span that is off.
func nothing() {}

// Start starts a span if the tracepoint is on for the request of ctx. The function that it returns ends it, and is to be called
// once. While the tracepoint is off the context is ctx itself. Outside of any span it is always off.
//
// It is written so that it is just small enough to be inlined: BenchmarkOff shows whether it is.
func (p *Point) Start(ctx context.Context) (_ context.Context, end func()) {
	end = nothing
	if p.on.Load() != nil {
		ctx, end = p.start(ctx)
	}
	return ctx, end
}

func (p *Point) start(ctx context.Context) (context.Context, func()) {
	s := p.on.Load()
	if s == nil { // since then
		return ctx, nothing
	}
	above := spanOf(ctx)
	a := p.registry.around(above)
	if a.request == nil {
		sc := above.SpanContext()
		if !sc.IsValid() {
			return ctx, nothing
		}
		a.request = p.registry.requestOf(sc, &entry{name: p.name, kind: trace.SpanKindInternal})
	}
	if !a.request.on(s) {
		return ctx, nothing
	}
	if !a.sampled {
		p.hits.Add(1)
		p.drops.Add(1)
		return ctx, nothing
	}
	started := p.begin(ctx, p.registry.tracerFor(a.provider), p.name, nil, &a, s)
	return started.within(started.Context), func() { started.end(recover(), nil) }
}

// begin starts a span that is on.
func (p *Point) begin(ctx context.Context, tracer trace.Tracer, name string, options []trace.SpanStartOption, a *surroundings, s *switches) *span {
	var began time.Time
	n := p.hits.Add(1)
	measure := n%measureEvery == 1
	if measure {
		began = time.Now()
	}
	started := startSpan(ctx, tracer, name, options, a)
	started.Span.SetAttributes(s.id...)
	switch {
	case !started.sampled:
		p.drops.Add(1)
	case measure:
		x := started.more()
		x.point, x.spent = p, time.Since(began)
	}
	return started
}

// startSpan starts a span whose request is known.
func startSpan(ctx context.Context, tracer trace.Tracer, name string, options []trace.SpanStartOption, a *surroundings) *span {
	s := &span{provider: a.provider, request: a.request, sampled: a.sampled}
	s.Context, s.Span = tracer.Start(ctx, name, options...)
	if !a.local {
		s.first()
	}
	if a.request.registry.labels.Load() {
		s.label(ctx)
	}
	return s
}

// more returns what s has beside what all spans have.
func (s *span) more() *extra {
	if s.extra == nil {
		s.extra = new(extra)
	}
	return s.extra
}

// first makes s the first span of its request in this service: it says what applies, and carries it along.
func (s *span) first() {
	q := s.request
	if q.arm != nil {
		s.Span.SetAttributes(attribute.Int64(protocol.KeyPlan, q.version), attribute.String(protocol.KeyArm, q.arm.name))
	} else {
		s.Span.SetAttributes(attribute.Int64(protocol.KeyPlan, q.version))
	}
	sc := s.Span.SpanContext()
	s.sampled = sc.IsSampled()
	if sc.IsValid() {
		with := q.carry(sc)
		s.more().context = &with
	}
}

// label sets the labels of the goroutine until the span, which was started in outer, ends.
func (s *span) label(outer context.Context) {
	sc := s.Span.SpanContext()
	s.Context = pprof.WithLabels(s.Context, pprof.Labels("trace_id", sc.TraceID().String(), "span_id", sc.SpanID().String()))
	pprof.SetGoroutineLabels(s.Context)
	s.more().restore = func() { pprof.SetGoroutineLabels(outer) }
}
