package receiver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// post sends body to the traces path over HTTP and returns the answer.
func post(t testing.TB, s *Server, contentType, encoding string, body io.Reader) answer {
	t.Helper()
	header := http.Header{"Content-Type": {contentType}, "Content-Encoding": {encoding}}
	return send(t, s.HTTPAddr().String(), http.MethodPost, tracesPath, header, body)
}

// send sends a request with the fields of header that aren't empty.
func send(t testing.TB, address, method, path string, header http.Header, body io.Reader) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, body)
	must(t, err)
	for name, values := range header {
		if values[0] != "" {
			r.Header[name] = values
		}
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	must(t, err)
	return readAnswer(t, response)
}

// statusOf decodes the body of r, a refusal, in the format that its Content-Type names.
func statusOf(t testing.TB, r answer) *statuspb.Status {
	t.Helper()
	var st statuspb.Status
	var err error
	switch r.header.Get("Content-Type") {
	case "application/json":
		err = protojson.Unmarshal(r.body, &st)
	case "application/x-protobuf":
		err = proto.Unmarshal(r.body, &st)
	default:
		t.Fatalf("Content-Type is %q", r.header.Get("Content-Type"))
	}
	if err != nil {
		t.Fatalf("%v in %q", err, r.body)
	}
	return &st
}

// The server accepts identity, gzip and zstd in both formats.
func TestHTTPEncodings(t *testing.T) {
	taken := newDecoding(t)
	s := start(t, taken, Options{})
	text, err := ptraceotlp.NewExportRequestFromTraces(tracesOf(3, 2)).MarshalJSON()
	must(t, err)
	for contentType, data := range map[string][]byte{
		"application/x-protobuf": requestOf(3, 2), "application/json": text, "Application/JSON; charset=utf-8": text,
	} {
		for _, encoding := range []string{"", "identity", "gzip", "zstd", "GZip"} {
			before := taken.taken()
			// Also without Content-Length.
			for _, body := range []io.Reader{
				bytes.NewReader(compressed(strings.ToLower(encoding), data)),
				io.MultiReader(bytes.NewReader(compressed(strings.ToLower(encoding), data))),
			} {
				r := post(t, s, contentType, encoding, body)
				if r.code != http.StatusOK {
					t.Errorf("%s, %s: %d: %s", contentType, encoding, r.code, r.body)
				}
			}
			if n := taken.taken() - before; n != 6 {
				t.Errorf("%s, %s: %d spans taken, want 6", contentType, encoding, n)
			}
		}
	}
}

// A success has an empty partial_success; a partial success contains the number of rejected spans and the reason. An
// empty request succeeds.
func TestHTTPSuccess(t *testing.T) {
	s := start(t, newDecoding(t), Options{})
	traces := tracesOf(3, 0)
	traces.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(1).SetTraceID([16]byte{})
	some := ptraceotlp.NewExportRequestFromTraces(traces)
	someProtobuf, err := some.MarshalProto()
	must(t, err)
	someJSON, err := some.MarshalJSON()
	must(t, err)
	tests := []struct {
		name, contentType, body string
		answer                  string // if empty, the fields below apply
		rejected                int64
	}{
		{name: "all", contentType: "application/x-protobuf", body: string(requestOf(2, 0))},
		{name: "nothing", contentType: "application/x-protobuf"},
		{name: "nothing", contentType: "application/json", body: "{}", answer: `{"partialSuccess":{}}`},
		{name: "some", contentType: "application/x-protobuf", body: string(someProtobuf), rejected: 1},
		{name: "some", contentType: "application/json", body: string(someJSON), rejected: 1},
	}
	for _, test := range tests {
		t.Run(test.name+" "+test.contentType, func(t *testing.T) {
			r := post(t, s, test.contentType, "", strings.NewReader(test.body))
			if r.code != http.StatusOK || r.header.Get("Content-Type") != test.contentType {
				t.Fatalf("%d, %s: %s", r.code, r.header.Get("Content-Type"), r.body)
			}
			response := ptraceotlp.NewExportResponse()
			if test.contentType == "application/json" {
				must(t, response.UnmarshalJSON(r.body))
			} else {
				must(t, response.UnmarshalProto(r.body))
			}
			if test.rejected == 0 && string(r.body) != test.answer {
				t.Errorf("answer %q, want %q", r.body, test.answer)
			}
			partial := response.PartialSuccess()
			if partial.RejectedSpans() != test.rejected || (partial.ErrorMessage() != "") != (test.rejected > 0) {
				t.Errorf("%d spans rejected because of %q, want %d",
					partial.RejectedSpans(), partial.ErrorMessage(), test.rejected)
			}
		})
	}
}

// Spans of Zipkin reach the intake uncompressed but otherwise unchanged. They are answered as Zipkin does, with or
// without rejected spans.
func TestHTTPZipkin(t *testing.T) {
	const body = `[{"traceId":"1","id":"2"}]`
	var rejected Rejected
	s := start(t, intake(func(_ context.Context, data []byte, format Format) (Rejected, error) {
		if string(data) != body || format != Zipkin {
			t.Errorf("%q in format %d", data, format)
		}
		return rejected, nil
	}), Options{})
	for _, rejected = range []Rejected{{}, {Spans: 1, Why: "an id"}} {
		for _, encoding := range []string{"", "gzip"} {
			header := http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {encoding}}
			r := send(t, s.HTTPAddr().String(), http.MethodPost, zipkinPath,
				header, bytes.NewReader(compressed(encoding, []byte(body))))
			if r.code != http.StatusAccepted || len(r.body) > 0 {
				t.Errorf("%d: %q", r.code, r.body)
			}
		}
	}
}

// Every refusal is a google.rpc.Status in the format of the request, or in JSON.
func TestHTTPRefusals(t *testing.T) {
	const protobuf, text = "application/x-protobuf", "application/json"
	s := start(t, newDecoding(t), Options{
		MaxRequestBytes: 1 << 20, Route: needsSecret,
	})
	zeros := make([]byte, 1<<20+1)
	tests := []struct {
		name        string
		method      string // POST if empty
		path        string // the valid path if empty
		contentType string
		encoding    string
		token       string // the valid token if empty
		body        []byte
		http        int
		code        codes.Code
		answered    string // Content-Type; if empty, the request's
	}{
		{name: "path", path: "/v1/metrics", contentType: protobuf, http: 404, code: codes.NotFound},
		{name: "path outside", path: "/v1/traces/../../etc/passwd", contentType: text, http: 404, code: codes.NotFound},
		{name: "method", method: "GET", contentType: text, http: 405, code: codes.Unimplemented},
		{name: "method without type", method: "PUT", http: 405, code: codes.Unimplemented, answered: text},
		{name: "no type", http: 415, code: codes.InvalidArgument, answered: text},
		{name: "type", contentType: "text/plain", http: 415, code: codes.InvalidArgument, answered: text},
		{name: "encoding", contentType: protobuf, encoding: "br", http: 400, code: codes.Unimplemented},
		{name: "encodings", contentType: text, encoding: "gzip, gzip", http: 400, code: codes.Unimplemented},
		{name: "token", contentType: protobuf, token: "guessed", http: 401, code: codes.Unauthenticated},
		{name: "no protobuf", contentType: protobuf, body: []byte("{}"), http: 400, code: codes.InvalidArgument},
		{name: "no JSON", contentType: text, body: []byte(`{"resourceSpans":`), http: 400, code: codes.InvalidArgument},
		{name: "no body", contentType: text, http: 400, code: codes.InvalidArgument},
		{name: "garbage behind", contentType: text, body: []byte("{} {}"), http: 400, code: codes.InvalidArgument},
		{
			name:        "no gzip",
			contentType: protobuf,
			encoding:    "gzip",
			body:        []byte("plain"),
			http:        400,
			code:        codes.InvalidArgument,
		},
		{
			name:        "no zstd",
			contentType: text,
			encoding:    "zstd",
			body:        []byte("plain"),
			http:        400,
			code:        codes.InvalidArgument,
		},
		{
			name:        "half a gzip",
			contentType: text,
			encoding:    "gzip",
			body:        compressed("gzip", zeros)[:100],
			http:        400,
			code:        codes.InvalidArgument,
		},
		{
			name:        "half a zstd",
			contentType: text,
			encoding:    "zstd",
			body:        compressed("zstd", zeros)[:30],
			http:        400,
			code:        codes.InvalidArgument,
		},
		{
			name:        "unknown fields",
			contentType: text,
			body:        []byte(`{"resourceLogs":[]}`),
			http:        400,
			code:        codes.InvalidArgument,
		},
		{
			name:        "Zipkin's thrift",
			path:        zipkinPath,
			contentType: "application/x-thrift",
			http:        415,
			code:        codes.InvalidArgument,
			answered:    text,
		},
		{
			name:        "Zipkin's protobuf",
			path:        zipkinPath,
			contentType: protobuf,
			http:        415,
			code:        codes.InvalidArgument,
			answered:    text,
		},
		{
			name:        "no spans of Zipkin",
			path:        zipkinPath,
			contentType: text,
			body:        []byte("7"),
			http:        400,
			code:        codes.InvalidArgument,
		},
		{
			name:        "Zipkin without a token",
			path:        zipkinPath,
			contentType: text,
			token:       "guessed",
			http:        401,
			code:        codes.Unauthenticated,
		},
		{
			name:        "Zipkin's query API",
			path:        "/api/v2/traces",
			method:      "GET",
			contentType: text,
			http:        404,
			code:        codes.NotFound,
		},
		{name: "large", contentType: protobuf, body: zeros, http: 413, code: codes.ResourceExhausted},
		{
			name:        "large in gzip",
			contentType: protobuf,
			encoding:    "gzip",
			body:        compressed("gzip", zeros),
			http:        413,
			code:        codes.ResourceExhausted,
		},
		{
			name:        "large in zstd",
			contentType: text,
			encoding:    "zstd",
			body:        compressed("zstd", zeros),
			http:        413,
			code:        codes.ResourceExhausted,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			header := http.Header{
				"Content-Type":     {test.contentType},
				"Content-Encoding": {test.encoding},
				"Authorization":    {"Bearer " + orElse(test.token, "secret")},
			}
			r := send(t, s.HTTPAddr().String(), orElse(test.method, "POST"), orElse(test.path, tracesPath), header,
				bytes.NewReader(test.body))
			want := orElse(test.answered, test.contentType)
			if r.code != test.http || r.header.Get("Content-Type") != want {
				t.Fatalf("%d in %s, want %d in %s: %s", r.code, r.header.Get("Content-Type"), test.http, want, r.body)
			}
			st := statusOf(t, r)
			if codes.Code(st.GetCode()) != test.code || st.GetMessage() == "" || len(st.GetDetails()) > 0 {
				t.Errorf("status %v, want %s without details", st, test.code)
			}
			if r.header.Get("Retry-After") != "" {
				t.Error("the refusal has Retry-After")
			}
		})
	}
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// A request of exactly the maximum size is accepted in every encoding, with and without Content-Length.
func TestLimitIsInclusive(t *testing.T) {
	const limit = 300_000 // not a power of two
	var got int
	s := start(t, intake(func(_ context.Context, body []byte, _ Format) (Rejected, error) {
		got = len(body)
		return Rejected{}, nil
	}), Options{MaxRequestBytes: limit})
	for _, encoding := range []string{"", "gzip", "zstd"} {
		for _, size := range []int{0, 1, 1 << 16, 1<<16 + 1, limit, limit + 1} {
			data := compressed(encoding, make([]byte, size))
			for _, body := range []io.Reader{bytes.NewReader(data), io.MultiReader(bytes.NewReader(data))} {
				got = -1
				r := post(t, s, "application/x-protobuf", encoding, body)
				if size > limit {
					if r.code != http.StatusRequestEntityTooLarge || got != -1 {
						t.Errorf("%d bytes in %q: %d, %d taken", size, encoding, r.code, got)
					}
				} else if r.code != http.StatusOK || got != size {
					t.Errorf("%d bytes in %q: %d, %d taken: %s", size, encoding, r.code, got, r.body)
				}
			}
		}
	}
}

// Variants of JSON are accepted, and single spans can be rejected.
func TestJSONAsItComes(t *testing.T) {
	tests := []struct {
		name, span      string
		taken, rejected int
	}{
		{
			"upper-case ids",
			`{"traceId":"0102030405060708090A0B0C0D0E0FAB","spanId":"01020304050607AB","name":"x"}`,
			1,
			0,
		},
		{
			"numbers as text",
			`{"traceId":"0102030405060708090a0b0c0d0e0fab","spanId":"01020304050607ab","startTimeUnixNano":"1","endTimeUnixNano":2}`,
			1,
			0,
		},
		{
			"names of enumerations, unknown fields",
			`{"traceId":"0102030405060708090a0b0c0d0e0fab","spanId":"01020304050607ab","kind":"SPAN_KIND_CLIENT","new":[{}]}`,
			1,
			0,
		},
		{"short trace id", `{"traceId":"0102","spanId":"01020304050607ab"}`, 0, 1},
		{"zero span id", `{"traceId":"0102030405060708090a0b0c0d0e0fab","spanId":"0000000000000000"}`, 0, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			taken := newDecoding(t)
			s := start(t, taken, Options{})
			good := `{"traceId":"0102030405060708090a0b0c0d0e0fab","spanId":"0102030405060708"}`
			body := `{"resourceSpans":[{"scopeSpans":[{"spans":[` + good + `,` + test.span + `]}]}]}`
			r := post(t, s, "application/json", "", strings.NewReader(body))
			response := ptraceotlp.NewExportResponse()
			if err := response.UnmarshalJSON(r.body); err != nil || r.code != http.StatusOK {
				t.Fatalf("%d: %v: %s", r.code, err, r.body)
			}
			n := taken.taken()
			if n != 1+test.taken || response.PartialSuccess().RejectedSpans() != int64(test.rejected) {
				t.Errorf("%d taken, %d rejected", n, response.PartialSuccess().RejectedSpans())
			}
		})
	}
}

// Overloads ask the client to retry, and refusals don't contain internal errors.
func TestHTTPAnswersOfTheIntake(t *testing.T) {
	tests := []struct {
		name    string
		err     error
		http    int
		after   string
		message string
	}{
		{
			"overload",
			refusal.New(refusal.Overloaded, "the journal is full", "").Later(1500 * time.Millisecond),
			429,
			"2",
			"the journal is full",
		},
		{
			"overload without time",
			refusal.New(refusal.Overloaded, "\xff"+strings.Repeat("x", 1000), ""),
			429,
			"1",
			strings.Repeat("x", 511),
		},
		{"internal", errors.New("/var/lib/secret is broken"), 500, "", "internal error"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, intake(func(context.Context, []byte, Format) (Rejected, error) {
				return Rejected{}, test.err
			}), Options{})
			for _, contentType := range contentTypes {
				r := post(t, s, contentType, "", strings.NewReader("{}"))
				st := statusOf(t, r)
				if r.code != test.http || r.header.Get("Retry-After") != test.after || st.GetMessage() != test.message {
					t.Errorf("%d, Retry-After %q: %v", r.code, r.header.Get("Retry-After"), st)
				}
				if (len(st.GetDetails()) == 1) != (test.after != "") {
					t.Errorf("details: %v", st.GetDetails())
				}
			}
		})
	}
}

// Observe is called once for every request.
func TestEvents(t *testing.T) {
	events := make(chan Event, 10)
	s := start(t, newDecoding(t), Options{Observe: func(e Event) { events <- e }})
	traces := tracesOf(3, 0)
	traces.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(1).SetTraceID([16]byte{})
	marshal := &ptrace.ProtoMarshaler{}
	data, err := marshal.MarshalTraces(traces)
	must(t, err)
	post(t, s, "application/x-protobuf", "gzip", bytes.NewReader(compressed("gzip", data)))
	post(t, s, "application/x-protobuf", "", strings.NewReader("{"))
	post(t, s, "text/plain", "", strings.NewReader("{"))
	conn := dial(t, s.GRPCAddr().String())
	_, err = exportRaw(t.Context(), conn, data)
	must(t, err)
	exportRaw(t.Context(), conn, []byte("{"))

	want := []Event{
		{Transport: HTTP, Bytes: len(data), Rejected: 1},
		{Transport: HTTP, Refused: refusal.Malformed, Bytes: 1},
		{Transport: HTTP, Refused: refusal.UnknownType},
		{Transport: GRPC, Bytes: len(data), Rejected: 1},
		{Transport: GRPC, Refused: refusal.Malformed, Bytes: 1},
	}
	for i, w := range want {
		got := <-events
		if got.Duration <= 0 {
			t.Errorf("event %d took %v", i, got.Duration)
		}
		got.Duration = 0
		if diff := cmp.Diff(w, got); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i, diff)
		}
	}
	if len(events) > 0 {
		t.Errorf("%d more events", len(events))
	}
}

// Pages of other sites are refused.
func TestHTTPPages(t *testing.T) {
	page := http.Header{"Content-Type": {"application/json"}, "Origin": {"http://rebound.example"}}
	program := http.Header{"Content-Type": {"application/json"}}
	foreign := func(r *http.Request) bool { return r.Header.Get("Origin") != "" }
	s := start(t, newDecoding(t), Options{Foreign: foreign})
	address := s.HTTPAddr().String()
	for header, want := range map[*http.Header]int{&page: http.StatusForbidden, &program: http.StatusOK} {
		if r := send(t, address, http.MethodPost, tracesPath, *header, strings.NewReader("{}")); r.code != want {
			t.Errorf("%v: %d, want %d", *header, r.code, want)
		}
	}
}
