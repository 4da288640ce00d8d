package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
)

// selfTracing sends traces of the service itself: API requests and epochs. The receivers aren't traced, so a service
// that receives its own traces doesn't loop.
type selfTracing struct {
	provider *sdk.TracerProvider
	tracer   oteltrace.Tracer
}

// newSelfTracing returns a selfTracing that sends to c, or nil if c has no endpoint. Spans wait in a bounded queue, and
// are dropped if the queue is full or sending fails.
func newSelfTracing(c *config.Endpoint, version string, log *slog.Logger) (*selfTracing, error) {
	if c.URL == "" {
		return nil, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("self-tracing: %w", err)
	}
	if path := strings.TrimSuffix(u.Path, "/"); !strings.HasSuffix(path, "/v1/traces") {
		u.Path = path + "/v1/traces"
	}
	transport, err := newHeaderTransport(c)
	if err != nil {
		return nil, fmt.Errorf("self-tracing: %w", err)
	}
	client := &http.Client{Transport: transport, Timeout: sendTimeout}
	exporter, err := otlptracehttp.New(context.Background(), //nolint:forbidigo // it ends with the provider
		otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("self-tracing: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("self-tracing: traces are lost", slog.Any("error", err))
	}))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(resource.NewSchemaless(
		attribute.String("service.name", "sibyl"), attribute.String("service.version", version),
	)))
	return &selfTracing{provider, provider.Tracer("github.com/sibyl-trace/sibyl/server")}, nil
}

// sendTimeout limits the duration of a request with our own traces.
const sendTimeout = 10 * time.Second

// epoch records the decisions of the epoch e, which took the given time, as a span that ends now.
func (t *selfTracing) epoch(core *engine.View, e live.Ended, took time.Duration) {
	now := time.Now()
	ctx := context.Background() //nolint:forbidigo // the span belongs to no request
	_, span := t.tracer.Start(ctx, "epoch", oteltrace.WithTimestamp(now.Add(-took)), oteltrace.WithAttributes(
		attribute.Int("sibyl.decisions", len(e.Decisions)), attribute.Int("sibyl.problems", len(core.Problems.Open())),
		attribute.Int("sibyl.groups", core.Groups.Len()),
	))
	span.End(oteltrace.WithTimestamp(now))
}

// flushTimeout limits the time to send the last spans when the service stops.
const flushTimeout = 2 * time.Second

// close sends the queued spans and ends tracing. It logs a warning if it can't send them.
func (t *selfTracing) close(log *slog.Logger) {
	ctx := context.Background() //nolint:forbidigo // the context of the service has ended
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		log.WarnContext(ctx, "self-tracing: the last traces are lost", slog.Any("error", err))
	}
}
