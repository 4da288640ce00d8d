package jvm_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// span is a span that a JVM has exported.
type span struct {
	trace         [16]byte
	id, parent    [8]byte
	service, name string
	tracepoint    string // "": a span of OpenTelemetry
	kind          ptrace.SpanKind
	attributes    map[string]any
}

// newCollector receives spans over OTLP and passes each to f, from many goroutines at once. It returns its URL.
func newCollector(t testing.TB, f func(span)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r := ptraceotlp.NewExportRequest()
		body, err := io.ReadAll(gunzipped(q))
		isJSON := strings.HasSuffix(q.Header.Get("Content-Type"), "json")
		if err != nil || isJSON && r.UnmarshalJSON(body) != nil || !isJSON && r.UnmarshalProto(body) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for _, rs := range r.Traces().ResourceSpans().All() {
			service, _ := rs.Resource().Attributes().Get("service.name")
			for _, ss := range rs.ScopeSpans().All() {
				for _, x := range ss.Spans().All() {
					f(read(x, service.AsString()))
				}
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func read(x ptrace.Span, service string) span {
	s := span{
		trace:      x.TraceID(),
		id:         x.SpanID(),
		parent:     x.ParentSpanID(),
		service:    service,
		name:       x.Name(),
		kind:       x.Kind(),
		attributes: x.Attributes().AsRaw(),
	}
	s.tracepoint, _ = s.attributes["sibyl.tracepoint.id"].(string)
	return s
}

// gunzipped returns the body of a request, decompressed. Broken bodies return their error when they are read.
func gunzipped(q *http.Request) io.Reader {
	if q.Header.Get("Content-Encoding") != "gzip" {
		return q.Body
	}
	z, err := gzip.NewReader(q.Body)
	if err != nil {
		return strings.NewReader("") // no valid message
	}
	return z
}
