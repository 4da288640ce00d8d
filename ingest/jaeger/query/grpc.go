package query

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/jaegertracing/jaeger-idl/model/v1"
	"github.com/jaegertracing/jaeger-idl/proto-gen/api_v2"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/ingest/jaeger/translate"
	"github.com/sibyl-trace/sibyl/internal/gogocodec"
)

// overGRPC queries Jaeger through api_v2.QueryService, which every version has.
type overGRPC struct {
	connection *grpc.ClientConn
	client     api_v2.QueryServiceClient
	limit      int64 // maximum size of a response in bytes, over all messages
}

// maxMessage is the maximum size in bytes of one message of a response. It is ample, because a message contains about
// ten spans.
const maxMessage = 16 << 20

func newGRPC(base *url.URL, limit int64) (*overGRPC, error) {
	security := insecure.NewCredentials()
	if base.Scheme == "https" {
		security = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	c, err := grpc.NewClient(base.Host, grpc.WithTransportCredentials(security),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(gogocodec.New()),
			grpc.MaxCallRecvMsgSize(int(min(limit, maxMessage)))))
	if err != nil {
		return nil, fmt.Errorf("connect to Jaeger at %s: %w", base.Host, err)
	}
	return &overGRPC{c, api_v2.NewQueryServiceClient(c), limit}, nil
}

func (g *overGRPC) close() error { return g.connection.Close() }

// services implements source.
func (g *overGRPC) services(ctx context.Context) ([]string, error) {
	answer, err := g.client.GetServices(ctx, &api_v2.GetServicesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask Jaeger for services: %w", err)
	}
	return answer.Services, nil
}

// find implements source.
func (g *overGRPC) find(ctx context.Context, service string, w window, n int) (ptrace.Traces, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := g.client.FindTraces(ctx, &api_v2.FindTracesRequest{Query: &api_v2.TraceQueryParameters{
		ServiceName: service, StartTimeMin: w.from, StartTimeMax: w.to, SearchDepth: int32(n), RawTraces: true,
	}})
	if err != nil {
		return ptrace.Traces{}, fmt.Errorf("ask Jaeger for traces: %w", err)
	}
	var spans []model.Span
	size := int64(0)
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return translate.Spans(spans), nil
		}
		if status.Code(err) == codes.ResourceExhausted { // also for a message larger than allowed
			return ptrace.Traces{}, errLarge
		}
		if err != nil {
			return ptrace.Traces{}, fmt.Errorf("read traces from Jaeger: %w", err)
		}
		if size += int64(chunk.Size()); size > g.limit {
			return ptrace.Traces{}, errLarge
		}
		spans = append(spans, chunk.Spans...)
	}
}
