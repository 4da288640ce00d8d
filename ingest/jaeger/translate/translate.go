// Package translate converts Jaeger's spans, from its protobuf model or its JSON, to OTLP without loss. Package otlp
// decodes the same spans from the translation as package jaeger does from the original; a test compares the two.
//
// Spans are interpreted according to Jaeger's model, as in package jaeger. All tags become attributes, even if they
// also become a field of OTLP. Logs become events. A span with invalid identifiers or times gets an empty identifier or
// an impossible time, so that the receiver rejects and counts it.
package translate

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/jaegertracing/jaeger-idl/model/v1"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/trace"
)

// Spans returns spans as OTLP, with their processes as resources. A span without a process has an empty resource.
func Spans(spans []model.Span) ptrace.Traces {
	t := translator{
		out:  ptrace.NewTraces(),
		of:   make(map[*model.Process]ptrace.SpanSlice),
		same: make(map[string]ptrace.SpanSlice),
	}
	for i := range spans {
		t.span(&spans[i])
	}
	return t.out
}

type translator struct {
	out  ptrace.Traces
	of   map[*model.Process]ptrace.SpanSlice
	same map[string]ptrace.SpanSlice // by encoded process, because over gRPC each span has its own copy of its process
}

// spansOf returns the slice for the spans of p, which may be nil. Equal processes share one slice.
func (t *translator) spansOf(p *model.Process) ptrace.SpanSlice {
	spans, ok := t.of[p]
	if ok {
		return spans
	}
	var key []byte // empty for both a missing and an empty process
	if p != nil {
		var err error
		if key, err = p.Marshal(); err != nil {
			panic(err) // only custom types fail, and p has no custom type
		}
	}
	if spans, ok = t.same[string(key)]; !ok {
		spans = t.resource(p)
		t.same[string(key)] = spans
	}
	t.of[p] = spans
	return spans
}

// resource adds a resource for p, which may be nil, and returns the slice for its spans.
func (t *translator) resource(p *model.Process) ptrace.SpanSlice {
	rs := t.out.ResourceSpans().AppendEmpty()
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	if p == nil {
		return spans
	}
	resource := rs.Resource().Attributes()
	attributes(p.Tags, resource)
	if p.ServiceName != "" {
		resource.PutStr("service.name", p.ServiceName)
	}
	for _, tag := range p.Tags {
		if key := hostTags[tag.Key]; key != "" && tag.VType == model.StringType {
			if _, given := resource.Get(key); !given {
				resource.PutStr(key, tag.VStr)
			}
		}
	}
	return spans
}

// hostTags maps the host tags of Jaeger's clients to the keys of OpenTelemetry.
var hostTags = map[string]string{"hostname": "host.name", "ip": "host.ip"}

func (t *translator) span(s *model.Span) {
	out := t.spansOf(s.Process).AppendEmpty()
	out.SetTraceID(traceID(s.TraceID))
	out.SetSpanID(spanID(s.SpanID))
	out.SetName(s.OperationName)
	start := nanos(s.StartTime)
	end := uint64(math.MaxUint64)
	// also false for a sum that overflows
	if sum := int64(start) + int64(s.Duration); start <= math.MaxInt64 && sum >= 0 {
		end = uint64(sum) // before the start if a clock was set back during the span
	}
	out.SetStartTimestamp(pcommon.Timestamp(start))
	out.SetEndTimestamp(pcommon.Timestamp(end))
	relate(s, out)
	attributes(s.Tags, out.Attributes())
	mark(s.Tags, out)
	for i := range s.Logs {
		event(&s.Logs[i], out.Events().AppendEmpty())
	}
}

// relate sets the parent and the links of out from the references of s. The parent is the first CHILD_OF reference
// within the trace, else the first FOLLOWS_FROM reference.
func relate(s *model.Span, out ptrace.Span) {
	parent := -1
	for i, r := range s.References {
		if r.TraceID == s.TraceID &&
			(parent < 0 || r.RefType == model.ChildOf && s.References[parent].RefType != model.ChildOf) {
			parent = i
		}
	}
	for i, r := range s.References {
		switch {
		case i == parent:
			out.SetParentSpanID(spanID(r.SpanID))
		case r.RefType != model.ChildOf:
			link := out.Links().AppendEmpty()
			link.SetTraceID(traceID(r.TraceID))
			link.SetSpanID(spanID(r.SpanID))
		}
	}
}

// mark sets the fields of out that Jaeger represents as tags.
func mark(tags []model.KeyValue, out ptrace.Span) {
	for _, tag := range tags {
		switch tag.Key {
		case "span.kind":
			kind, _ := trace.ParseKind(tag.VStr)
			out.SetKind(ptrace.SpanKind(kind))
		case "error":
			if tag.VBool || tag.VStr == "true" {
				out.Status().SetCode(ptrace.StatusCodeError)
			}
		case "otel.status_code":
			if tag.VStr == "ERROR" {
				out.Status().SetCode(ptrace.StatusCodeError)
			}
		case "otel.status_description":
			out.Status().SetMessage(tag.VStr)
		}
	}
}

func attributes(tags []model.KeyValue, to pcommon.Map) {
	to.EnsureCapacity(len(tags))
	for _, tag := range tags {
		switch tag.VType {
		case model.StringType:
			to.PutStr(tag.Key, tag.VStr)
		case model.BoolType:
			to.PutBool(tag.Key, tag.VBool)
		case model.Int64Type:
			to.PutInt(tag.Key, tag.VInt64)
		case model.Float64Type:
			to.PutDouble(tag.Key, tag.VFloat64)
		case model.BinaryType:
			to.PutEmptyBytes(tag.Key).FromRaw(tag.VBinary)
		}
	}
}

// event translates the log l into out. The field "event" becomes the event's name, as in OpenTracing.
func event(l *model.Log, out ptrace.SpanEvent) {
	out.SetTimestamp(pcommon.Timestamp(nanos(l.Timestamp)))
	attributes(l.Fields, out.Attributes())
	if name, ok := out.Attributes().Get("event"); ok && name.Type() == pcommon.ValueTypeStr {
		out.SetName(name.Str())
		out.Attributes().Remove("event")
	}
}

// nanos returns t in nanoseconds since the epoch, or math.MaxUint64 if t is out of range.
func nanos(t time.Time) uint64 {
	if s := t.Unix(); s < 0 || s >= math.MaxInt64/int64(time.Second) {
		return math.MaxUint64
	}
	return uint64(t.UnixNano())
}

func traceID(id model.TraceID) (b pcommon.TraceID) {
	binary.BigEndian.PutUint64(b[:8], id.High)
	binary.BigEndian.PutUint64(b[8:], id.Low)
	return b
}

func spanID(id model.SpanID) (b pcommon.SpanID) {
	binary.BigEndian.PutUint64(b[:], uint64(id))
	return b
}
