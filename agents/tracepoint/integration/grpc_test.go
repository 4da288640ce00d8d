package integration_test

import (
	"context"
	"net"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
)

// healthServer is a service that is there already.
type healthServer struct {
	grpc_health_v1.UnimplementedHealthServer
	point *tracepoint.Point
}

func (h *healthServer) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	work(ctx, h.point)
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// TestGRPC has a shop call a cart over gRPC, both instrumented with otelgrpc, whose client takes its span from the context and
// ends it.
func TestGRPC(t *testing.T) {
	shop, cart := newService("shop"), newService("cart")
	inCart := cart.Span("price")

	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(cart.provider), otelgrpc.WithPropagators(propagator))))
	grpc_health_v1.RegisterHealthServer(server, &healthServer{point: inCart})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///cart",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(shop.provider), otelgrpc.WithPropagators(propagator))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := grpc_health_v1.NewHealthClient(conn)
	request := func(spans int) {
		t.Helper()
		ctx, entry := shop.provider.Tracer("entry").Start(t.Context(), "GET /")
		if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		if !entry.IsRecording() {
			t.Error("the call ended the span around it")
		}
		entry.End()
		waitForSpans(t, cart, spans)
	}

	request(1)
	expect(t, "without a plan", `
		GET / internal plan 0
		  grpc.health.v1.Health/Check server plan 0
		`, shop, cart)

	all := append(shop.ids(), cart.ids()...)
	apply(t, shop, planOf(1, all...))
	apply(t, cart, planOf(1, all...))
	request(2)
	expect(t, "with everything on", `
		GET / internal plan 1
		  grpc.health.v1.Health/Check client [shop/go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/grpc.health.v1.Health/Check]
		    grpc.health.v1.Health/Check server plan 1
		      price internal [cart/price]
		`, shop, cart)
}
