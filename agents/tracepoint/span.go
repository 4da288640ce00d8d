package tracepoint

import (
	"context"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// span is an enabled span, and also the context that contains it. It wraps a span of the SDK. Instrumentation that asks
// a span for its provider, like otelhttp, gets the wrapping provider.
type span struct {
	context.Context           //nolint:containedctx // a span is a context; see contextWith
	trace.Span                // of the SDK
	provider        *provider // nil if the parent comes from another provider
	request         *request
	extra           *extra // may be nil
	sampled         bool   // the first span of the request in this service is sampled
}

// extra holds the fields of a span that few spans need.
type extra struct {
	context  *trace.SpanContext // with the request's decision; nil if unchanged from the SDK's
	point    *Point             // to measure; nil if this hit is not measured
	baseline *Point             // of a baseline span; may be nil
	spent    time.Duration      // time spent in the start, if measured
	restore  func()             // restores the goroutine's labels; nil if they are unchanged
	followed *followed          // request that the span begins, if it is followed
	returned func()             // ends the call of the followed request; may be nil
}

// spanKey is the key under which OpenTelemetry looks up the span of a context. It is nil if OpenTelemetry does not look
// up exactly one key. Knowing the key lets a span be its own context, which saves an allocation per span.
var spanKey = func() any {
	var r keyRecorder
	trace.SpanFromContext(&r)
	return r.key
}()

// keyRecorder is a context that records the last key looked up.
type keyRecorder struct {
	context.Context //nolint:containedctx // it is a context
	key             any
}

// Value records key.
func (r *keyRecorder) Value(key any) any {
	r.key = key
	return nil
}

// contextWith returns a context that contains the span and otherwise equals ctx. It must be called at most once.
func (s *span) contextWith(ctx context.Context) context.Context {
	if spanKey == nil {
		return trace.ContextWithSpan(ctx, s)
	}
	s.Context = ctx
	return s
}

// Value returns the span itself for the key of OpenTelemetry's spans, or the value of the wrapped context for other
// keys.
func (s *span) Value(key any) any {
	if key == spanKey {
		return s
	}
	return s.Context.Value(key)
}

// SpanContext returns the span context, with the decision about the request in the tracestate.
func (s *span) SpanContext() trace.SpanContext {
	if s.extra != nil && s.extra.context != nil {
		return *s.extra.context
	}
	return s.Span.SpanContext()
}

// TracerProvider returns the wrapping provider, or the SDK's provider if s wasn't started through a wrapping provider.
func (s *span) TracerProvider() trace.TracerProvider {
	if s.provider != nil {
		return s.provider
	}
	return s.Span.TracerProvider()
}

// SetName implements [trace.Span].
func (s *span) SetName(name string) {
	if s.extra != nil && s.extra.baseline != nil {
		s.extra.baseline.recordName(name)
		if s.extra.followed != nil {
			s.extra.followed.rename(name)
		}
	}
	s.Span.SetName(name)
}

// End ends the span. If End is deferred and the goroutine panics, it records the panic.
func (s *span) End(options ...trace.SpanEndOption) { s.end(recover(), options) }

// end ends the span. If recovered isn't nil, it is the value of a panic: end records it and panics again.
func (s *span) end(recovered any, options []trace.SpanEndOption) {
	if recovered != nil { // the SDK recovers panics only if its End is deferred itself
		defer panic(recovered)
		s.recordPanic(recovered, options)
	}
	x := s.extra
	if x != nil {
		x.leave()
	}
	if x == nil || x.point == nil {
		s.Span.End(options...)
		return
	}
	bytes := spanBytes(s.Span)
	start := time.Now()
	s.Span.End(options...)
	x.point.measured.add(x.spent+time.Since(start), bytes)
}

// leave restores the goroutine's labels, and ends the call or the request that is followed.
func (x *extra) leave() {
	if x.restore != nil {
		x.restore()
	}
	if x.followed != nil {
		x.followed.end()
	}
	if x.returned != nil {
		x.returned()
	}
}

// recordPanic records a panic as the same event that the SDK would record.
func (s *span) recordPanic(recovered any, options []trace.SpanEndOption) {
	attributes := []attribute.KeyValue{
		attribute.String("exception.type", fmt.Sprintf("%T", recovered)),
		attribute.String("exception.message", fmt.Sprint(recovered)),
	}
	if c := trace.NewSpanEndConfig(options...); c.StackTrace() {
		attributes = append(attributes, attribute.String("exception.stacktrace", string(debug.Stack())))
	}
	s.AddEvent("exception", trace.WithAttributes(attributes...))
}

// disabledSpan is a disabled span, and also the context that contains it. It has the span context of its parent, so
// that its children become children of that parent. We can't use the parent span itself, because some instrumentation,
// like otelgrpc, takes its span from the context and ends it.
type disabledSpan struct {
	context.Context //nolint:containedctx // it is a context
	noop.Span
	provider    *provider
	request     *request
	spanContext trace.SpanContext // of the parent
	parent      trace.Span        // nearest enabled span; may be remote
	returned    func()            // ends the call of the followed request; may be nil
}

// End implements [trace.Span]. It may be called several times.
func (d *disabledSpan) End(...trace.SpanEndOption) {
	if d.returned != nil {
		d.returned()
	}
}

func (d *disabledSpan) contextWith(ctx context.Context) context.Context {
	if spanKey == nil {
		return trace.ContextWithSpan(ctx, d)
	}
	d.Context = ctx
	return d
}

// Value returns the span itself for the key of OpenTelemetry's spans, or the value of the wrapped context for other
// keys.
func (d *disabledSpan) Value(key any) any {
	if key == spanKey {
		return d
	}
	return d.Context.Value(key)
}

// SpanContext returns the span context of the nearest enabled span.
func (d *disabledSpan) SpanContext() trace.SpanContext { return d.spanContext }

// TracerProvider returns the provider that started the span.
func (d *disabledSpan) TracerProvider() trace.TracerProvider { return d.provider }

// spanOf returns the span of ctx, or a no-op span if ctx doesn't contain a span.
func spanOf(ctx context.Context) trace.Span {
	if s, ok := ctx.(*span); ok { // the common case, and faster
		return s
	}
	return trace.SpanFromContext(ctx)
}

// parentInfo holds information about the parent of a new span.
type parentInfo struct {
	span     trace.Span // nearest enabled span
	request  *request   // nil if unknown, because the parent is not a span of this registry
	provider *provider  // nil if the parent is not from this registry
	local    bool       // span belongs to this registry: the new span is not the request's first in this service
	sampled  bool       // whether the request is sampled; true if unknown
}

// parentOf returns the description of s as the parent of a new span.
func (r *Registry) parentOf(s trace.Span) parentInfo {
	switch s := s.(type) {
	case *span:
		if s.request.registry == r {
			return parentInfo{s, s.request, s.provider, true, s.sampled}
		}
	case *disabledSpan:
		if s.request.registry == r {
			parent, local := s.parent.(*span)
			return parentInfo{s.parent, s.request, s.provider, local, !local || parent.sampled}
		}
	}
	return parentInfo{span: s, sampled: true}
}

// noopEnd ends a disabled span by doing nothing.
func noopEnd() {}

// Start starts a span if the tracepoint is enabled for the request of ctx. The caller must call end exactly once. While
// the tracepoint is disabled, Start returns ctx itself, unless Sibyl has asked for the stacks of requests. If ctx
// contains no parent span, the tracepoint is always disabled.
//
// Start is small enough to be inlined; BenchmarkDisabled shows the difference.
func (p *Point) Start(ctx context.Context) (_ context.Context, end func()) {
	end = noopEnd
	if p.active.Load() != nil {
		ctx, end = p.start(ctx)
	}
	return ctx, end
}

func (p *Point) start(ctx context.Context) (context.Context, func()) {
	a := p.active.Load()
	if a == nil { // disabled since Start
		return ctx, noopEnd
	}
	above := spanOf(ctx)
	ctx, returned := p.registry.stacks.call(ctx, p)
	if returned == nil {
		returned = noopEnd
	}
	parent := p.registry.parentOf(above)
	if parent.request == nil {
		sc := above.SpanContext()
		if !sc.IsValid() {
			return ctx, returned
		}
		parent.request = p.registry.requestOf(sc, &entrySpan{name: p.name, kind: trace.SpanKindInternal})
	}
	if !parent.request.enables(a) {
		return ctx, returned
	}
	if !parent.sampled {
		p.hits.Add(1)
		p.drops.Add(1)
		return ctx, returned
	}
	s := p.startEnabled(ctx, p.registry.tracerFor(parent.provider), p.name, nil, &parent, a)
	return s.contextWith(s.Context), func() {
		returned() // before end, which panics if the function did
		s.end(recover(), nil)
	}
}

// startEnabled starts a span of p, which is enabled by a, and counts the hit.
func (p *Point) startEnabled(
	ctx context.Context, tracer trace.Tracer,
	name string, options []trace.SpanStartOption, parent *parentInfo, a *activation,
) *span {
	var start time.Time
	n := p.hits.Add(1)
	measure := n%measureEvery == 1
	if measure {
		start = time.Now()
	}
	s := startSpan(ctx, tracer, name, options, parent)
	s.Span.SetAttributes(a.id...)
	switch {
	case !s.sampled:
		p.drops.Add(1)
	case measure:
		x := s.ensureExtra()
		x.point, x.spent = p, time.Since(start)
	}
	return s
}

// startSpan starts an enabled span. parent.request must be set.
func startSpan(
	ctx context.Context, tracer trace.Tracer, name string, options []trace.SpanStartOption, parent *parentInfo,
) *span {
	s := &span{provider: parent.provider, request: parent.request, sampled: parent.sampled}
	s.Context, s.Span = tracer.Start(ctx, name, options...)
	if !parent.local {
		s.enterService()
	}
	if parent.request.registry.labels.Load() {
		s.setLabels(ctx)
	}
	return s
}

// ensureExtra returns s.extra, allocating it if necessary.
func (s *span) ensureExtra() *extra {
	if s.extra == nil {
		s.extra = new(extra)
	}
	return s.extra
}

// enterService makes s the first span of its request in this service. It sets the attributes for plan and arm, and adds
// the decision to the tracestate.
func (s *span) enterService() {
	q := s.request
	if q.arm != nil {
		s.Span.SetAttributes(attribute.Int64(protocol.KeyPlan, q.version),
			attribute.String(protocol.KeyArm, q.arm.name))
	} else {
		s.Span.SetAttributes(attribute.Int64(protocol.KeyPlan, q.version))
	}
	sc := s.Span.SpanContext()
	s.sampled = sc.IsSampled()
	if sc.IsValid() {
		with := q.withDecision(sc)
		s.ensureExtra().context = &with
	}
}

// labelKeys consists of the keys of both labels, so that they are next to each other in memory.
const labelKeys = "trace_idspan_id"

// setLabels sets the goroutine's labels until the span ends. The end of the span restores the labels of outer. The
// labels are empty if the span isn't sampled, because it is then never exported. Keys and values are next to each other
// in memory, which halves the cost of Sibyl's kernel agent for reading them.
func (s *span) setLabels(outer context.Context) {
	const traceDigits = 32
	text := ""
	if sc := s.Span.SpanContext(); sc.IsSampled() {
		var digits [48]byte
		traceID, spanID := sc.TraceID(), sc.SpanID()
		hex.Encode(digits[:traceDigits], traceID[:])
		hex.Encode(digits[traceDigits:], spanID[:])
		text = string(digits[:])
	}
	middle := min(traceDigits, len(text))
	keys := labelKeys
	s.Context = pprof.WithLabels(s.Context, pprof.Labels(keys[8:], text[middle:], keys[:8], text[:middle]))
	pprof.SetGoroutineLabels(s.Context)
	s.ensureExtra().restore = func() { pprof.SetGoroutineLabels(outer) }
}
