// Package example_test contains the program in docs/tracepoints.md.
package example_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Registered once; all are disabled. The hints tell Sibyl which request types they belong to.
var (
	order = tracepoint.Span("order", tracepoint.WithOwner("POST /order", trace.SpanKindServer))
	price = tracepoint.Span("order.price", tracepoint.WithParent(order))
	size  = tracepoint.Int("order.size", tracepoint.WithParent(order))
)

// serve handles a request. A real service would start this span with otelhttp or otelgrpc.
func serve(ctx context.Context, items []string) {
	ctx, span := otel.Tracer("shop").Start(ctx, "POST /order", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	takeOrder(ctx, items)
}

func takeOrder(ctx context.Context, items []string) {
	ctx, end := order.Start(ctx)
	defer end()
	size.Set(ctx, len(items))
	for range items {
		addPrice(ctx)
	}
}

func addPrice(ctx context.Context) {
	_, end := price.Start(ctx)
	defer end()
}

// printer is an exporter that prints spans.
type printer struct{}

func (printer) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		fmt.Print("  ", s.Name())
		for _, kv := range s.Attributes() {
			fmt.Print(" ", kv.Key, "=", kv.Value.String())
		}
		fmt.Println()
	}
	return nil
}

func (printer) Shutdown(context.Context) error { return nil }

func main() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// Set up OpenTelemetry as usual, and wrap the provider.
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(printer{}))
	defer func() { _ = provider.Shutdown(ctx) }()
	otel.SetTracerProvider(tracepoint.Provider(provider))

	// From here on, Sibyl decides which tracepoints are enabled. The endpoint need not be reachable.
	agent, err := tracepoint.Connect(ctx, tracepoint.WithEndpoint("http://sibyl.example:8321"),
		tracepoint.WithService("shop"))
	if err != nil {
		slog.Error("connect", slog.Any("error", err))
		os.Exit(1)
	}
	defer agent.Close()

	fmt.Println("disabled")
	serve(ctx, []string{"tea", "jam"})

	// Sibyl sends plans like this one.
	err = tracepoint.Default.Apply(&protocol.Plan{
		Protocol: protocol.Version, Version: 1, LeaseSeconds: 60,
		Arms: []protocol.Arm{{Name: "a", Share: 1, Tracepoints: []protocol.Enabled{
			{ID: "shop/order", Rate: 1},
			{ID: "shop/order.size", Rate: 1},
		}}},
	})
	if err != nil {
		slog.Error("apply", slog.Any("error", err))
		os.Exit(1)
	}
	fmt.Println("enabled")
	serve(ctx, []string{"tea", "jam"})
}

func Example() {
	main()
	// Output:
	// disabled
	//   POST /order sibyl.plan=0
	// enabled
	//   order sibyl.tracepoint.id=shop/order order.size=2
	//   POST /order sibyl.plan=1 sibyl.arm=a
}
