package otlp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// request returns a request with the given number of spans, perResource of them per resource. Each span has 10
// attributes, like the spans of instrumented HTTP services. Equal seeds give equal requests.
func request(seed uint64, spans, perResource int) ptrace.Traces {
	r := rand.New(rand.NewPCG(seed, 1))
	traces := ptrace.NewTraces()
	for spans > 0 {
		service := r.IntN(40)
		rs := traces.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", fmt.Sprintf("service-%d", service))
		rs.Resource().Attributes().PutStr("service.version", "1.4.2")
		rs.Resource().Attributes().PutStr("telemetry.sdk.language", "go")
		rs.Resource().Attributes().PutStr("k8s.pod.uid", fmt.Sprintf("0f9a-%d-%d", service, r.IntN(3)))
		rs.Resource().Attributes().PutStr("host.name", fmt.Sprintf("node-%d", r.IntN(12)))
		ss := rs.ScopeSpans().AppendEmpty()
		ss.Scope().SetName("go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp")
		ss.Scope().SetVersion("0.60.0")
		for range min(spans, perResource) {
			span(r, ss.Spans().AppendEmpty(), service)
		}
		spans -= perResource
	}
	return traces
}

func span(r *rand.Rand, s ptrace.Span, service int) {
	route := r.IntN(25)
	start := 1_700_000_000_000_000_000 + r.Uint64N(1e15)
	s.SetTraceID(traceID(r))
	s.SetSpanID(spanID(r))
	if r.IntN(8) != 0 {
		s.SetParentSpanID(spanID(r))
	}
	s.SetName(fmt.Sprintf("GET /api/v%d/things-%c", service%3, 'a'+route))
	s.SetKind(ptrace.SpanKind(1 + r.IntN(5)))
	s.SetStartTimestamp(pcommon.Timestamp(start))
	s.SetEndTimestamp(pcommon.Timestamp(start + r.Uint64N(1e9)))
	s.SetFlags(0x101)
	a := s.Attributes()
	a.PutStr("http.request.method", "GET")
	a.PutStr("http.route", fmt.Sprintf("/api/v%d/things-%c", service%3, 'a'+route))
	a.PutStr("url.scheme", "https")
	a.PutStr("url.path", fmt.Sprintf("/api/v%d/things-%c/%d", service%3, 'a'+route, r.IntN(1e6)))
	a.PutStr("user_agent.original", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36")
	a.PutInt("http.response.status_code", 200)
	a.PutStr("server.address", fmt.Sprintf("service-%d.prod.svc.cluster.local", service))
	a.PutInt("server.port", 8080)
	a.PutStr("network.peer.address", fmt.Sprintf("10.0.%d.%d", r.IntN(256), r.IntN(256)))
	a.PutInt("network.peer.port", int64(r.IntN(65536)))
	if r.IntN(20) == 0 {
		s.Status().SetCode(ptrace.StatusCodeError)
	}
}

func traceID(r *rand.Rand) (id pcommon.TraceID) {
	binary.BigEndian.PutUint64(id[:8], r.Uint64())
	binary.BigEndian.PutUint64(id[8:], r.Uint64()|1)
	return id
}

func spanID(r *rand.Rand) (id pcommon.SpanID) {
	binary.BigEndian.PutUint64(id[:], r.Uint64()|1)
	return id
}
