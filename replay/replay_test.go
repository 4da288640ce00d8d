package replay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sibyl-trace/sibyl/ingest/file"
)

// sent is a received span, with times relative to the start of the replay.
type sent struct {
	At         time.Duration
	ID         byte // first byte of the span ID
	Start, End time.Duration
}

// fake is an endpoint that records its requests and returns one answer after the other. It repeats the last answer.
type fake struct {
	began   time.Time
	spans   []sent
	traces  []pcommon.TraceID
	answers []error
	rejects answer
}

func (f *fake) send(_ context.Context, traces ptrace.Traces) (answer, error) {
	if len(f.answers) > 0 {
		err := f.answers[0]
		if len(f.answers) > 1 {
			f.answers = f.answers[1:]
		}
		if err != nil {
			return answer{}, err
		}
	}
	for s := range Spans(traces) {
		f.spans = append(f.spans, sent{
			time.Since(f.began), s.SpanID()[0], s.StartTimestamp().AsTime().Sub(f.began),
			s.EndTimestamp().AsTime().Sub(f.began),
		})
		f.traces = append(f.traces, s.TraceID())
	}
	return f.rejects, nil
}

// hour is the time of the recording in seconds since the epoch.
const hour = 1_700_000_000

// record adds a span to recording. start and end are in seconds after hour.
func record(t *testing.T, recording *recording, trace, id byte, start, end float64) {
	t.Helper()
	traces := ptrace.NewTraces()
	s := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{15: trace})
	s.SetSpanID(pcommon.SpanID{id})
	s.SetStartTimestamp(pcommon.Timestamp((hour + start) * 1e9))
	s.SetEndTimestamp(pcommon.Timestamp((hour + end) * 1e9))
	if err := recording.add(traces); err != nil {
		t.Fatal(err)
	}
}

func play(t *testing.T, to *fake, o Options, fill func(*recording)) (Summary, error) {
	t.Helper()
	recording, err := newRecording(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer recording.close()
	fill(recording)
	to.began = time.Now()
	var s Summary
	err = (&player{recording: recording, to: to, options: o, summary: &s}).play(t.Context())
	return s, err
}

// Traces recorded in any order are sent in the order of their ends. Durations stay the same; times between traces are
// divided by the speed.
func TestTimes(t *testing.T) {
	fill := func(recording *recording) {
		record(t, recording, 3, 6, 40, 41)
		record(t, recording, 1, 1, 0, 20)
		record(t, recording, 2, 4, 10, 12)
		record(t, recording, 1, 2, 5, 6)
	}
	for speed, want := range map[float64][]sent{
		1: {{12e9, 4, 10e9, 12e9}, {20e9, 1, 0, 20e9}, {20e9, 2, 5e9, 6e9}, {41e9, 6, 40e9, 41e9}},
		2: {{6e9, 4, 5e9, 7e9}, {10e9, 1, 0, 20e9}, {10e9, 2, 5e9, 6e9}, {20.5e9, 6, 20e9, 21e9}},
	} {
		synctest.Test(t, func(t *testing.T) {
			to := &fake{}
			s, err := play(t, to, Options{Speed: speed}, fill)
			if diff := cmp.Diff(want, to.spans); diff != "" || err != nil || s.Traces != 3 || s.Spans != 4 ||
				s.Requests != 3 {
				t.Errorf("speed %v: %+v, %v\n%s", speed, s, err, diff)
			}
		})
	}
}

// A trace without valid times is sent first, with its times unchanged.
func TestImpossibleTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &fake{}
		s, err := play(t, to, Options{Speed: 1}, func(recording *recording) {
			record(t, recording, 1, 1, 1, 2)
			record(t, recording, 2, 2, -hour, 1)
		})
		if err != nil || s.Traces != 2 || to.spans[0].ID != 2 || to.spans[1].At != time.Second ||
			to.spans[1].Start != 0 {
			t.Errorf("%+v %v %+v", s, err, to.spans)
		}
	})
}

// Past sends the first part of a recording at once, with times before now, and the rest when it is due.
func TestPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &fake{}
		_, err := play(t, to, Options{Speed: 2, Past: 20 * time.Second}, func(recording *recording) {
			record(t, recording, 1, 1, 0, 1)
			record(t, recording, 2, 2, 30, 31)
		})
		want := []sent{
			{0, 1, -10 * time.Second, -9 * time.Second},
			{5500 * time.Millisecond, 2, 5 * time.Second, 6 * time.Second},
		}
		if err != nil || !slices.Equal(to.spans, want) {
			t.Errorf("%v %+v; want %+v", err, to.spans, want)
		}
	})
}

// A request that may be retried is sent again, and rejected spans are counted.
func TestRefusals(t *testing.T) {
	one := func(recording *recording) { record(t, recording, 1, 1, 0, 0) }
	synctest.Test(t, func(t *testing.T) {
		to := &fake{
			answers: []error{
				&retryError{err: errors.New("busy"), after: 3 * time.Second},
				&retryError{err: errors.New("busy")}, nil,
			},
			rejects: answer{1, "bad"},
		}
		s, err := play(t, to, Options{Speed: 1}, one)
		if err != nil || s.Retries != 2 || s.Rejected != 1 || s.Spans != 0 || s.Why != "bad" ||
			to.spans[0].At != 3500*time.Millisecond {
			t.Errorf("%+v %v %+v", s, err, to.spans)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		busy := errors.New("busy")
		began := time.Now()
		s, err := play(t, &fake{answers: []error{&retryError{err: busy}}}, Options{Speed: 1}, one)
		if !errors.Is(err, busy) || s.Requests != 0 || time.Since(began) > 2*time.Minute {
			t.Errorf("never taken: %+v %v after %v", s, err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		if s, err := play(t, &fake{answers: []error{refused}}, Options{Speed: 1}, one); !errors.Is(err, refused) ||
			s.Retries != 0 {
			t.Errorf("refused for good: %+v %v", s, err)
		}
	})
}

// Each round has new IDs, the same for all spans of a trace.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := errors.New("end")
		to := &fake{answers: []error{nil, nil, nil, end}}
		_, err := play(t, to, Options{Speed: 1, Loop: true}, func(recording *recording) {
			record(t, recording, 1, 1, 0, 1)
			record(t, recording, 1, 2, 0, 1)
		})
		ids := slices.Compact(slices.Clone(to.traces))
		if !errors.Is(err, end) || len(to.traces) != 6 || len(ids) != 3 || ids[0] != (pcommon.TraceID{15: 1}) {
			t.Errorf("%v, trace IDs %v", err, to.traces)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		to := &fake{}
		_, err := play(t, to, Options{Speed: 1, NewIDs: true},
			func(recording *recording) { record(t, recording, 1, 1, 0, 1) })
		if err != nil {
			t.Fatal(err)
		}
		if to.traces[0] == (pcommon.TraceID{15: 1}) {
			t.Error("the ID is the recorded one")
		}
	})
}

// Replay shifts the times of a span's events and changes the trace IDs of its links.
func TestMove(t *testing.T) {
	traces := ptrace.NewTraces()
	s := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{1})
	s.SetStartTimestamp(100)
	s.Events().AppendEmpty().SetTimestamp(120)
	s.Links().AppendEmpty().SetTraceID(pcommon.TraceID{2})
	s.Links().AppendEmpty()
	m := newMask("seed", 1)
	move(traces, -30, m)
	if s.StartTimestamp() != 70 || s.EndTimestamp() != 0 || s.Events().At(0).Timestamp() != 90 {
		t.Errorf("times %d, %d, %d", s.StartTimestamp(), s.EndTimestamp(), s.Events().At(0).Timestamp())
	}
	if s.TraceID() != m.change(pcommon.TraceID{1}) || s.Links().At(0).TraceID() != m.change(pcommon.TraceID{2}) ||
		!s.Links().At(1).TraceID().IsEmpty() {
		t.Errorf("IDs %s, %s, %s", s.TraceID(), s.Links().At(0).TraceID(), s.Links().At(1).TraceID())
	}
}

// Large traces are split into requests that receivers accept.
func TestRequestsAreBounded(t *testing.T) {
	traces := ptrace.NewTraces()
	spans := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range 5000 {
		s := spans.AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{byte(i >> 8), byte(i), 1})
		s.Attributes().PutStr("text", string(make([]byte, 1000)))
	}
	synctest.Test(t, func(t *testing.T) {
		to := &fake{}
		s, err := play(t, to, Options{Speed: 1}, func(recording *recording) {
			if err := recording.add(traces); err != nil {
				t.Fatal(err)
			}
		})
		if err != nil || s.Spans != 5000 || s.Traces != 1 || s.Requests < 6 || s.Requests > 10 {
			t.Errorf("%+v %v", s, err)
		}
	})
}

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"localhost:4317": "grpc://localhost:4317", "grpcs://h:1": "grpcs://h:1",
		"http://h": "http://h/v1/traces", "https://h/x": "https://h/x",
		"[::1]:4317": "grpc://[::1]:4317",
	} {
		if e, err := ParseEndpoint(text, ""); err != nil || e.url.String() != want {
			t.Errorf("%s: %v %v, want %s", text, e, err, want)
		}
	}
	for _, text := range []string{"", "h", "ftp://h", "http://", "grpc://h:1/x", "h:1/x", "http://%"} {
		if _, err := ParseEndpoint(text, ""); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// server answers over gRPC with one of answers after the other.
type server struct {
	ptraceotlp.UnimplementedGRPCServer
	answers []error
	tokens  []string
}

func (s *server) Export(ctx context.Context, r ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	m, _ := metadata.FromIncomingContext(ctx)
	s.tokens = append(s.tokens, m.Get("authorization")...)
	response := ptraceotlp.NewExportResponse()
	response.PartialSuccess().SetRejectedSpans(int64(r.Traces().SpanCount()) - 1)
	err := s.answers[0]
	s.answers = s.answers[1:]
	return response, err
}

// The gRPC client retries exactly the errors that permit a retry.
func TestGRPC(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{}
	g := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(g, s)
	go func() { _ = g.Serve(l) }()
	defer g.Stop()
	to, err := ParseEndpoint(l.Addr().String(), "secret")
	if err != nil {
		t.Fatal(err)
	}
	c, err := to.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)}
	full, err := status.New(codes.ResourceExhausted, "full").WithDetails(retry)
	if err != nil {
		t.Fatal(err)
	}
	traces := ptrace.NewTraces()
	traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	for _, x := range []struct {
		says  error
		want  answer
		again bool
		after time.Duration
		fails bool
	}{
		{nil, answer{}, false, 0, false},
		{full.Err(), answer{}, true, 7 * time.Second, false},
		{status.Error(codes.Unavailable, "away"), answer{}, true, 0, false},
		{status.Error(codes.ResourceExhausted, "large"), answer{1, "large"}, false, 0, false},
		{status.Error(codes.InvalidArgument, "bad"), answer{1, "bad"}, false, 0, false},
		{status.Error(codes.Unauthenticated, "who"), answer{}, false, 0, true},
	} {
		s.answers = []error{x.says}
		got, err := c.send(t.Context(), traces)
		later, ok := errors.AsType[*retryError](err)
		if got != x.want || ok != x.again || ok && later.after != x.after || (err != nil) != (x.again || x.fails) {
			t.Errorf("%v: %+v, %v", x.says, got, err)
		}
	}
	if !slices.Equal(slices.Compact(s.tokens), []string{"Bearer secret"}) {
		t.Error(s.tokens)
	}
}

// An address that serves another protocol is reported at once, with the protocol. Later it may be a proxy whose
// service is down.
func TestWrongProtocol(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	encrypted := httptest.NewUnstartedServer(http.NotFoundHandler())
	encrypted.Config.ErrorLog = log.New(io.Discard, "", 0) // errors of handshakes
	encrypted.StartTLS()
	defer encrypted.Close()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(g, &server{})
	go func() { _ = g.Serve(l) }()
	defer g.Stop()
	clear, secure, rpc := web.Listener.Addr().String(), encrypted.Listener.Addr().String(), l.Addr().String()
	const ports = ": Sibyl usually receives OTLP over gRPC at port 4317 (--to grpc://127.0.0.1:4317) and over HTTP " +
		"at port 4318 (--to http://127.0.0.1:4318)"
	for endpoint, want := range map[string]string{
		"grpc://" + clear:   clear + " speaks HTTP, not gRPC" + ports,
		"grpcs://" + clear:  clear + " speaks HTTP, not gRPC" + ports,
		"https://" + clear:  clear + " does not speak TLS: use --to http://" + clear,
		"http://" + rpc:     rpc + " speaks gRPC, not HTTP" + ports,
		"https://" + rpc:    rpc + " speaks gRPC, not HTTP" + ports,
		"grpcs://" + rpc:    rpc + " does not speak TLS: use --to grpc://" + rpc,
		"http://" + secure:  secure + " requires TLS: use --to https://" + secure,
		"grpc://" + secure:  secure + " requires TLS: use --to grpcs://" + secure,
		"https://" + secure: "failed to verify certificate",
		"grpcs://" + secure: "failed to verify certificate",
	} {
		to, err := ParseEndpoint(endpoint, "")
		if err != nil {
			t.Fatal(err)
		}
		s, err := Replay(t.Context(), to,
			Options{Files: []string{"-"}, Speed: 1, Input: file.Options{Stdin: bytes.NewReader(Example)}})
		if err == nil || !strings.Contains(err.Error(), want) || s.Retries > 0 {
			t.Errorf("%s: %+v: %v, want %s", endpoint, s, err, want)
		}
	}
}

// The HTTP client retries exactly the errors that permit a retry.
func TestHTTP(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	doc := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"00000000000000000000000000000001",` +
		`"spanId":"0000000000000001","name":"x","startTimeUnixNano":"1"}]}]}]}`
	if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	var codes []int
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization")+" "+r.URL.Path)
		code := codes[0]
		codes = codes[1:]
		if code != http.StatusOK {
			w.WriteHeader(code)
			return
		}
		response := ptraceotlp.NewExportResponse()
		response.PartialSuccess().SetRejectedSpans(1)
		body, _ := response.MarshalProto()
		_, _ = w.Write(body)
	}))
	defer server.Close()
	to, err := ParseEndpoint(server.URL, "secret")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		codes []int
		want  Summary
		fails bool
	}{
		{[]int{503, 429, 200}, Summary{Traces: 1, Rejected: 1, Requests: 1, Retries: 2}, false},
		{[]int{400}, Summary{Traces: 1, Rejected: 1, Requests: 1, Why: "400 Bad Request"}, false},
		{[]int{401}, Summary{}, true},
	} {
		codes = c.codes
		s, err := Replay(t.Context(), to, Options{Files: []string{path}, Speed: 1})
		s.Input = file.Summary{}
		if diff := cmp.Diff(c.want, s); diff != "" || (err != nil) != c.fails {
			t.Errorf("%v: %v\n%s", c.codes, err, diff)
		}
	}
	if !slices.Equal(slices.Compact(got), []string{"Bearer secret /v1/traces"}) {
		t.Error(got)
	}
}
