package tracepoint

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// provider makes the spans of another provider switchable.
type provider struct {
	embedded.TracerProvider
	registry *Registry
	inner    trace.TracerProvider
	native   trace.Tracer            // of the spans that Point.Start makes
	baseline map[trace.SpanKind]bool // kinds of span that are always on

	mu      sync.Mutex // guards tracers
	tracers map[tracerKey]*tracer
}

// tracerKey is what tells scopes of instrumentation apart.
type tracerKey struct {
	name, version, schema string
	attributes            attribute.Distinct
}

// maxTracers bounds the tracers that a provider remembers; the ones beyond are made anew whenever they are asked for.
const maxTracers = 1024

// A ProviderOption changes what [Provider] does.
type ProviderOption func(*provider)

// WithBaseline says spans of which kinds are always on. Without it these are SERVER and CONSUMER. Spans without a parent are, too,
// in any case.
func WithBaseline(kinds ...trace.SpanKind) ProviderOption {
	return func(p *provider) {
		p.baseline = make(map[trace.SpanKind]bool, len(kinds))
		for _, k := range kinds {
			p.baseline[trace.ValidateSpanKind(k)] = true
		}
	}
}

// Provider returns a provider that makes the spans of inner, but those that are off: all that are not in the baseline, until a
// plan switches their (scope, name) on. A span that is off has the identity of the nearest one that is on, so that
// children get the right parent and propagation goes on.
//
// Give it to instrumentation in place of inner, best to all: otel.SetTracerProvider(tracepoint.Provider(inner)).
func Provider(inner trace.TracerProvider, options ...ProviderOption) trace.TracerProvider {
	return Default.Provider(inner, options...)
}

// Provider is [Provider], in r.
func (r *Registry) Provider(inner trace.TracerProvider, options ...ProviderOption) trace.TracerProvider {
	p := &provider{
		registry: r, inner: inner, native: inner.Tracer(Scope), tracers: make(map[tracerKey]*tracer),
		baseline: map[trace.SpanKind]bool{trace.SpanKindServer: true, trace.SpanKindConsumer: true},
	}
	for _, o := range options {
		o(p)
	}
	r.tracer.Store(&factory{p.native})
	return p
}

// Tracer returns what makes the spans of one scope.
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

// tracer makes the spans of one scope.
type tracer struct {
	embedded.Tracer
	provider *provider
	inner    trace.Tracer
	scope    string
	points   sync.Map // that can be switched: name of a span → *Point
	base     sync.Map // of the baseline
}

// Start starts a span, which may be off.
func (t *tracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	if ctx == nil {
		ctx = context.Background() //nolint:forbidigo // as OpenTelemetry's own tracers do
	}
	config := trace.NewSpanStartConfig(options...)
	kind := trace.ValidateSpanKind(config.SpanKind())
	above := spanOf(ctx)
	if config.NewRoot() || !above.SpanContext().IsValid() {
		return t.root(ctx, t.point(name, kind, true), options, &entry{name, kind, config.Attributes()})
	}
	a := t.provider.registry.around(above)
	base := t.provider.baseline[kind]
	if a.request == nil {
		a.request = t.provider.registry.requestOf(above.SpanContext(), &entry{name, kind, config.Attributes()})
	}
	a.provider = t.provider
	point := t.point(name, kind, base)
	if base || point == nil {
		return t.always(ctx, point, name, options, &a)
	}
	point.seenIn(a.request.owner)
	if s := point.on.Load(); s != nil && a.request.on(s) {
		started := point.begin(ctx, t.inner, name, options, &a, s)
		return started.within(started.Context), started
	}
	return t.skip(ctx, above, &a)
}

// always starts a span of the baseline, with its point, or one that has none because it cannot be switched.
func (t *tracer) always(ctx context.Context, point *Point, name string, options []trace.SpanStartOption, a *surroundings) (context.Context, trace.Span) {
	a.request = a.request.below(point)
	s := startSpan(ctx, t.inner, name, options, a)
	if point != nil {
		s.more().base = point
	}
	return s.within(s.Context), s
}

// root starts a span with which a request begins: what is on for it depends on the trace id, which is made by the start. Its point may be nil.
func (t *tracer) root(ctx context.Context, point *Point, options []trace.SpanStartOption, e *entry) (context.Context, trace.Span) {
	s := &span{provider: t.provider}
	s.Context, s.Span = t.inner.Start(ctx, e.name, options...)
	s.request = t.provider.registry.decide(s.Span.SpanContext().TraceID(), e)
	s.request.owner = point
	s.more().base = point
	s.first()
	if t.provider.registry.labels.Load() {
		s.label(ctx)
	}
	return s.within(s.Context), s
}

// skip returns a span that is off, below the given one.
func (t *tracer) skip(ctx context.Context, above trace.Span, a *surroundings) (context.Context, trace.Span) {
	if o, ok := above.(*off); ok && o.provider == t.provider {
		return ctx, o
	}
	sc := above.SpanContext()
	if !a.local {
		sc = a.request.carry(sc)
	}
	o := &off{provider: t.provider, request: a.request, identity: sc, parent: a.span}
	return o.within(ctx), o
}

// point returns the tracepoint of the spans of the given name, in the baseline or not. It is nil, and they stay on, if the name is
// not fit for a catalogue, or if there are too many.
func (t *tracer) point(name string, kind trace.SpanKind, baseline bool) *Point {
	known := &t.points
	if baseline {
		known = &t.base
	}
	if p, ok := known.Load(name); ok {
		return p.(*Point) //nolint:errcheck // nothing else is stored
	}
	if !validText(name, maxName) || !validText(t.scope, maxName) {
		return nil
	}
	p := t.provider.registry.pair(t.scope, name, kind, baseline)
	if p != nil {
		known.Store(name, p)
	}
	return p
}

// pair returns the tracepoint of a scope and the name of its spans; nil if there are too many.
func (r *Registry) pair(scope, name string, kind trace.SpanKind, baseline bool) *Point {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := pointKey{protocol.SpanPoint, scope, name, baseline}
	if p := r.points[key]; p != nil {
		return p
	}
	if r.pairs >= maxPairs {
		return nil
	}
	r.pairs++
	return r.add(key, protocol.Tracepoint{
		Kind: protocol.SpanPoint, Scope: scope, Operation: name, SpanKind: spanKind(kind), Baseline: baseline,
		CostNanos: spanNanos, Bytes: spanBytes(name),
	})
}
