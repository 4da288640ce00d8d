package receiver

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// must ends the test if err is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience is the timeout for events that should happen at once.
const patience = time.Minute

// postJSON starts a request with JSON.
const postJSON = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

// connections returns the number of open connections.
func connections(s *Server) int64 {
	l := s.Load()
	return l.GRPC.Open + l.HTTP.Open
}

// start returns a running server, which is shut down when the test ends.
func start(t testing.TB, intake Intake, opts Options) *Server {
	t.Helper()
	opts.GRPC, opts.HTTP = "127.0.0.1:0", "127.0.0.1:0"
	s, err := New(intake, opts)
	must(t, err)
	must(t, s.Listen(t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if load := s.Load(); load.Requests != 0 || load.Bytes != 0 || connections(s) != 0 {
			t.Errorf("load after Shutdown: %+v", load)
		}
	})
	return s
}

// intake is an Intake of one function.
type intake func(ctx context.Context, body []byte, format Format) (Rejected, error)

func (f intake) Take(ctx context.Context, body []byte, format Format) (Rejected, error) {
	return f(ctx, body, format)
}

// decoding is an intake that decodes requests and counts spans.
type decoding struct {
	mu      sync.Mutex // guards the fields below
	decoder *otlp.Decoder
	spans   int // taken
}

func newDecoding(t testing.TB) *decoding {
	keys, err := ingest.NewKeys()
	must(t, err)
	return &decoding{decoder: otlp.NewDecoder(&trace.Table{}, keys)}
}

func (d *decoding) Take(_ context.Context, body []byte, format Format) (Rejected, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var batch ingest.Batch
	decode := d.decoder.Protobuf
	if format != Protobuf {
		decode = d.decoder.JSON
	}
	if err := decode(body, &batch); err != nil {
		return Rejected{}, err
	}
	d.spans += len(batch.Spans)
	if len(batch.Rejected) == 0 {
		return Rejected{}, nil
	}
	return Rejected{Spans: batch.RejectedSpans(), Why: batch.Rejected[0].Detail}, nil
}

// taken returns the number of spans taken so far.
func (d *decoding) taken() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.spans
}

// tracesOf returns n spans of one trace, each with some attributes.
func tracesOf(n, attributes int) ptrace.Traces {
	traces := ptrace.NewTraces()
	resource := traces.ResourceSpans().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	spans := resource.ScopeSpans().AppendEmpty().Spans()
	for i := range n {
		span := spans.AppendEmpty()
		span.SetTraceID(pcommon.TraceID{1})
		span.SetSpanID(pcommon.SpanID{byte(i), byte(i >> 8), 1})
		span.SetName(fmt.Sprint("GET /item/", i))
		span.SetStartTimestamp(1)
		span.SetEndTimestamp(2)
		for k := range attributes {
			span.Attributes().PutStr(fmt.Sprint("attribute.key.", k), fmt.Sprint("value number ", i))
		}
	}
	return traces
}

// requestOf returns the spans of tracesOf as an export request in protobuf.
func requestOf(n, attributes int) []byte {
	data, err := ptraceotlp.NewExportRequestFromTraces(tracesOf(n, attributes)).MarshalProto()
	if err != nil {
		panic(err)
	}
	return data
}

// compressed returns data compressed with the encoding name.
func compressed(name string, data []byte) []byte {
	var out bytes.Buffer
	switch name {
	case "gzip":
		w := gzip.NewWriter(&out)
		w.Write(data)
		w.Close()
	case "zstd":
		w, err := zstd.NewWriter(&out)
		if err != nil {
			panic(err)
		}
		w.Write(data)
		w.Close()
	default:
		return data
	}
	return out.Bytes()
}

const exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// dial returns a client for exportRaw.
func dial(t testing.TB, address string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})),
	}, opts...)
	conn, err := grpc.NewClient(address, opts...)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// exportRaw sends request as the message of a call of Export, and returns the answer undecoded.
func exportRaw(ctx context.Context, conn *grpc.ClientConn, request []byte, opts ...grpc.CallOption) ([]byte, error) {
	var response []byte
	err := conn.Invoke(ctx, exportMethod, &request, &response, opts...)
	return response, err
}

// rawCodec lets a client send and receive bytes.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (rawCodec) Name() string { return "proto" }

// framed returns message after its gRPC prefix.
func framed(flags byte, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message))), message...)
}

// answer is an HTTP response whose body was read.
type answer struct {
	code   int
	header http.Header
	body   []byte
	grpc   string // the status, as sent
}

// readAnswer reads r and closes its body.
func readAnswer(t testing.TB, r *http.Response) answer {
	t.Helper()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	must(t, err)
	// If there is no message, the gRPC status is in the header.
	return answer{
		code:   r.StatusCode,
		header: r.Header,
		body:   body,
		grpc:   r.Header.Get("Grpc-Status") + r.Trailer.Get("Grpc-Status"),
	}
}

// rawCall calls Export, sends the data of body as it is, and returns the answer.
func rawCall(t testing.TB, address, encoding string, body io.Reader) answer {
	t.Helper()
	response, err := tryCall(t, address, encoding, body)
	must(t, err)
	return readAnswer(t, response)
}

// tryCall is like rawCall, but the call may fail, and its answer isn't read.
func tryCall(t testing.TB, address, encoding string, body io.Reader) (*http.Response, error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+exportMethod, body)
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	if encoding != "" {
		r.Header.Set("Grpc-Encoding", encoding)
	}
	return transport.RoundTrip(r)
}

// needsSecret is an Options.Route that refuses senders without the token "secret".
func needsSecret(s Sender) (*Destination, error) {
	if s.Token != "secret" || s.From == "" {
		return nil, ErrUnauthorized
	}
	return nil, nil
}
