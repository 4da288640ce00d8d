package api

import (
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/trace"
)

// kept returns a request with a trace of two spans and one of another trace, with attributes of all kinds.
func kept(t testing.TB) (trace.ID, []byte) {
	t.Helper()
	id := trace.ID{15: 7}
	traces := ptrace.NewTraces()
	rs := traces.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "shop")
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	add := func(trace trace.ID, id, parent byte, name string, start, end pcommon.Timestamp) ptrace.Span {
		s := spans.AppendEmpty()
		s.SetTraceID(pcommon.TraceID(trace))
		s.SetSpanID(pcommon.SpanID{7: id})
		s.SetParentSpanID(pcommon.SpanID{7: parent})
		s.SetName(name)
		s.SetKind(ptrace.SpanKindServer)
		s.SetStartTimestamp(start)
		s.SetEndTimestamp(end)
		return s
	}
	child := add(id, 2, 1, "pay", 1200, 1500)
	child.Status().SetCode(ptrace.StatusCodeError)
	root := add(id, 1, 0, "GET /", 1000, 2000)
	add(trace.ID{15: 8}, 3, 0, "another's", 1, 2)
	root.Attributes().PutStr("text", "a\x00b")
	root.Attributes().PutBool("flag", true)
	root.Attributes().PutInt("number", -3)
	root.Attributes().PutDouble("fraction", 0.5)
	root.Attributes().PutEmptyBytes("bytes").Append(1, 255)
	deep := root.Attributes().PutEmptySlice("deep")
	for range 100 {
		deep = deep.AppendEmpty().SetEmptySlice()
	}
	child.Attributes().PutStr(trace.KeyTracepoint, "shop/pay")
	data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	return id, data
}

// TestReadTrace reads spans with everything that was sent, and their critical path.
func TestReadTrace(t *testing.T) {
	id, data := kept(t)
	d, err := readTrace(id, data, analysis.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	want := []contract.Span{
		{
			ID: "0000000000000001", Service: "shop", Name: "GET /", Kind: "server", DurationNs: 1000, ExclusiveNs: 700,
			Attributes: []contract.Attribute{
				{Key: "text", Value: "a\x00b"},
				{Key: "flag", Value: "true"},
				{Key: "number", Value: "-3"},
				{Key: "fraction", Value: "0.5"},
				{Key: "bytes", Value: "01ff"},
				{Key: "deep", Value: "…"},
			},
		},
		{
			ID: "0000000000000002", Parent: "0000000000000001", Service: "shop", Name: "pay", Kind: "server", StartNs: 200, DurationNs: 300,
			ExclusiveNs: 300, Error: true, Tracepoint: "shop/pay", Attributes: []contract.Attribute{{Key: trace.KeyTracepoint, Value: "shop/pay"}},
		},
	}
	if diff := cmp.Diff(want, d.Spans); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if len(d.Roots) != 1 || d.DurationNs != 1000 || len(d.Roots[0].Refined) != 3 || len(d.Roots[0].Sections) != 1 {
		t.Errorf("%+v", d)
	}
	if _, err := readTrace(id, []byte(strings.Repeat("\xff", 20)), analysis.DefaultOptions()); err == nil {
		t.Error("what is no request was read")
	}
}

// FuzzReadTrace: whatever is kept, it is read or refused.
func FuzzReadTrace(f *testing.F) {
	id, data := kept(f)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := readTrace(id, data, analysis.DefaultOptions())
		if (err == nil) != (d != nil) {
			t.Errorf("%v, %v", d, err)
		}
	})
}

// Links to other backends know the request that they lead to.
func TestLinkedIsTheFirstRoot(t *testing.T) {
	id := trace.ID{15: 1}
	d := &contract.Trace{
		Start: time.Unix(5, 0), DurationNs: int64(2 * time.Second), Roots: []contract.Root{{Span: "b"}, {Span: "a"}},
		Spans: []contract.Span{{ID: "a", Service: "no", Name: "no"}, {ID: "b", Service: "shop", Name: "GET /"}},
	}
	want := notify.Request{Trace: id, Service: "shop", Operation: "GET /", Start: 5e9, End: 7e9}
	if got := *linked(id, d); got != want {
		t.Errorf("linked to %+v, want %+v", got, want)
	}
}
