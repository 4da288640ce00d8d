package integration_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// discard is an exporter that drops spans, so the benchmarks only measure creation and batching.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                        { return nil }

// bench holds two requests: one with the tracepoint "on" enabled, and one with plain OpenTelemetry.
type bench struct {
	*tracepoint.Registry
	tracer   trace.Tracer // of the wrapping provider
	ctx      context.Context
	plain    trace.Tracer
	plainCtx context.Context
}

func newBench(b *testing.B, sampler sdk.Sampler, options ...tracepoint.Option) *bench {
	b.Helper()
	inner := sdk.NewTracerProvider(sdk.WithBatcher(discard{}), sdk.WithSampler(sampler))
	b.Cleanup(func() { _ = inner.Shutdown(context.Background()) })
	s := &bench{Registry: tracepoint.NewRegistry("shop"), plain: inner.Tracer("plain")}
	s.plainCtx, _ = s.plain.Start(b.Context(), "GET /", trace.WithSpanKind(trace.SpanKindServer))
	s.Span("on")
	if len(options) > 0 {
		agent, err := s.Connect(b.Context(), append(options, tracepoint.WithEndpoint("http://127.0.0.1:1"))...)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(agent.Close)
	}
	if err := s.Apply(planOf(1, "shop/on", "shop/lib/on", "shop/size")); err != nil {
		b.Fatal(err)
	}
	s.tracer = s.Provider(inner).Tracer("lib")
	s.ctx, _ = s.tracer.Start(b.Context(), "GET /", trace.WithSpanKind(trace.SpanKindServer))
	return s
}

//go:noinline
func call(ctx context.Context) context.Context { return ctx }

//go:noinline
func traced(ctx context.Context, p *tracepoint.Point) context.Context {
	ctx, end := p.Start(ctx)
	defer end()
	return ctx
}

// tracedWithoutDefer is traced without a defer statement.
//
//go:noinline
func tracedWithoutDefer(ctx context.Context, p *tracepoint.Point) context.Context {
	ctx, end := p.Start(ctx)
	end()
	return ctx
}

// deferring only executes a defer statement.
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

// BenchmarkDisabled measures disabled tracepoints, compared with a function call and with an OpenTelemetry span that is
// not sampled.
func BenchmarkDisabled(b *testing.B) {
	s, unsampled := newBench(b, sdk.AlwaysSample()), newBench(b, sdk.NeverSample())
	off, size := s.Span("off"), s.Int("off.size")
	b.Run("call", func(b *testing.B) {
		for b.Loop() {
			call(s.ctx)
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
			tracedWithoutDefer(s.ctx, off)
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

// BenchmarkEnabled measures enabled tracepoints, compared with OpenTelemetry spans with and without the same attribute.
func BenchmarkEnabled(b *testing.B) {
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
	b.Run("tracepoint+labels", func(b *testing.B) {
		labelled := newBench(b, sdk.AlwaysSample(), tracepoint.WithGoroutineLabels())
		on := labelled.Span("on")
		b.ReportAllocs()
		for b.Loop() {
			traced(labelled.ctx, on)
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
