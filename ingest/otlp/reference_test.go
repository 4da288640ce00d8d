package otlp

import (
	"encoding/binary"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Reference decodes requests with the collector's own decoder, pdata. It is the oracle that [Decoder] is tested and measured
// against, many times slower, and shares no code with it but the dictionary. It must not be given hostile input: pdata
// recurses as deep as a value is nested.
type Reference struct {
	names ingest.Names
	keys  map[string]bool // nil: all
}

// NewReference returns a decoder with the meaning of [NewDecoder] for the keys with the given names; for all keys if all.
func NewReference(table *trace.Table, all bool, names ...string) *Reference {
	r := &Reference{names: ingest.Names{Table: table}}
	if all {
		return r
	}
	r.keys = map[string]bool{trace.KeyPlan: true, trace.KeyArm: true}
	for _, name := range names {
		r.keys[name] = true
	}
	return r
}

// Protobuf decodes one request as [Decoder.Protobuf] does.
func (r *Reference) Protobuf(data []byte, into *ingest.Batch) error {
	traces, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
	if err == nil {
		r.traces(traces, into)
	}
	return err
}

// JSON decodes one request as [Decoder.JSON] does.
func (r *Reference) JSON(data []byte, into *ingest.Batch) error {
	traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(data)
	if err == nil {
		r.traces(traces, into)
	}
	return err
}

func (r *Reference) traces(traces ptrace.Traces, into *ingest.Batch) {
	for _, rs := range traces.ResourceSpans().All() {
		resource := rs.Resource().Attributes()
		r.version(resource, into)
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				r.span(resource, ss.Scope(), s, into)
			}
		}
	}
}

func (r *Reference) span(resource pcommon.Map, scope pcommon.InstrumentationScope, s ptrace.Span, into *ingest.Batch) {
	service := text(resource, "service.name")
	switch {
	case s.TraceID().IsEmpty():
		into.Reject(trace.BadTraceID, "trace id is empty", 1)
	case s.SpanID().IsEmpty():
		into.Reject(trace.BadSpanID, "span id is empty", 1)
	case uint64(max(s.StartTimestamp(), s.EndTimestamp())) > uint64(trace.MaxNanos):
		into.Reject(trace.BadTime, "time out of range", 1)
	case max(len(s.Name()), len(service)) > ingest.MaxName:
		into.Reject(trace.TooLarge, "name too long", 1)
	default:
		out := trace.Span{
			ID:      spanIDOf(s.SpanID()),
			Parent:  spanIDOf(s.ParentSpanID()),
			Start:   trace.Nanos(s.StartTimestamp()),
			End:     trace.Nanos(s.EndTimestamp()),
			Service: r.names.Symbol([]byte(service)),
			Host:    r.host(resource),
		}
		if k := s.Kind(); k >= ptrace.SpanKindInternal && k <= ptrace.SpanKindConsumer {
			out.Kind = trace.Kind(k)
		}
		if s.Status().Code() == ptrace.StatusCodeError {
			out.Flags |= trace.Error
		}
		if s.Flags()&0x100 != 0 && s.Flags()&0x200 != 0 {
			out.Flags |= trace.RemoteParent
		}
		out.Op = r.names.Op(out.Service, []byte(s.Name()), out.Kind)
		out.Tracepoint = r.names.Value([]byte(tracepoint(s.Attributes())))
		r.joins(s, into)
		r.attrs(s.Attributes(), into)
		r.attrs(resource, into)
		r.scope(scope, into)
		into.Traces = append(into.Traces, trace.ID(s.TraceID()))
		into.Spans = append(into.Spans, out)
	}
}

func (r *Reference) version(resource pcommon.Map, into *ingest.Batch) {
	service, version := text(resource, "service.name"), text(resource, "service.version")
	if service == "" || len(service) > ingest.MaxName || version == "" {
		return
	}
	v := ingest.ServiceVersion{Service: r.names.Symbol([]byte(service)), Version: r.names.Value([]byte(version))}
	if n := len(into.Versions); n == 0 || into.Versions[n-1] != v {
		into.Versions = append(into.Versions, v)
	}
}

func (r *Reference) host(resource pcommon.Map) trace.Symbol {
	for _, key := range []string{"host.id", "host.ip", "host.name", "k8s.pod.uid", "service.instance.id"} {
		for k, v := range resource.All() {
			if host := plainText(v); k == key && host != "" && !ingest.IsLocal(host) {
				return r.names.Value([]byte(host))
			}
		}
	}
	return 0
}

func (r *Reference) joins(s ptrace.Span, into *ingest.Batch) {
	for _, l := range s.Links().All() {
		if l.TraceID() == s.TraceID() && !l.SpanID().IsEmpty() && (marked(l.Attributes()) || marked(s.Attributes())) {
			into.Joins = append(into.Joins, trace.Join{Span: int32(len(into.Spans)), Linked: spanIDOf(l.SpanID())})
		}
	}
}

func (r *Reference) scope(scope pcommon.InstrumentationScope, into *ingest.Batch) {
	r.attrs(scope.Attributes(), into)
	if name := scope.Name(); name != "" {
		m := pcommon.NewMap()
		m.PutStr("otel.scope.name", name)
		r.attrs(m, into)
	}
}

// attrs adds the wanted ones of attrs to the span that is added next.
func (r *Reference) attrs(attrs pcommon.Map, into *ingest.Batch) {
	for key, v := range attrs.All() {
		wanted := r.keys == nil || r.keys[key]
		if !wanted || key == "" || key == trace.KeyTracepoint || key == trace.KeyJoin {
			continue
		}
		a := trace.Attr{Key: r.names.Value([]byte(key)), Span: int32(len(into.Spans))}
		switch v.Type() {
		case pcommon.ValueTypeStr, pcommon.ValueTypeBool:
			a.Text = r.names.Value([]byte(v.AsString()))
		case pcommon.ValueTypeInt:
			a.Number, a.Numeric = float64(v.Int()), true
		case pcommon.ValueTypeDouble:
			a.Number, a.Numeric = v.Double(), true
		case pcommon.ValueTypeEmpty, pcommon.ValueTypeMap, pcommon.ValueTypeSlice, pcommon.ValueTypeBytes:
			continue
		}
		into.Attrs = append(into.Attrs, a)
	}
}

// text returns the first text under key that is not empty.
func text(attrs pcommon.Map, key string) string {
	for k, v := range attrs.All() {
		if text := plainText(v); k == key && text != "" {
			return text
		}
	}
	return ""
}

// plainText returns a text; of a list, its first element, as host.ip is one; else nothing.
func plainText(v pcommon.Value) string {
	if v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() > 0 {
		v = v.Slice().At(0)
	}
	if v.Type() == pcommon.ValueTypeStr {
		return v.Str()
	}
	return ""
}

// tracepoint returns the first text or truth value under the key of tracepoints that is not empty.
func tracepoint(attrs pcommon.Map) string {
	for k, v := range attrs.All() {
		if k == trace.KeyTracepoint && (v.Type() == pcommon.ValueTypeStr || v.Type() == pcommon.ValueTypeBool) && v.AsString() != "" {
			return v.AsString()
		}
	}
	return ""
}

// marked reports whether attrs hold sibyl.join=true.
func marked(attrs pcommon.Map) bool {
	for k, v := range attrs.All() {
		if k == trace.KeyJoin && (v.Type() == pcommon.ValueTypeStr || v.Type() == pcommon.ValueTypeBool) && v.AsString() == "true" {
			return true
		}
	}
	return false
}

func spanIDOf(id pcommon.SpanID) trace.SpanID { return trace.SpanID(binary.BigEndian.Uint64(id[:])) }
