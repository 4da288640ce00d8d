package shop

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
)

// telemetry exports and counts the spans of a process. It implements [sdk.SpanProcessor].
type telemetry struct {
	resource []attribute.KeyValue
	provider *sdk.TracerProvider
	spans    atomic.Uint64
	extra    atomic.Uint64
}

// exportInterval is the longest delay before spans are exported. It is short because demos are short.
const exportInterval = 500 * time.Millisecond

// startTracing sets up tracing, like an ordinary service.
func (s *service) startTracing(ctx context.Context, setup *Setup) error {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(setup.OTLP), otlptracegrpc.WithInsecure())
	if err != nil {
		return fmt.Errorf("send traces to %s: %w", setup.OTLP, err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the name of this host: %w", err)
	}
	s.telemetry = &telemetry{resource: []attribute.KeyValue{
		attribute.String("service.name", s.name),
		attribute.String("service.instance.id", s.name+"-"+strconv.Itoa(s.instance)),
		attribute.String("host.name", host),
	}}
	s.telemetry.provider = sdk.NewTracerProvider(
		sdk.WithBatcher(exporter, sdk.WithBatchTimeout(exportInterval)), sdk.WithSpanProcessor(s.telemetry),
		sdk.WithResource(resource.NewSchemaless(s.telemetry.resource...)))
	s.propagator = propagation.TraceContext{}
	s.provider = tracepoint.Provider(s.telemetry.provider)
	otel.SetTracerProvider(s.provider)
	if s.name == Outside {
		s.provider = noop.NewTracerProvider()
	}
	return nil
}

// tracepointID is the attribute of spans of tracepoints.
const tracepointID = "sibyl.tracepoint.id"

// OnStart implements [sdk.SpanProcessor].
func (t *telemetry) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements [sdk.SpanProcessor].
func (t *telemetry) OnEnd(span sdk.ReadOnlySpan) {
	t.spans.Add(1)
	for _, a := range span.Attributes() {
		if a.Key == tracepointID {
			t.extra.Add(1)
			return
		}
	}
}

// ForceFlush implements [sdk.SpanProcessor].
func (t *telemetry) ForceFlush(context.Context) error { return nil }

// Shutdown implements [sdk.SpanProcessor].
func (t *telemetry) Shutdown(context.Context) error { return nil }
