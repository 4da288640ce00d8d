package otlp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// fuzzKeys are requested keys that occur in the seeds.
var fuzzKeys = []string{"a", "b", "otel.scope.name", "service.name"}

// seed returns a request with every field that the decoder reads.
func seed() ptrace.Traces {
	traces := ptrace.NewTraces()
	rs := traces.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "shop")
	rs.Resource().Attributes().PutEmptySlice("host.ip").AppendEmpty().SetStr("10.0.0.1")
	rs.Resource().Attributes().PutStr("host.name", "h")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("lib")
	ss.Scope().Attributes().PutStr("a", "scope")
	s := ss.Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{2})
	s.SetParentSpanID(pcommon.SpanID{3})
	s.SetName("GET /1")
	s.SetKind(ptrace.SpanKindServer)
	s.SetFlags(0x300)
	s.SetStartTimestamp(5)
	s.SetEndTimestamp(9)
	s.TraceState().FromRaw("x=y")
	s.Status().SetCode(ptrace.StatusCodeError)
	s.Status().SetMessage("m")
	a := s.Attributes()
	a.PutStr("a", "v")
	a.PutInt("b", -3)
	a.PutDouble("b", math.Inf(1))
	a.PutBool("a", true)
	a.PutEmptyMap("b").PutStr("x", "y")
	a.PutEmptyBytes("a").FromRaw([]byte{1})
	a.PutStr(trace.KeyTracepoint, "tp")
	a.PutInt(trace.KeyPlan, 4)
	l := s.Links().AppendEmpty()
	l.SetTraceID(s.TraceID())
	l.SetSpanID(pcommon.SpanID{7})
	l.Attributes().PutBool(trace.KeyJoin, true)
	for i := range 9 {
		l := s.Links().AppendEmpty()
		l.SetTraceID(pcommon.TraceID{9, byte(i)})
		l.SetSpanID(pcommon.SpanID{8})
	}
	a.PutStr("messaging.destination.name", "orders")
	s.Events().AppendEmpty().SetName("e")
	s.CopyTo(ss.Spans().AppendEmpty())
	ss.Spans().At(1).SetTraceID(pcommon.TraceID{})
	return traces
}

// decodeBoth decodes data with the decoder and with pdata, into batches that already contain a span, and checks the
// decoder's invariants.
func decodeBoth(
	t *testing.T, all bool,
	decode func(*otlp.Decoder, *ingest.Batch) error, oracle func(*reference, *ingest.Batch) error,
) (got, want ingest.Batch, err, wantErr error) {
	keys := wanted(t, fuzzKeys...)
	if all {
		keys = ingest.AllKeys()
	}
	got = ingest.Batch{Traces: []trace.ID{{1}}, Spans: []trace.Span{{ID: 1}}}
	want = ingest.Batch{Traces: []trace.ID{{1}}, Spans: []trace.Span{{ID: 1}}}
	err = decode(otlp.NewDecoder(&trace.Table{}, keys), &got)
	more := len(got.Attrs) + len(got.Joins) + len(got.Rejected) + len(got.Versions)
	if err != nil && (len(got.Spans) != 1 || len(got.Traces) != 1 || more != 0) {
		t.Fatalf("error %v, but the batch holds %+v", err, got)
	}
	for i, s := range got.Spans {
		if s.ID == 0 || got.Traces[i].IsZero() || min(s.Start, s.End) < 0 || max(s.Start, s.End) > trace.MaxNanos {
			t.Fatalf("span %+v of trace %s", s, got.Traces[i])
		}
	}
	wantErr = oracle(newReference(&trace.Table{}, all, fuzzKeys...), &want)
	return got, want, err, wantErr
}

// The decoder gives the same result as pdata for all data that pdata accepts. It may accept other data, because it
// skips unwanted values and rejects single spans.
func FuzzProtobuf(f *testing.F) {
	wire, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(seed())
	f.Add(wire, false)
	f.Add(wire, true)
	f.Add(ascending(wire), true)
	wire, _ = (&ptrace.ProtoMarshaler{}).MarshalTraces(request(1, 3, 2))
	f.Add(wire, true)
	f.Add([]byte{0x0a, 0x80, 0x00, 0x0b, 0x0c}, false)
	f.Fuzz(func(t *testing.T, data []byte, all bool) {
		got, want, err, wantErr := decodeBoth(t, all,
			func(d *otlp.Decoder, b *ingest.Batch) error { return d.Protobuf(data, b) },
			func(r *reference, b *ingest.Batch) error { return r.Protobuf(data, b) })
		if wantErr != nil || err != nil && stricter(data) {
			return
		}
		if err != nil {
			t.Fatalf("pdata accepts the data, the decoder returns %v", err)
		}
		if diff := cmp.Diff(want, got, sameBatch); diff != "" {
			t.Fatalf("-pdata +decoder:\n%s", diff)
		}
	})
}

// The decoder also gives the same result as pdata for JSON.
func FuzzJSON(f *testing.F) {
	text, _ := (&ptrace.JSONMarshaler{}).MarshalTraces(seed())
	f.Add(text, false)
	f.Add(text, true)
	text, _ = (&ptrace.JSONMarshaler{}).MarshalTraces(request(1, 3, 2))
	f.Add(text, true)
	f.Add([]byte(`{"resource_spans":[{"scope_spans":[{"spans":[{"trace_id":"0A000000000000000000000000000000","span_id":"0b00000000000000",
		"start_time_unix_nano":5,"end_time_unix_nano":"6","kind":"SPAN_KIND_CLIENT","status":{"code":"STATUS_CODE_ERROR"},
		"attributes":[{"value":{"string_value":"x"},"key":"a"},{"key":"b","value":{"intValue":"7"}}]}]}],"resource":{"attributes":[
		{"key":"service.name","value":{"stringValue":"s\u00e9"}}]}}]}`), true)
	f.Fuzz(func(t *testing.T, data []byte, all bool) {
		got, want, err, wantErr := decodeBoth(t, all,
			func(d *otlp.Decoder, b *ingest.Batch) error { return d.JSON(data, b) },
			func(r *reference, b *ingest.Batch) error { return r.JSON(data, b) })
		// pdata accepts any document
		if _, unknown := errors.AsType[*otlp.UnknownError](err); wantErr != nil || odd(data) || unknown {
			return
		}
		if err != nil {
			t.Fatalf("pdata accepts the data, the decoder returns %v", err)
		}
		if diff := cmp.Diff(want, got, sameBatch, cmpopts.EquateApprox(1e-15, 0)); diff != "" { // pdata rounds decimals
			t.Fatalf("-pdata +decoder:\n%s", diff)
		}
	})
}

// odd reports whether the results for data can't be compared. Such data isn't JSON or contains a duplicate field
// (where the decoder uses the last one and pdata merges), a field without a name (where pdata stops reading the
// object), or a field that only one of them knows.
func odd(data []byte) bool {
	if !json.Valid(data) {
		return true
	}
	type object struct {
		seen  map[string]bool // nil for an array
		value bool            // the next token is a value
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	stack := []*object{{}}
	for {
		token, err := dec.Token()
		if err != nil {
			return false
		}
		top := stack[len(stack)-1]
		if key, ok := token.(string); ok && top.seen != nil && !top.value {
			if key == "" || top.seen[key] || key == "result" || key == "deprecatedScopeSpans" ||
				key == "deprecated_scope_spans" {
				return true
			}
			top.seen[key], top.seen[camel(key)], top.value = true, true, true
			continue
		}
		top.value = false
		switch token {
		case json.Delim('{'):
			stack = append(stack, &object{seen: map[string]bool{}})
		case json.Delim('['):
			stack = append(stack, &object{})
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:len(stack)-1]
		}
	}
}

// camel converts name from snake case to camel case.
func camel(name string) string {
	var b []byte
	for i := 0; i < len(name); i++ {
		if name[i] == '_' && i+1 < len(name) {
			i++
			b = append(b, bytes.ToUpper([]byte{name[i]})...)
			continue
		}
		b = append(b, name[i])
	}
	return string(b)
}
