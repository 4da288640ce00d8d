package tracepoint

import (
	"context"
	"runtime/pprof"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// span is a span that is on. Beside what it wraps it knows its request, and leads instrumentation that asks a span for its
// provider (otelhttp does) back to ours.
type span struct {
	trace.Span
	provider  *provider // nil: made below a span that no provider made
	registry  *Registry
	request   *request
	context   *trace.SpanContext // with the request's mark; nil: as Span says
	point     *Point             // that is measured; nil: this span is not
	restore   func()             // sets the goroutine's labels as they were; nil: they were not set
	spent     time.Duration      // by the start, if measured
	recording bool
}

// SpanContext returns the identity of the span, with what was decided about its request.
func (s *span) SpanContext() trace.SpanContext {
	if s.context != nil {
		return *s.context
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

// End ends the span.
func (s *span) End(options ...trace.SpanEndOption) {
	if s.restore != nil {
		s.restore()
	}
	if s.point == nil {
		s.Span.End(options...)
		return
	}
	bytes := bytesOf(s.Span)
	began := time.Now()
	s.Span.End(options...)
	s.point.measured.add(s.spent+time.Since(began), bytes)
}

// off is a span that is off: it has its parent's identity, so that the parent becomes that of the children, and does nothing.
// It is not the parent itself, because there is instrumentation that takes its span from the context and ends it (otelgrpc does).
type off struct {
	noop.Span
	provider *provider
	request  *request
	context  trace.SpanContext // the parent's
	parent   trace.Span        // the nearest span that is on, which may be another process's
}

// SpanContext returns the identity of the nearest span above that is on.
func (o *off) SpanContext() trace.SpanContext { return o.context }

// TracerProvider returns the provider that made the span.
func (o *off) TracerProvider() trace.TracerProvider { return o.provider }

// surroundings is what a new span is started in.
type surroundings struct {
	span     trace.Span // nearest that is on
	request  *request   // nil: nothing is known of the span, it is none of ours
	provider *provider  // nil: none of ours
	local    bool       // span is one of ours, so that it is not the first of the request in this service
}

// around returns what is known of a context with the given span.
func (r *Registry) around(s trace.Span) surroundings {
	switch s := s.(type) {
	case *span:
		if s.registry == r {
			return surroundings{s, s.request, s.provider, true}
		}
	case *off:
		if s.provider.registry == r {
			_, local := s.parent.(*span)
			return surroundings{s.parent, s.request, s.provider, local}
		}
	}
	return surroundings{span: s}
}

// nothing ends a span that is off.
func nothing() {}

// Start starts a span if the tracepoint is on for the request of ctx. The function that it returns ends it, and is to be called
// once. While the tracepoint is off the context is ctx itself. Outside of any span it is always off.
func (p *Point) Start(ctx context.Context) (context.Context, func()) {
	s := p.on.Load()
	if s == nil {
		return ctx, nothing
	}
	return p.start(ctx, s)
}

func (p *Point) start(ctx context.Context, s *switches) (context.Context, func()) {
	parent := trace.SpanFromContext(ctx)
	a := p.registry.around(parent)
	if a.request == nil {
		sc := parent.SpanContext()
		if !sc.IsValid() {
			return ctx, nothing
		}
		a.request = p.registry.requestOf(sc, &entry{name: p.name, kind: trace.SpanKindInternal})
	}
	if !a.request.on(s) {
		return ctx, nothing
	}
	if above, ok := a.span.(*span); ok && !above.recording || !ok && !a.span.SpanContext().IsSampled() {
		p.hits.Add(1)
		p.drops.Add(1)
		return ctx, nothing
	}
	ctx, started := p.begin(ctx, p.registry.tracerFor(a.provider), p.name, nil, a, s)
	return ctx, func() { started.End() }
}

// begin starts a span that is on.
func (p *Point) begin(ctx context.Context, tracer trace.Tracer, name string, options []trace.SpanStartOption, a surroundings, s *switches) (context.Context, *span) {
	n := p.hits.Add(1)
	if n%measureEvery != 1 {
		ctx, started := startSpan(ctx, tracer, name, options, p.registry, a, s.id)
		if !started.recording {
			p.drops.Add(1)
		}
		return ctx, started
	}
	began := time.Now()
	ctx, started := startSpan(ctx, tracer, name, options, p.registry, a, s.id)
	started.spent = time.Since(began)
	if started.recording {
		started.point = p
	} else {
		p.drops.Add(1)
	}
	return ctx, started
}

// startSpan starts a span whose request is known.
func startSpan(
	ctx context.Context, tracer trace.Tracer, name string, options []trace.SpanStartOption, r *Registry, a surroundings, id []attribute.KeyValue,
) (context.Context, *span) {
	outer := ctx
	ctx, inner := tracer.Start(ctx, name, options...)
	s := &span{Span: inner, provider: a.provider, registry: r, request: a.request, recording: inner.IsRecording()}
	if id != nil && s.recording {
		inner.SetAttributes(id...)
	}
	if !a.local {
		s.first()
	}
	ctx = trace.ContextWithSpan(ctx, s)
	if r.labels.Load() && s.recording {
		ctx = s.label(ctx, outer)
	}
	return ctx, s
}

// first makes s the first span of its request in this service: it says what applies, and carries it along.
func (s *span) first() {
	if s.recording {
		if s.request.arm != nil {
			s.SetAttributes(attribute.Int64(protocol.KeyPlan, s.request.version), attribute.String(protocol.KeyArm, s.request.arm.name))
		} else {
			s.SetAttributes(attribute.Int64(protocol.KeyPlan, s.request.version))
		}
	}
	if sc := s.Span.SpanContext(); sc.IsValid() {
		with := s.request.carry(sc)
		s.context = &with
	}
}

// label sets the labels of the goroutine, until the span ends.
func (s *span) label(ctx, outer context.Context) context.Context {
	sc := s.Span.SpanContext()
	ctx = pprof.WithLabels(ctx, pprof.Labels("trace_id", sc.TraceID().String(), "span_id", sc.SpanID().String()))
	pprof.SetGoroutineLabels(ctx)
	s.restore = func() { pprof.SetGoroutineLabels(outer) }
	return ctx
}
