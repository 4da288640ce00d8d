package translate_test

import (
	"compress/gzip"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/jaeger"
	"github.com/sibyl-trace/sibyl/ingest/jaeger/translate"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// keys lists the attributes of spans and processes in the test documents.
var keys = []string{"http.route", "version", "size", "http.response.status_code", "rpc.system"}

// decoded holds the spans of a document, as sorted lines of text, and the rejections.
type decoded struct {
	Spans    []string
	Rejected map[trace.Reason]int
}

func decode(t testing.TB, read func(*trace.Table, *ingest.Keys, *ingest.Batch) error) decoded {
	t.Helper()
	wanted, err := ingest.NewKeys(keys...)
	if err != nil {
		t.Fatal(err)
	}
	table := &trace.Table{}
	var b ingest.Batch
	if err := read(table, wanted, &b); err != nil {
		t.Fatal(err)
	}
	out := decoded{Rejected: make(map[trace.Reason]int)}
	for _, r := range b.Rejected {
		out.Rejected[r.Reason] += r.Spans
	}
	for i, id := range b.Traces {
		one := trace.Trace{Spans: b.Spans[i : i+1]}
		for _, a := range b.Attrs {
			if int(a.Span) == i {
				a.Span = 0
				one.Attrs = append(one.Attrs, a)
			}
		}
		slices.SortFunc(one.Attrs,
			func(a, b trace.Attr) int { return strings.Compare(table.Text(a.Key), table.Text(b.Key)) })
		for _, j := range b.Joins {
			if int(j.Span) == i {
				j.Span = 0
				one.Joins = append(one.Joins, j)
			}
		}
		out.Spans = append(out.Spans, id.String()+" "+tracetext.Format(&one, table))
	}
	slices.Sort(out.Spans)
	return out
}

func asJaeger(t testing.TB, data []byte) decoded {
	t.Helper()
	return decode(t, func(table *trace.Table, keys *ingest.Keys, b *ingest.Batch) error {
		return jaeger.NewDecoder(table, keys).JSON(data, b)
	})
}

func asOTLP(t testing.TB, data []byte) decoded {
	t.Helper()
	traces, err := translate.JSON(data)
	if err != nil {
		t.Fatal(err)
	}
	body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, func(table *trace.Table, keys *ingest.Keys, b *ingest.Batch) error {
		return otlp.NewDecoder(table, keys).Protobuf(body, b)
	})
}

func corpus(t testing.TB) []byte {
	t.Helper()
	f, err := os.Open("../../../testdata/small.jaeger.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

const odd = `{"data":[{"traceID":"1","processes":{
	"p1":{"serviceName":"shop","tags":[{"key":"hostname","type":"string","value":"a"},
		{"key":"ip","type":"string","value":"127.0.0.1"},{"key":"version","type":"string","value":"v7"}]},
	"p2":{"serviceName":"cart","tags":[{"key":"host.id","type":"string","value":"b"}]}},"spans":[
	{"traceID":"1","spanID":"a","operationName":"GET /","startTime":1,"duration":9,"processID":"p1","tags":[
		{"key":"span.kind","type":"string","value":"server"},{"key":"http.route","type":"string","value":"/"}]},
	{"traceID":"1","spanID":"b","operationName":"get","startTime":"2","duration":3.0,"processID":"p2",
		"references":[{"refType":"CHILD_OF","traceID":"1","spanID":"a","span":{"x":[{}]}}],
		"logs":[{"timestamp":1,"fields":[{"key":"event","type":"string","value":"hit"}]}],
		"tags":[{"key":"error","type":"bool","value":true},{"key":"size","type":"int64","value":"12"}]},
	{"traceID":"1","spanID":"c","operationName":"x","references":[{"refType":"FOLLOWS_FROM","traceID":"1","spanID":"8"},
		{"refType":"CHILD_OF","traceID":"2","spanID":"9"},{"refType":"CHILD_OF","traceID":"0001","spanID":"7"}],
		"tags":[{"key":"sibyl.join","type":"bool","value":true}]},
	{"traceID":"1","spanID":"d","operationName":"x","parentSpanID":"00000000000000ff"},
	{"traceID":"1","spanID":"e","operationName":"x","process":{"serviceName":"own","tags":null}},
	{"traceID":"1","spanID":"f","operationName":"x","processID":"p2","process":null,"tags":[
		{"key":"otel.status_code","type":"string","value":"ERROR"},{"key":"size","type":"binary","value":"AAAA"},
		{"key":"version","value":{}}]},
	{"traceID":"xyz","spanID":"1"}, {"traceID":"","spanID":"1"},
	{"traceID":"11111111111111111111111111111111f","spanID":"1"}, {"traceID":"1"}, {"traceID":"1","spanID":"0"},
	{"traceID":"1","spanID":"12345678901234567"}, {"traceID":"1","spanID":"00000000000000012"},
	{"traceID":"1","spanID":"1","parentSpanID":"?"}, {"traceID":"1","spanID":"1","startTime":-1},
	{"traceID":"1","spanID":"1","startTime":2000,"duration":-1500}, {"traceID":"1","spanID":"1","startTime":9e18},
	{"traceID":"1","spanID":"1","startTime":2,"duration":-3},
	{"traceID":"1","spanID":"1","startTime":9000000000000000,"duration":1},
	{"traceID":"1","spanID":"1","duration":"soon"}, {"traceID":"1","spanID":"1","duration":null}]}]}`

// A document and its translation decode to the same spans.
func TestTranslationMeansTheSame(t *testing.T) {
	for name, data := range map[string][]byte{
		"corpus": corpus(t), "odd": []byte(odd), "list": []byte(`[{"spans":[{"traceID":"1","spanID":"2"}]}]`),
	} {
		t.Run(name, func(t *testing.T) {
			want := asJaeger(t, data)
			if len(want.Spans) == 0 {
				t.Fatal("no spans")
			}
			if diff := cmp.Diff(want, asOTLP(t, data)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Translation preserves attributes of all types, events and links.
func TestEverythingIsKept(t *testing.T) {
	traces, err := translate.JSON([]byte(`{"spans":[{"traceID":"1","spanID":"2",
		"references":[{"refType":"FOLLOWS_FROM","traceID":"3","spanID":"4"}],
		"logs":[{"timestamp":7,
			"fields":[{"key":"event","value":"hit"},{"key":"n","type":"int64","value":9007199254740993}]}],
		"tags":[{"key":"i","type":"int64","value":9007199254740993},{"key":"f","type":"float64","value":1},
			{"key":"s","value":"x"},{"key":"b","type":"binary","value":"AAE="},{"key":"span.kind","value":"client"},
			{"key":"otel.status_description","value":"no"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	span := traces.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	want := map[string]any{
		"i": int64(9007199254740993), "f": 1.0, "s": "x", "b": []byte{0, 1},
		"span.kind": "client", "otel.status_description": "no",
	}
	if diff := cmp.Diff(want, span.Attributes().AsRaw()); diff != "" {
		t.Error(diff)
	}
	event := span.Events().At(0)
	if diff := cmp.Diff(map[string]any{"n": int64(9007199254740993)}, event.Attributes().AsRaw()); diff != "" ||
		event.Name() != "hit" || event.Timestamp() != 7000 {
		t.Error(event.Name(), event.Timestamp(), diff)
	}
	if span.Links().Len() != 1 || span.Links().At(0).SpanID() != [8]byte{7: 4} ||
		span.Kind() != ptrace.SpanKindClient || span.Status().Message() != "no" {
		t.Error("links, kind or status are lost")
	}
}

// JSON rejects other documents.
func TestErrors(t *testing.T) {
	for _, data := range []string{``, `{`, `{"spans":7}`, `{"spanID":"1","traceID":"2"}`, `[{"spans":[{"tags":7}]}]`} {
		if _, err := translate.JSON([]byte(data)); err == nil {
			t.Errorf("%s: no error", data)
		}
	}
}

// Any input gives an error or a valid request, but no panic.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(odd))
	f.Add([]byte(`[{"spans":[{"startTime":"1e3","duration":1e300,"logs":[{"timestamp":-1}],
		"tags":[{"key":"x","type":"int64","value":"1e400"}]}]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		traces, err := translate.JSON(data)
		if err != nil {
			return
		}
		n := traces.SpanCount()
		body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
		if err != nil {
			t.Fatal(err)
		}
		var b ingest.Batch
		if err := otlp.NewDecoder(&trace.Table{}, ingest.AllKeys()).Protobuf(body, &b); err != nil ||
			len(b.Spans)+b.RejectedSpans() != n {
			t.Fatalf("%d spans became %d and %d rejected: %v", n, len(b.Spans), b.RejectedSpans(), err)
		}
	})
}
