// Package tracegen encodes traces in the formats that Sibyl reads, for test data, tests and benchmarks: OTLP as
// protobuf and JSON, and Jaeger's JSON. Sibyl decodes all of these formats to the same spans.
package tracegen

import (
	"encoding/binary"
	"math"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// OTLP returns traces as one OTLP request with a resource for each service and host.
func OTLP(traces []*trace.Trace, table *trace.Table) ptrace.Traces {
	w := otlpWriter{table: table, out: ptrace.NewTraces(), resources: make(map[resource]ptrace.SpanSlice)}
	for _, t := range traces {
		w.trace(t)
	}
	return w.out
}

// Protobuf returns traces as one OTLP request in protobuf.
func Protobuf(traces []*trace.Trace, table *trace.Table) ([]byte, error) {
	return (&ptrace.ProtoMarshaler{}).MarshalTraces(OTLP(traces, table))
}

// JSON returns traces as one OTLP request in JSON, on one line.
func JSON(traces []*trace.Trace, table *trace.Table) ([]byte, error) {
	return (&ptrace.JSONMarshaler{}).MarshalTraces(OTLP(traces, table))
}

// resource identifies the OTLP resource of spans with the same service and host.
type resource struct{ service, host trace.Symbol }

type otlpWriter struct {
	table     *trace.Table
	out       ptrace.Traces
	resources map[resource]ptrace.SpanSlice
}

func (w *otlpWriter) trace(t *trace.Trace) {
	spans := make([]ptrace.Span, len(t.Spans))
	for i := range t.Spans {
		spans[i] = w.span(t.ID, &t.Spans[i])
	}
	for _, a := range t.Attrs {
		w.attr(spans[a.Span].Attributes(), a)
	}
	for _, j := range t.Joins {
		if j.Message {
			continue // its trace is unknown
		}
		link := spans[j.Span].Links().AppendEmpty()
		link.SetTraceID(pcommon.TraceID(t.ID))
		link.SetSpanID(spanID(j.Linked))
		link.Attributes().PutBool(trace.KeyJoin, true)
	}
}

// attr adds a to the attributes of its span. Whole numbers become integers, because tracers send them as such.
func (w *otlpWriter) attr(to pcommon.Map, a trace.Attr) {
	switch key := w.table.Text(a.Key); {
	case !a.Numeric:
		to.PutStr(key, w.table.Text(a.Text))
	case a.Number == math.Trunc(a.Number) && math.Abs(a.Number) < 1<<53:
		to.PutInt(key, int64(a.Number))
	default:
		to.PutDouble(key, a.Number)
	}
}

// span appends s to the spans of its resource.
func (w *otlpWriter) span(id trace.ID, s *trace.Span) ptrace.Span {
	span := w.spansOf(resource{s.Service, s.Host}).AppendEmpty()
	span.SetTraceID(pcommon.TraceID(id))
	span.SetSpanID(spanID(s.ID))
	span.SetParentSpanID(spanID(s.Parent))
	span.SetName(w.table.OpName(s.Op))
	span.SetKind(ptrace.SpanKind(s.Kind))
	span.SetStartTimestamp(pcommon.Timestamp(s.Start))
	span.SetEndTimestamp(pcommon.Timestamp(s.End))
	if s.Flags&trace.RemoteParent != 0 {
		span.SetFlags(hasRemote | isRemote)
	}
	if s.Flags&trace.Error != 0 {
		span.Status().SetCode(ptrace.StatusCodeError)
	}
	if s.Tracepoint != 0 {
		span.Attributes().PutStr(trace.KeyTracepoint, w.table.Text(s.Tracepoint))
	}
	return span
}

// Flags of a span.
const (
	hasRemote = 0x100 // isRemote is valid
	isRemote  = 0x200 // the parent is remote
)

func (w *otlpWriter) spansOf(r resource) ptrace.SpanSlice {
	if spans, ok := w.resources[r]; ok {
		return spans
	}
	rs := w.out.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", w.table.Text(r.service))
	if r.host != 0 {
		rs.Resource().Attributes().PutStr("host.name", w.table.Text(r.host))
	}
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	w.resources[r] = spans
	return spans
}

func spanID(id trace.SpanID) (b pcommon.SpanID) {
	binary.BigEndian.PutUint64(b[:], uint64(id))
	return b
}

// FromText parses traces in the text form of package tracetext and returns them as one OTLP request in JSON. Their IDs
// are 1, 2, ….
func FromText(texts ...string) ([]byte, error) {
	var table trace.Table
	traces := make([]*trace.Trace, len(texts))
	for i, text := range texts {
		t, err := tracetext.Parse(text, &table)
		if err != nil {
			return nil, err
		}
		binary.BigEndian.PutUint64(t.ID[8:], uint64(i+1))
		traces[i] = t
	}
	return JSON(traces, &table)
}
