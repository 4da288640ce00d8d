package requests

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// exampleRequest returns a request with a trace of two spans, which have attributes of all kinds, and with a span of
// another trace.
func exampleRequest(t testing.TB) (trace.ID, []byte) {
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

// A trace is read with all attributes and its critical path.
func TestReadTrace(t *testing.T) {
	id, data := exampleRequest(t)
	d, ops, err := readTrace(id, data, critpath.DefaultOptions(), ingest.AllFailureRules)
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
			ID:          "0000000000000002",
			Parent:      "0000000000000001",
			Service:     "shop",
			Name:        "pay",
			Kind:        "server",
			StartNs:     200,
			DurationNs:  300,
			ExclusiveNs: 300,
			Error:       true,
			Tracepoint:  "shop/pay",
			Attributes:  []contract.Attribute{{Key: trace.KeyTracepoint, Value: "shop/pay"}},
		},
	}
	if diff := cmp.Diff(want, d.Spans); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if len(d.Roots) != 1 || d.DurationNs != 1000 || len(d.Roots[0].Refined) != 3 || len(d.Roots[0].Sections) != 1 {
		t.Errorf("%+v", d)
	}
	pay := trace.OpOf(trace.SymbolOf([]byte("shop")), trace.SymbolOf([]byte("pay")), trace.Server)
	if len(ops) != 2 || ops[d.Spans[1].ID] != pay {
		t.Errorf("operations %v", ops)
	}
	if _, _, err := readTrace(id, []byte(strings.Repeat("\xff", 20)),
		critpath.DefaultOptions(), ingest.AllFailureRules); err == nil {
		t.Error("bytes that are no request were accepted")
	}
}

// The configured rules decide which spans of stored traces have failed.
func TestReadFailures(t *testing.T) {
	id := trace.ID{15: 7}
	traces := ptrace.NewTraces()
	s := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID(id))
	s.SetSpanID(pcommon.SpanID{7: 1})
	s.SetKind(ptrace.SpanKindServer)
	s.Attributes().PutInt("http.response.status_code", 503)
	data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	status, err := ingest.NewFailureRules("status")
	if err != nil {
		t.Fatal(err)
	}
	for rules, want := range map[ingest.FailureRules]bool{ingest.AllFailureRules: true, status: false} {
		d, _, err := readTrace(id, data, critpath.DefaultOptions(), rules)
		if err != nil || len(d.Spans) != 1 || d.Spans[0].Error != want {
			t.Errorf("rules %b: %+v, %v, want error %t", rules, d, err, want)
		}
	}
}

// Duplicate spans are dropped. If a client and a server share an ID they are separated, with the server below the
// client.
func TestReadTraceWithCopies(t *testing.T) {
	id := trace.ID{15: 7}
	traces := ptrace.NewTraces()
	spans := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, x := range []struct {
		id, parent byte
		kind       ptrace.SpanKind
		start, end pcommon.Timestamp
	}{
		{1, 0, ptrace.SpanKindServer, 1000, 2000},
		{2, 1, ptrace.SpanKindClient, 1100, 1900},
		{2, 1, ptrace.SpanKindServer, 1200, 1800},
		{3, 2, ptrace.SpanKindInternal, 1300, 1700},
		{3, 2, ptrace.SpanKindInternal, 1300, 1600}, // conflicts with the previous span: only one is kept
		{2, 1, ptrace.SpanKindServer, 1200, 1800},
		{1, 0, ptrace.SpanKindServer, 1000, 2000},
		{1, 0, ptrace.SpanKindInternal, 1000, 1500},
	} {
		s := spans.AppendEmpty()
		s.SetTraceID(pcommon.TraceID(id))
		s.SetSpanID(pcommon.SpanID{7: x.id})
		s.SetParentSpanID(pcommon.SpanID{7: x.parent})
		s.SetKind(x.kind)
		s.SetStartTimestamp(x.start)
		s.SetEndTimestamp(x.end)
	}
	data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	d, ops, err := readTrace(id, data, critpath.DefaultOptions(), ingest.AllFailureRules)
	if err != nil {
		t.Fatal(err)
	}
	const root, client, inner = "0000000000000001", "0000000000000002", "0000000000000003"
	if len(d.Spans) != 4 || len(ops) != 4 {
		t.Fatalf("%d spans of %d operations, want 4: %+v", len(d.Spans), len(ops), d.Spans)
	}
	server := d.Spans[2].ID
	var got [][3]string
	var own int64
	for i := range d.Spans {
		s := &d.Spans[i]
		got = append(got, [3]string{s.ID, s.Parent, s.Kind})
		own += s.ExclusiveNs
	}
	want := [][3]string{
		{root, "", "server"}, {client, root, "client"}, {server, client, "server"}, {inner, server, "internal"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if own != 1000 || d.Spans[2].ExclusiveNs != 200 {
		t.Errorf("%d ns on the path of 1000, of these %d of the server: %+v", own, d.Spans[2].ExclusiveNs, d.Spans)
	}
}

// Every request is either read or refused with an error.
func FuzzReadTrace(f *testing.F) {
	id, data := exampleRequest(f)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, _, err := readTrace(id, data, critpath.DefaultOptions(), ingest.AllFailureRules)
		if (err == nil) != (d != nil) {
			t.Errorf("%v, %v", d, err)
		}
	})
}

// Links to a trace use its first root.
func TestLinkTargetIsTheFirstRoot(t *testing.T) {
	id := trace.ID{15: 1}
	d := &contract.Trace{
		Start: time.Unix(5, 0), DurationNs: int64(2 * time.Second), Roots: []contract.Root{{Span: "b"}, {Span: "a"}},
		Spans: []contract.Span{{ID: "a", Service: "no", Name: "no"}, {ID: "b", Service: "shop", Name: "GET /"}},
	}
	want := directory.Request{Trace: id, Service: "shop", Operation: "GET /", Start: 5e9, End: 7e9}
	if got := *linkTarget(id, d); !cmp.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
