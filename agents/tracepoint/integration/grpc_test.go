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

// healthServer uses a gRPC service that needs no generated code of our own.
type healthServer struct {
	grpc_health_v1.UnimplementedHealthServer
	point *tracepoint.Point
}

func (h *healthServer) Check(
	ctx context.Context, _ *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	run(ctx, h.point)
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// TestGRPC sends requests from a shop to a cart over gRPC, both instrumented with otelgrpc, whose client ends the span
// that it finds in its context.
func TestGRPC(t *testing.T) {
	shop, cart := newService("shop"), newService("cart")
	inCart := cart.Span("price")

	listener := bufconn.Listen(1 << 16)
	handler := otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(cart.provider),
		otelgrpc.WithPropagators(propagator))
	server := grpc.NewServer(grpc.StatsHandler(handler))
	grpc_health_v1.RegisterHealthServer(server, &healthServer{point: inCart})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient("passthrough:///cart",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(shop.provider),
			otelgrpc.WithPropagators(propagator))))
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
			t.Error("the call ended the enclosing span")
		}
		entry.End()
		waitForSpans(t, cart, spans)
	}

	keys := []string{"kind"}
	request(1)
	expect(t, `
		GET / kind=internal plan=0
		  grpc.health.v1.Health/Check kind=server plan=0
		`, keys, shop, cart)

	all := append(shop.ids(), cart.ids()...)
	shop.apply(t, planOf(1, all...))
	cart.apply(t, planOf(1, all...))
	request(2)
	expect(t, `
		GET / arm=a kind=internal plan=1
		  grpc.health.v1.Health/Check kind=client tp=shop/go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/grpc.health.v1.Health/Check
		    grpc.health.v1.Health/Check arm=a kind=server plan=1
		      price kind=internal tp=cart/price
		`, keys, shop, cart)
}
