package demo

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sibyl-trace/sibyl/replay"
)

// past is an OTLP endpoint between the shop and the server. It passes spans on. Incidents need minutes of history, but
// nobody wants to wait for that. So it also keeps the spans of the first seconds and sends them repeatedly, as if the
// shop had been running before.
type past struct {
	ptraceotlp.UnimplementedGRPCServer

	listener   net.Listener
	server     *grpc.Server
	connection *grpc.ClientConn
	to         ptraceotlp.GRPCClient

	mu      sync.Mutex // guards the fields below
	since   uint64     // ns since 1970; spans that started before are dropped
	keeping bool
	kept    ptrace.Traces
}

// startPast starts an endpoint that passes spans on to the address `to`.
func startPast(ctx context.Context, to string) (*past, error) {
	connection, err := grpc.NewClient(to, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to the server: %w", err)
	}
	p := &past{
		server:     grpc.NewServer(),
		connection: connection,
		to:         ptraceotlp.NewGRPCClient(connection),
		keeping:    true,
		kept:       ptrace.NewTraces(),
		since:      math.MaxUint64,
	}
	if p.listener, err = new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0"); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for spans: %w", err), connection.Close())
	}
	ptraceotlp.RegisterGRPCServer(p.server, p)
	go func() { _ = p.server.Serve(p.listener) }() // ends with close, which is its only error
	return p, nil
}

func (p *past) address() string { return p.listener.Addr().String() }

// Export implements [ptraceotlp.GRPCServer].
func (p *past) Export(ctx context.Context, r ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	p.mu.Lock()
	dropBefore(p.since, r.Traces())
	if p.keeping {
		copied := ptrace.NewTraces()
		r.Traces().CopyTo(copied)
		copied.ResourceSpans().MoveAndAppendTo(p.kept.ResourceSpans())
	}
	p.mu.Unlock()
	return p.to.Export(ctx, r)
}

// begin starts to pass on spans. Earlier spans are dropped, because they show how services start, and for example fill
// databases.
func (p *past) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since = uint64(time.Now().UnixNano())
}

// dropBefore removes spans that started before since.
func dropBefore(since uint64, traces ptrace.Traces) {
	for _, resource := range traces.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			scope.Spans().RemoveIf(func(span ptrace.Span) bool { return uint64(span.StartTimestamp()) < since })
		}
	}
}

// LeastRecording is the shortest healthy time that the demo can repeat as its past.
const LeastRecording = 10 * time.Second

// closing is the last part of a recording. Its requests may be incomplete.
const closing = 2 * time.Second

// repeat sends the complete requests that were kept, as the traffic of the given length of time before them. It sends
// all requests of a round at once, because the server writes each message to the disk before it answers.
func (p *past) repeat(ctx context.Context, length time.Duration) error {
	p.mu.Lock()
	kept := p.kept
	p.keeping, p.kept = false, ptrace.NewTraces()
	p.mu.Unlock()
	first, end := completeRequests(kept)
	period := end - first
	if period <= 0 {
		return errors.New("no request of the shop arrived")
	}
	for round := uint64(length)/period + 1; round > 0; round-- {
		earlier := ptrace.NewTraces()
		kept.CopyTo(earlier)
		shift(earlier, round, round*period)
		if _, err := p.to.Export(ctx, ptraceotlp.NewExportRequestFromTraces(earlier)); err != nil {
			return fmt.Errorf("send the past of the shop: %w", err)
		}
	}
	return nil
}

// completeRequests removes the spans of requests that may be incomplete. The others start from first on and before end,
// both in ns since 1970.
func completeRequests(kept ptrace.Traces) (first, end uint64) {
	begun := make(map[pcommon.TraceID]uint64) // requests whose root arrived
	for span := range replay.Spans(kept) {
		if at := uint64(span.StartTimestamp()); span.ParentSpanID().IsEmpty() {
			begun[span.TraceID()] = at
			end = max(end, at)
		}
	}
	end -= min(end, uint64(closing))
	first = end
	for _, at := range begun {
		first = min(first, at)
	}
	for _, resource := range kept.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			scope.Spans().RemoveIf(func(span ptrace.Span) bool {
				at, rooted := begun[span.TraceID()]
				return !rooted || at >= end
			})
		}
	}
	return first, end
}

// shift moves spans back in time by `by` ns, and gives their requests IDs that differ in each round.
func shift(traces ptrace.Traces, round, by uint64) {
	for span := range replay.Spans(traces) {
		id := [16]byte(span.TraceID())
		binary.LittleEndian.PutUint64(id[:8], binary.LittleEndian.Uint64(id[:8])+round)
		span.SetTraceID(id)
		span.SetStartTimestamp(span.StartTimestamp() - pcommon.Timestamp(by))
		span.SetEndTimestamp(span.EndTimestamp() - pcommon.Timestamp(by))
	}
}

// close stops the endpoint.
func (p *past) close() error {
	p.server.Stop()
	return p.connection.Close()
}
