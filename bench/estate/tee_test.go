package estate

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/sibyl-trace/sibyl/bench/eval/recorded"
)

// spanRequest returns a request with one span of a trace, in protobuf.
func spanRequest(t *testing.T, service string, id byte, start int64) []byte {
	t.Helper()
	traces := ptrace.NewTraces()
	r := traces.ResourceSpans().AppendEmpty()
	r.Resource().Attributes().PutStr("service.name", service)
	s := r.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID([16]byte{id})
	s.SetSpanID([8]byte{id, service[0]})
	s.SetKind(ptrace.SpanKindServer)
	s.SetName("GET")
	s.SetStartTimestamp(pcommon.Timestamp(at(start)))
	s.SetEndTimestamp(pcommon.Timestamp(at(start + 1)))
	body, err := ptraceotlp.NewExportRequestFromTraces(traces).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// A tee forwards requests, and the recording of it is a case set with a line for each trace.
func TestTee(t *testing.T) {
	received := make(chan int, 10)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		received <- len(body)
		if r.Header.Get("Broken") != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer service.Close()
	dir := t.TempDir()
	x, err := startTee(strings.TrimPrefix(service.URL, "http://"), dir)
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(spanRequest(t, "cart", 2, 10))
	_ = z.Close()
	for _, q := range []struct {
		body             []byte
		encoding, broken string
		status           int
	}{
		{spanRequest(t, "shop", 1, 20), "", "", 200},
		{zipped.Bytes(), "gzip", "", 200},
		{spanRequest(t, "cart", 1, 21), "", "", 200},
		{spanRequest(t, "cart", 3, 30), "", "yes", 503},
	} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+x.listener.Addr().String()+"/v1/traces", bytes.NewReader(q.body))
		r.Header.Set("Content-Encoding", q.encoding)
		r.Header.Set("Broken", q.broken)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != q.status {
			t.Errorf("status %d, want %d", answer.StatusCode, q.status)
		}
		if n := <-received; n != len(q.body) {
			t.Errorf("the service received %d bytes, want %d", n, len(q.body))
		}
	}
	if err := x.close(); err != nil {
		t.Fatal(err)
	}
	c := faultAt("a", "cart", 15, 25)
	if err := recordCase(dir, &c); err != nil {
		t.Fatal(err)
	}
	set, err := recorded.Read(t.Context(), dir, recorded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Cases) != 1 || set.Summary.Spans != 3 {
		t.Errorf("%d cases and %d spans, want 1 and 3", len(set.Cases), set.Summary.Spans)
	}
}
