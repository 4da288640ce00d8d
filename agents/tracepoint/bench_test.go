package tracepoint_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// discard is an exporter that throws spans away, so that what is measured is making them and handing them on, in batches.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                        { return nil }

// bench is what the benchmarks run in: a request, in which the tracepoint "on" is on, and one of plain OpenTelemetry.
type bench struct {
	*tracepoint.Registry
	tracer   trace.Tracer // switchable
	ctx      context.Context
	plain    trace.Tracer
	plainCtx context.Context
}

func newBench(b *testing.B, sampler sdk.Sampler) *bench {
	b.Helper()
	inner := sdk.NewTracerProvider(sdk.WithBatcher(discard{}), sdk.WithSampler(sampler))
	b.Cleanup(func() { _ = inner.Shutdown(context.Background()) })
	s := &bench{Registry: tracepoint.NewRegistry("shop"), plain: inner.Tracer("plain")}
	s.plainCtx, _ = s.plain.Start(b.Context(), "GET /", trace.WithSpanKind(trace.SpanKindServer))
	s.Span("on")
	if err := s.Apply(planOf(1, "shop/on", "shop/lib/on", "shop/size")); err != nil {
		b.Fatal(err)
	}
	s.tracer = s.Provider(inner).Tracer("lib")
	s.ctx, _ = s.tracer.Start(b.Context(), "GET /", trace.WithSpanKind(trace.SpanKindServer))
	return s
}

//go:noinline
func work(ctx context.Context) context.Context { return ctx }

//go:noinline
func traced(ctx context.Context, p *tracepoint.Point) context.Context {
	ctx, end := p.Start(ctx)
	defer end()
	return ctx
}

// tracedPlainly is traced without Go's defer.
//
//go:noinline
func tracedPlainly(ctx context.Context, p *tracepoint.Point) context.Context {
	ctx, end := p.Start(ctx)
	end()
	return ctx
}

// deferring is what defer alone takes.
//
//go:noinline
func deferring(ctx context.Context, f func()) context.Context {
	defer f()
	return ctx
}

//go:noinline
func plain(ctx context.Context, t trace.Tracer) context.Context {
	ctx, span := t.Start(ctx, "on")
	defer span.End()
	return ctx
}

// BenchmarkOff says what a tracepoint that is off costs, beside a bare function call and a span of OpenTelemetry that is not
// sampled.
func BenchmarkOff(b *testing.B) {
	s, unsampled := newBench(b, sdk.AlwaysSample()), newBench(b, sdk.NeverSample())
	off, size := s.Span("off"), s.Int("off.size")
	b.Run("call", func(b *testing.B) {
		for b.Loop() {
			work(s.ctx)
		}
	})
	b.Run("call+tracepoint", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			traced(s.ctx, off)
		}
	})
	b.Run("call+tracepoint-defer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tracedPlainly(s.ctx, off)
		}
	})
	b.Run("deferred call", func(b *testing.B) {
		for b.Loop() {
			deferring(s.ctx, func() {})
		}
	})
	b.Run("variable", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			size.Set(s.ctx, 42)
		}
	})
	b.Run("provider", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, span := s.tracer.Start(s.ctx, "off")
			span.End()
		}
	})
	b.Run("unsampled", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			plain(unsampled.plainCtx, unsampled.plain)
		}
	})
}

// BenchmarkOn says what a tracepoint that is on costs, beside a span of OpenTelemetry without and with the same attribute.
func BenchmarkOn(b *testing.B) {
	s := newBench(b, sdk.AlwaysSample())
	on, size := s.Span("on"), s.Int("size")
	id := attribute.String(protocol.KeyTracepoint, "shop/on")
	b.Run("plain", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			plain(s.plainCtx, s.plain)
		}
	})
	b.Run("plain+attribute", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, span := s.plain.Start(s.plainCtx, "on")
			span.SetAttributes(id)
			span.End()
		}
	})
	b.Run("tracepoint", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			traced(s.ctx, on)
		}
	})
	b.Run("provider", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, span := s.tracer.Start(s.ctx, "on")
			span.End()
		}
	})
	b.Run("variable", func(b *testing.B) {
		b.ReportAllocs()
		ctx, end := on.Start(s.ctx)
		defer end()
		for b.Loop() {
			size.Set(ctx, 42)
		}
	})
}
