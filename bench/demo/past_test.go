package demo

import (
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// The past consists of whole requests that started after the shop was ready. It contains neither the start of the
// services nor requests that started earlier.
func TestPastBegins(t *testing.T) {
	traces := ptrace.NewTraces()
	spans := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	add := func(request, parent byte, start uint64) {
		s := spans.AppendEmpty()
		s.SetTraceID(pcommon.TraceID{request})
		s.SetParentSpanID(pcommon.SpanID{parent})
		s.SetStartTimestamp(pcommon.Timestamp(start))
	}
	const begin = 1000
	add(1, 0, begin-10) // a service starts
	add(2, 0, begin-5)
	add(2, 1, begin+5)
	add(3, 0, begin+7)
	add(3, 1, begin+8)
	add(4, 0, begin+uint64(closing)+20) // may be incomplete
	dropBefore(begin, traces)
	first, end := completeRequests(traces)
	if first != begin+7 || end != begin+20 {
		t.Errorf("from %d to %d", first, end)
	}
	if spans.Len() != 2 || spans.At(0).TraceID() != (pcommon.TraceID{3}) ||
		spans.At(1).TraceID() != (pcommon.TraceID{3}) {
		t.Errorf("%d spans are left, want those of the third request", spans.Len())
	}
}
