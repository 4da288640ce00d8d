package tracepoint

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// provider wraps another provider and makes its spans switchable.
type provider struct {
	embedded.TracerProvider
	registry *Registry
	inner    trace.TracerProvider
	baseline map[trace.SpanKind]bool // kinds of spans that are always enabled

	tracepointTracer trace.Tracer // of inner, for Point.Start

	mu      sync.Mutex // guards tracers
	tracers map[tracerKey]*tracer
}

// tracerKey identifies an instrumentation scope.
type tracerKey struct {
	name, version, schema string
	attributes            attribute.Distinct
}

// maxTracers limits the tracers that a provider caches. Once the cache is full, each call of Tracer with a scope that
// isn't cached creates a new tracer.
const maxTracers = 1024

// A ProviderOption configures [Provider].
type ProviderOption func(*provider)

// WithBaseline sets the kinds of spans that are always enabled. The default is SERVER and CONSUMER. Spans without a
// parent are always enabled, too.
func WithBaseline(kinds ...trace.SpanKind) ProviderOption {
	return func(p *provider) {
		p.baseline = make(map[trace.SpanKind]bool, len(kinds))
		for _, k := range kinds {
			p.baseline[trace.ValidateSpanKind(k)] = true
		}
	}
}

// Provider returns a provider that starts only the enabled spans of inner. These are baseline spans, and spans whose
// scope and name the plan enables. A disabled span has the span context of the nearest enabled span, so that children
// get the right parent and context propagation works.
//
// Use the result instead of inner, preferably globally: otel.SetTracerProvider(tracepoint.Provider(inner)).
func Provider(inner trace.TracerProvider, options ...ProviderOption) trace.TracerProvider {
	return Default.Provider(inner, options...)
}

// Provider is like [Provider], but for the tracepoints of r.
func (r *Registry) Provider(inner trace.TracerProvider, options ...ProviderOption) trace.TracerProvider {
	p := &provider{
		registry: r, inner: inner, tracepointTracer: inner.Tracer(Scope), tracers: make(map[tracerKey]*tracer),
		baseline: map[trace.SpanKind]bool{trace.SpanKindServer: true, trace.SpanKindConsumer: true},
	}
	for _, o := range options {
		o(p)
	}
	r.defaultTracer.Store(&tracerBox{p.tracepointTracer})
	return p
}

// Tracer implements [trace.TracerProvider].
func (p *provider) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	c := trace.NewTracerConfig(options...)
	set := c.InstrumentationAttributes()
	key := tracerKey{name, c.InstrumentationVersion(), c.SchemaURL(), set.Equivalent()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tracers[key]; t != nil {
		return t
	}
	t := &tracer{provider: p, inner: p.inner.Tracer(name, options...), scope: name}
	if len(p.tracers) < maxTracers {
		p.tracers[key] = t
	}
	return t
}

// tracer starts the spans of one instrumentation scope.
type tracer struct {
	embedded.Tracer
	provider *provider
	inner    trace.Tracer
	scope    string
	points   sync.Map // span name → *Point, outside the baseline
	base     sync.Map // span name → *Point, in the baseline
}

// Start implements [trace.Tracer]. The span may be disabled.
func (t *tracer) Start(
	ctx context.Context, name string, options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	if ctx == nil {
		ctx = context.Background() //nolint:forbidigo // as OpenTelemetry's own tracers do
	}
	config := trace.NewSpanStartConfig(options...)
	kind := trace.ValidateSpanKind(config.SpanKind())
	parent := spanOf(ctx)
	if config.NewRoot() || !parent.SpanContext().IsValid() {
		return t.startRoot(ctx, t.point(name, kind, true), options, &entrySpan{name, kind, config.Attributes()})
	}
	p := t.provider.registry.parentOf(parent)
	base := t.provider.baseline[kind]
	if p.request == nil {
		p.request = t.provider.registry.requestOf(parent.SpanContext(), &entrySpan{name, kind, config.Attributes()})
	}
	p.provider = t.provider
	point := t.point(name, kind, base)
	if base || point == nil {
		return t.startBaseline(ctx, point, name, options, &p)
	}
	point.recordOwner(p.request.owner)
	a := point.active.Load()
	if a == nil {
		return t.startDisabled(ctx, parent, &p, nil)
	}
	ctx, returned := t.provider.registry.stacks.call(ctx, point)
	if !p.request.enables(a) {
		return t.startDisabled(ctx, parent, &p, returned)
	}
	s := point.startEnabled(ctx, t.inner, name, options, &p, a)
	s.ensureExtra().returned = returned
	return s.contextWith(s.Context), s
}

// startBaseline starts a span that is always enabled. The point is nil if the span's name can't be a tracepoint.
func (t *tracer) startBaseline(
	ctx context.Context, point *Point, name string, options []trace.SpanStartOption, p *parentInfo,
) (context.Context, trace.Span) {
	p.request = p.request.withOwner(point)
	s := startSpan(ctx, t.inner, name, options, p)
	if point != nil {
		s.ensureExtra().baseline = point
		s.Context, s.extra.followed = t.provider.registry.stacks.follow(s.Context, point)
	}
	return s.contextWith(s.Context), s
}

// startRoot starts the first span of a trace. It makes the decision about the request only after it has started the
// span, because the decision depends on the trace ID, which is generated at the start. The point may be nil.
func (t *tracer) startRoot(
	ctx context.Context, point *Point, options []trace.SpanStartOption, e *entrySpan,
) (context.Context, trace.Span) {
	s := &span{provider: t.provider}
	s.Context, s.Span = t.inner.Start(ctx, e.name, options...)
	s.request = t.provider.registry.decide(s.Span.SpanContext().TraceID(), e)
	s.request.owner = point
	s.ensureExtra().baseline = point
	s.Context, s.extra.followed = t.provider.registry.stacks.follow(s.Context, point)
	s.enterService()
	if t.provider.registry.labels.Load() {
		s.setLabels(ctx)
	}
	return s.contextWith(s.Context), s
}

// startDisabled returns a disabled span below parent. If returned isn't nil, the span calls it at its end.
func (t *tracer) startDisabled(
	ctx context.Context, parent trace.Span, p *parentInfo, returned func(),
) (context.Context, trace.Span) {
	if d, ok := parent.(*disabledSpan); ok && d.provider == t.provider && returned == nil && d.returned == nil {
		return ctx, d
	}
	sc := parent.SpanContext()
	if !p.local {
		sc = p.request.withDecision(sc)
	}
	d := &disabledSpan{provider: t.provider, request: p.request, spanContext: sc, parent: p.span}
	d.returned = returned
	return d.contextWith(ctx), d
}

// point returns the tracepoint of the spans with the given name, in the baseline or outside of it. It returns nil if
// too many tracepoints have been discovered, or if the name or the scope is not a valid name of a tracepoint; such
// spans are always enabled.
func (t *tracer) point(name string, kind trace.SpanKind, baseline bool) *Point {
	cache := &t.points
	if baseline {
		cache = &t.base
	}
	if p, ok := cache.Load(name); ok {
		return p.(*Point) //nolint:errcheck // all values have this type
	}
	if !validText(name, maxName) || !validText(t.scope, maxName) {
		return nil
	}
	p := t.provider.registry.discover(t.scope, name, kind, baseline)
	if p != nil {
		cache.Store(name, p)
	}
	return p
}

// discover returns the tracepoint of the spans with the given scope and name, and registers it if necessary. It returns
// nil if the tracepoint is unknown and maxDiscovered tracepoints have already been discovered.
func (r *Registry) discover(scope, name string, kind trace.SpanKind, baseline bool) *Point {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := pointKey{protocol.SpanPoint, scope, name, baseline}
	if p := r.points[key]; p != nil {
		return p
	}
	if r.discovered >= maxDiscovered {
		return nil
	}
	r.discovered++
	return r.add(key, protocol.Tracepoint{
		Kind: protocol.SpanPoint, Scope: scope, Operation: name, SpanKind: spanKind(kind), Baseline: baseline,
		CostNanos: spanNanos, Bytes: estimateSpanBytes(name),
	})
}
