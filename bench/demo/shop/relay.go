package shop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sibyl-trace/sibyl/replay"
)

// spanRelay is an OTLP endpoint in front of another one. It counts the spans of a program that has no counters.
type spanRelay struct {
	ptraceotlp.UnimplementedGRPCServer

	listener     net.Listener
	server       *grpc.Server
	connection   *grpc.ClientConn
	to           ptraceotlp.GRPCClient // nil: spans are only counted
	spans, extra atomic.Uint64
}

// startRelay starts a relay in front of the address `to`. If `to` is empty, it only counts spans.
func startRelay(ctx context.Context, to string) (*spanRelay, error) {
	r := &spanRelay{server: grpc.NewServer()}
	if to != "" {
		connection, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", to, err)
		}
		r.connection, r.to = connection, ptraceotlp.NewGRPCClient(connection)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen for spans: %w", err), r.close())
	}
	r.listener = listener
	ptraceotlp.RegisterGRPCServer(r.server, r)
	go func() { _ = r.server.Serve(listener) }() // ends with close, which is its only error
	return r, nil
}

func (r *spanRelay) address() string { return r.listener.Addr().String() }

// Export implements [ptraceotlp.GRPCServer].
func (r *spanRelay) Export(ctx context.Context, q ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	for span := range replay.Spans(q.Traces()) {
		r.spans.Add(1)
		if _, found := span.Attributes().Get(tracepointID); found {
			r.extra.Add(1)
		}
	}
	if r.to == nil {
		return ptraceotlp.NewExportResponse(), nil
	}
	return r.to.Export(ctx, q)
}

// close stops the relay.
func (r *spanRelay) close() error {
	r.server.Stop()
	if r.connection == nil {
		return nil
	}
	return r.connection.Close()
}
