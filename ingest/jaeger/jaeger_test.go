package jaeger_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/jaeger"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// decode returns the spans of data as text, and the rejections.
func decode(t testing.TB, data string) (string, []ingest.Rejection) {
	t.Helper()
	keys, err := ingest.NewKeys("http.route", "version", "size")
	if err != nil {
		t.Fatal(err)
	}
	table := &trace.Table{}
	var b ingest.Batch
	if err := jaeger.NewDecoder(table, keys).JSON([]byte(data), &b); err != nil {
		t.Fatal(err)
	}
	return tracetext.Format(&trace.Trace{Spans: b.Spans, Attrs: b.Attrs, Joins: b.Joins}, table), b.Rejected
}

const processes = `"processes":{
	"p1":{"serviceName":"shop","tags":[{"key":"hostname","type":"string","value":"a"},
		{"key":"ip","type":"string","value":"127.0.0.1"},{"key":"version","type":"string","value":"v7"}]},
	"p2":{"serviceName":"cart","tags":[{"key":"host.id","type":"string","value":"b"}]}}`

// A span in Jaeger's JSON becomes the span that OTLP would have sent.
func TestSpans(t *testing.T) {
	tests := []struct{ name, spans, want string }{
		{
			"references", `
			{"traceID":"1","spanID":"a","operationName":"GET /","startTime":1,"duration":9,"processID":"p1","tags":[
				{"key":"span.kind","type":"string","value":"server"},{"key":"http.route","type":"string","value":"/"}]},
			{"traceID":"1","spanID":"b","operationName":"get","startTime":"2","duration":3.0,"processID":"p2",
				"references":[{"refType":"CHILD_OF","traceID":"1","spanID":"a","span":{"x":[{}]}}],
				"logs":[{"timestamp":1,"fields":[]}],"warnings":["w"],"tags":[
				{"key":"error","type":"bool","value":true},{"key":"size","type":"int64","value":"12"}]}`,
			"a shop \"GET /\" server 1000..10000 host=a http.route=/ version=v7\n" +
				"  b cart get unspecified 2000..5000 host=b error size=12\n",
		},
		{
			"parent before child reference", `
			{"traceID":"1","spanID":"c","operationName":"x","references":[
				{"refType":"FOLLOWS_FROM","traceID":"1","spanID":"8"},
				{"refType":"CHILD_OF","traceID":"2","spanID":"9"},{"refType":"CHILD_OF","traceID":"0001","spanID":"7"}],
				"tags":[{"key":"sibyl.join","type":"bool","value":true}]}`,
			"c \"\" x unspecified 0..0 parent=7 join=8\n",
		},
		{
			"follows", `{"traceID":"1","spanID":"c","operationName":"x",
				"references":[{"refType":"FOLLOWS_FROM","traceID":"1","spanID":"8"}]}`,
			"c \"\" x unspecified 0..0 parent=8\n",
		},
		{
			"message of another trace", `{"traceID":"1","spanID":"c","operationName":"x",
				"references":[{"refType":"FOLLOWS_FROM","traceID":"2","spanID":"8"}],
				"tags":[{"key":"span.kind","type":"string","value":"consumer"}]}`,
			fmt.Sprintf("c \"\" x consumer 0..0 link=%x\n", uint64(trace.MessageID(trace.ID{15: 2}, 8))),
		},
		{
			"legacy parent", `{"traceID":"1","spanID":"c","operationName":"x","parentSpanID":"00000000000000ff"}`,
			"c \"\" x unspecified 0..0 parent=ff\n",
		},
		{
			"inline process", `
			{"traceID":"1","spanID":"c","operationName":"x","process":{"serviceName":"own","tags":null}},
			{"traceID":"1","spanID":"d","operationName":"x","processID":"p2","process":null}`,
			"c own x unspecified 0..0\nd cart x unspecified 0..0 host=b\n",
		},
		{
			"tracepoint", `{"traceID":"1","spanID":"c","operationName":"GET /user/123","tags":[
			{"key":"sibyl.tracepoint.id","type":"string","value":"tp-1"},{"key":"sibyl.plan","type":"int64","value":3},
			{"key":"otel.status_code","type":"string","value":"ERROR"},{"key":"size","type":"binary","value":"AAAA"}]}`,
			"c \"\" \"GET /user/{}\" unspecified 0..0 tp=tp-1 error sibyl.plan=3\n",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, form := range []string{
				`{"traceID":"1",` + processes + `,"spans":[%s]}`,
				`{"traceID":"1","spans":[%s],` + processes + `}`,
				`[{"spans":[%s],` + processes + `}]`,
				`{"data":[{"spans":[%s],` + processes + `}],"total":0,"errors":null}`,
			} {
				got, rejected := decode(t, fmt.Sprintf(form, test.spans))
				if diff := cmp.Diff(test.want, got); diff != "" || len(rejected) != 0 {
					t.Errorf("%s: rejected %v\n%s", form[:20], rejected, diff)
				}
			}
		})
	}
}

// The version of a service comes from the tags of its process, regardless of their order.
func TestVersions(t *testing.T) {
	var b ingest.Batch
	table := &trace.Table{}
	err := jaeger.NewDecoder(table, ingest.AllKeys()).JSON([]byte(`{"spans":[],"processes":{
		"p1":{"serviceName":"shop","tags":[{"key":"service.version","type":"string","value":"2"}]},
		"p2":{"tags":[{"key":"service.version","type":"string","value":"3"}],"serviceName":"cart"},
		"p3":{"serviceName":"mail","tags":[]}}}`), &b)
	var got []string
	for _, v := range b.Versions {
		got = append(got, table.Text(v.Service)+" "+table.Text(v.Version))
	}
	if want := []string{"shop 2", "cart 3"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// An invalid span is counted with its reason and doesn't affect others.
func TestRejected(t *testing.T) {
	tests := map[string]trace.Reason{
		`"traceID":"xyz","spanID":"1"`:                                         trace.BadTraceID,
		`"traceID":"","spanID":"1"`:                                            trace.BadTraceID,
		`"traceID":"` + strings.Repeat("1", 33) + `","spanID":"1"`:             trace.BadTraceID,
		`"traceID":"1"`:                                                        trace.BadSpanID,
		`"traceID":"1","spanID":"0"`:                                           trace.BadSpanID,
		`"traceID":"1","spanID":"12345678901234567"`:                           trace.BadSpanID,
		`"traceID":"1","spanID":"1","parentSpanID":"?"`:                        trace.BadSpanID,
		`"traceID":"1","spanID":"1","startTime":-1`:                            trace.BadTime,
		`"traceID":"1","spanID":"1","startTime":9e18`:                          trace.BadTime,
		`"traceID":"1","spanID":"1","startTime":9000000000000000,"duration":1`: trace.BadTime,
		`"traceID":"1","spanID":"1","startTime":5,"duration":-6`:               trace.BadTime,
		`"traceID":"1","spanID":"1","duration":"soon"`:                         trace.BadTime,
	}
	for span, want := range tests {
		got, rejected := decode(t, `{"spans":[{`+span+`},{"traceID":"1","spanID":"9","operationName":"x"}]}`)
		if len(rejected) != 1 || rejected[0].Reason != want || rejected[0].Spans != 1 || rejected[0].Detail == "" ||
			len(rejected[0].Detail) > 200 {
			t.Errorf("%.60s: rejected %+v, want %s", span, rejected, want)
		}
		if got != "9 \"\" x unspecified 0..0\n" {
			t.Errorf("%.60s: left %q", span, got)
		}
	}
}

// A span that ends before it starts, because a clock was set back, is kept as in OTLP.
func TestNegativeDuration(t *testing.T) {
	got, rejected := decode(t,
		`{"spans":[{"traceID":"1","spanID":"1","operationName":"x","startTime":1000,"duration":-300}]}`)
	if want := "1 \"\" x unspecified 1000000..700000\n"; got != want || len(rejected) != 0 {
		t.Errorf("%q, rejected %v, want %q", got, rejected, want)
	}
}

// Any input gives an error and no spans, or valid spans, but no panic.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"data":[{"traceID":"1",
		"spans":[{"traceID":"1","spanID":"a","operationName":"x","startTime":1,"duration":2,"processID":"p1",
			"references":[{"refType":"CHILD_OF","traceID":"1","spanID":"b"}],
			"tags":[{"key":"error","type":"bool","value":true}]}],` + processes + `}]}`))
	f.Add([]byte(`[{"spans":[{}]}]`))
	f.Add([]byte(`{"spans":[{"traceID":"1","spanID":"\u0031","startTime":"1e3"}],"processes":{"p":null}}`))
	f.Add([]byte(`{"data":[{"data":[]}]} x`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := ingest.Batch{Traces: []trace.ID{{1}}, Spans: []trace.Span{{ID: 1}}}
		if err := jaeger.NewDecoder(&trace.Table{}, ingest.AllKeys()).JSON(data, &b); err != nil {
			if len(b.Spans) != 1 || len(b.Traces) != 1 || len(b.Attrs)+len(b.Joins)+len(b.Rejected) != 0 {
				t.Fatalf("error %v, but the batch holds %+v", err, b)
			}
			return
		}
		for i, s := range b.Spans {
			if s.ID == 0 || b.Traces[i].IsZero() || min(s.Start, s.End) < 0 || max(s.Start, s.End) > trace.MaxNanos {
				t.Fatalf("span %+v of trace %s", s, b.Traces[i])
			}
		}
		for _, a := range b.Attrs {
			if int(a.Span) >= len(b.Spans) {
				t.Fatalf("attribute %+v of %d spans", a, len(b.Spans))
			}
		}
	})
}
