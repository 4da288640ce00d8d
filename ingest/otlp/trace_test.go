package otlp

import (
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// If a request contains two traces, only the spans of one are returned, and its joins refer to them.
func TestDecodeTrace(t *testing.T) {
	in := ptrace.NewTraces()
	rs := in.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "shop")
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	for i := range 6 {
		s := spans.AppendEmpty()
		s.SetTraceID([16]byte{15: byte(1 + i%2)})
		s.SetSpanID([8]byte{7: byte(1 + i)})
		s.SetName("work")
		s.SetStartTimestamp(1000)
		s.SetEndTimestamp(2000)
		s.Attributes().PutStr("customer", string(rune('a'+i)))
		l := s.Links().AppendEmpty()
		l.SetTraceID(s.TraceID())
		l.SetSpanID([8]byte{7: byte(1 + (i+2)%6)})
		l.Attributes().PutBool(trace.KeyJoin, true)
	}
	request, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeTrace(trace.ID{15: 2}, request, ingest.AllFailureRules)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != (trace.ID{15: 2}) || len(got.Spans) != 3 || len(got.Joins) != 3 {
		t.Fatalf("%d spans, %d joins of %s", len(got.Spans), len(got.Joins), got.ID)
	}
	for i, s := range got.Spans {
		if want := trace.SpanID(2 + 2*i); s.ID != want {
			t.Errorf("span %d is %s, want %s", i, s.ID, want)
		}
	}
	names := &trace.Table{}
	whole, err := DecodeWholeTrace(trace.ID{15: 2}, request, names, ingest.AllFailureRules)
	if err != nil || len(whole.Spans) != 3 || len(whole.Attrs) < 3 {
		t.Fatalf("%+v, %v", whole, err)
	}
	for _, a := range whole.Attrs {
		if names.Text(a.Key) == "customer" && names.Text(a.Text) != string("bdf"[a.Span]) {
			t.Errorf("span %d has the attribute %s", a.Span, names.Text(a.Text))
		}
	}
	joins := make(map[int32]int)
	for _, j := range got.Joins {
		joins[j.Span]++
	}
	for i := range int32(3) {
		if joins[i] != 1 {
			t.Errorf("span %d has %d joins", i, joins[i])
		}
	}
	if none, err := DecodeTrace(trace.ID{15: 3}, request, ingest.AllFailureRules); err != nil ||
		len(none.Spans)+len(none.Joins) > 0 {
		t.Errorf("another trace: %+v, %v", none, err)
	}
	if broken, err := DecodeTrace(trace.ID{15: 2}, request[:len(request)-1], ingest.AllFailureRules); err == nil {
		t.Errorf("half a request: %+v", broken)
	}
}
