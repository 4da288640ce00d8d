package receiver

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcencoding "google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// The server accepts all compressions that a Collector can be configured to use. The client is pdata's, with the
// encodings of the gRPC library.
func TestGRPCEncodings(t *testing.T) {
	taken := newDecoding(t)
	s := start(t, taken, Options{})
	client := ptraceotlp.NewGRPCClient(dial(t, s.GRPCAddr().String(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(grpcencoding.GetCodecV2("proto")))))
	for i, encoding := range []string{"identity", "gzip", "zstd"} {
		_, err := client.Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(tracesOf(300, 10)),
			grpc.UseCompressor(encoding))
		if err != nil || taken.taken() != 300*(i+1) {
			t.Errorf("%s: %v, %d spans taken, want %d", encoding, err, taken.taken(), 300*(i+1))
		}
	}
}

// The answer to an accepted request is empty. If some of its spans are rejected, the answer contains their number and
// the reason.
func TestGRPCSuccess(t *testing.T) {
	s := start(t, newDecoding(t), Options{})
	traces := tracesOf(3, 0)
	traces.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(1).SetSpanID([8]byte{})
	some, err := ptraceotlp.NewExportRequestFromTraces(traces).MarshalProto()
	must(t, err)
	conn := dial(t, s.GRPCAddr().String())
	for name, test := range map[string]struct {
		request  []byte
		rejected int64
	}{"all": {requestOf(2, 1), 0}, "nothing": {nil, 0}, "some": {some, 1}} {
		data, err := exportRaw(t.Context(), conn, test.request)
		if err != nil || (len(data) == 0) != (test.rejected == 0) {
			t.Errorf("%s: %v, answer %q", name, err, data)
		}
		response := ptraceotlp.NewExportResponse()
		must(t, response.UnmarshalProto(data))
		partial := response.PartialSuccess()
		if partial.RejectedSpans() != test.rejected || (partial.ErrorMessage() != "") != (test.rejected > 0) {
			t.Errorf("%s: %d spans rejected because of %q", name, partial.RejectedSpans(), partial.ErrorMessage())
		}
	}
}

// Each refusal has its status, and only overloads ask the client to retry.
func TestGRPCRefusals(t *testing.T) {
	broken := errors.New("/var/lib/secret is broken")
	tests := []struct {
		name    string
		intake  error // returned by the Intake; if nil, the Intake decodes
		token   string
		request []byte
		gzip    bool
		code    codes.Code
		message string
		retry   time.Duration
	}{
		{name: "no token", token: "-", code: codes.Unauthenticated, message: "a valid bearer token is needed"},
		{
			name:    "wrong token",
			token:   "Bearer guessed",
			code:    codes.Unauthenticated,
			message: "a valid bearer token is needed",
		},
		{
			name:    "other scheme",
			token:   "Basic secret",
			code:    codes.Unauthenticated,
			message: "a valid bearer token is needed",
		},
		{name: "lower case", token: "bearer secret"},
		{name: "no protobuf", request: []byte("{}"), code: codes.InvalidArgument, message: "malformed"},
		{
			name:    "large",
			request: make([]byte, 1<<20+1),
			code:    codes.ResourceExhausted,
			message: "the request has more than 1048576 bytes uncompressed",
		},
		{
			name:    "large in gzip",
			request: make([]byte, 1<<20+1),
			gzip:    true,
			code:    codes.ResourceExhausted,
			message: "the request has more than 1048576 bytes uncompressed",
		},
		{
			name:    "overload",
			intake:  refusal.New(refusal.Overloaded, "full", "").Later(1500 * time.Millisecond),
			code:    codes.Unavailable,
			message: "full",
			retry:   1500 * time.Millisecond,
		},
		{
			name:    "overload without time",
			intake:  refusal.New(refusal.Overloaded, "full", ""),
			code:    codes.Unavailable,
			message: "full",
			retry:   time.Second,
		},
		{name: "internal", intake: broken, code: codes.Internal, message: "internal error"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var to Intake = newDecoding(t)
			if test.intake != nil {
				to = intake(func(context.Context, []byte, Format) (Rejected, error) { return Rejected{}, test.intake })
			}
			s := start(t, to, Options{
				MaxRequestBytes: 1 << 20,
				Route:           needsSecret,
			})
			ctx := t.Context()
			if token := orElse(test.token, "Bearer secret"); token != "-" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", token)
			}
			var opts []grpc.CallOption
			if test.gzip {
				opts = append(opts, grpc.UseCompressor("gzip"))
			}
			_, err := exportRaw(ctx, dial(t, s.GRPCAddr().String()), test.request, opts...)
			st := status.Convert(err)
			if st.Code() != test.code || !strings.HasPrefix(st.Message(), test.message) {
				t.Fatalf("%s %q, want %s %q", st.Code(), st.Message(), test.code, test.message)
			}
			if got := retryDelay(st); got != test.retry {
				t.Errorf("retry delay %v, want %v", got, test.retry)
			}
		})
	}
}

// retryDelay returns the delay that st, a refusal, asks for before a retry, or 0.
func retryDelay(st *status.Status) time.Duration {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// Unknown encodings and methods are UNIMPLEMENTED.
func TestGRPCUnimplemented(t *testing.T) {
	s := start(t, newDecoding(t), Options{})
	conn := dial(t, s.GRPCAddr().String())
	err := conn.Invoke(t.Context(), "/opentelemetry.proto.collector.logs.v1.LogsService/Export", new([]byte),
		new([]byte))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("unknown service: %v", err)
	}
	for name, header := range map[string]string{"unknown": "snappy", "none": ""} {
		r := rawCall(t, s.GRPCAddr().String(), header, bytes.NewReader(framed(1, []byte("x"))))
		if got := r.grpc; got != "12" {
			t.Errorf("%s encoding: grpc-status %s, want 12", name, got)
		}
	}
}

// Invalid messages are refused.
func TestGRPCFrames(t *testing.T) {
	s := start(t, newDecoding(t), Options{})
	for name, test := range map[string]struct {
		encoding string
		sent     []byte
		status   string
	}{
		"none":                 {"", nil, "3"},
		"half a prefix":        {"", []byte{0, 0}, "3"},
		"half a message":       {"", framed(0, requestOf(1, 1))[:20], "3"},
		"unknown flags":        {"", framed(2, nil), "3"},
		"longer than anything": {"", []byte{0, 255, 255, 255, 255}, "8"},
		"no gzip":              {"gzip", framed(1, []byte("plain")), "3"},
		"not compressed":       {"gzip", framed(0, requestOf(1, 1)), "0"},
		"empty":                {"", framed(0, nil), "0"},
	} {
		r := rawCall(t, s.GRPCAddr().String(), test.encoding, bytes.NewReader(test.sent))
		if got := r.grpc; got != test.status {
			t.Errorf("%s: grpc-status %s, want %s", name, got, test.status)
		}
	}
}
