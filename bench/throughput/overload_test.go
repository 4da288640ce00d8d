package throughput

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// TestRefusedRequestsAreNotOverwritten runs a server that refuses each request before it has received it: the transport
// still reads the request while its sender makes the next one. The race detector finds a buffer that is reused too
// early.
func TestRefusedRequestsAreNotOverwritten(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.InTapHandle(func(context.Context, *tap.Info) (context.Context, error) {
		return nil, status.Error(codes.ResourceExhausted, "refused")
	}))
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := dial(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()

	l, err := newLoad(Options{Bytes: 1 << 20, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.offer(t.Context(), []*grpc.ClientConn{conn}, time.Second, 64, 0)
	if err != nil {
		t.Fatal(err)
	}
	if s.refused == 0 || s.accepted != 0 {
		t.Errorf("%d requests refused and %d accepted, want all refused", s.refused, s.accepted)
	}
}
