package zipkin_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/ingest/zipkin"
	"github.com/sibyl-trace/sibyl/trace"
)

// translate returns the spans in data as OTLP, one line of JSON for each resource.
func translate(t *testing.T, data string) (resources []string, rejected []ingest.Rejection) {
	t.Helper()
	request, rejected, err := zipkin.Translate([]byte(data))
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	traces, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(request)
	if err != nil {
		t.Fatalf("%s became %x: %v", data, request, err)
	}
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	var document struct{ ResourceSpans []json.RawMessage }
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	for _, r := range document.ResourceSpans {
		resources = append(resources, string(r))
	}
	return resources, rejected
}

const (
	ids   = `"traceId":"1","id":"2"`
	plain = `"traceId":"00000000000000000000000000000001","spanId":"0000000000000002"`
	times = `"startTimeUnixNano":"5000","endTimeUnixNano":"8000"`
)

// Each part of a Zipkin span has its place in OTLP.
func TestTranslate(t *testing.T) {
	span := func(resource, fields string) string {
		return `{"resource":{` + resource + `},"scopeSpans":[{"scope":{},"spans":[{` + fields + `}]}]}`
	}
	attributes := func(pairs ...string) string {
		var all []string
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, `{"key":"`+pairs[i]+`","value":{"stringValue":"`+pairs[i+1]+`"}}`)
		}
		return `"attributes":[` + strings.Join(all, ",") + `]`
	}
	text := func(fields ...string) string { return strings.Join(fields, ",") }
	internal := func(fields string) string {
		return span("", text(plain, `"kind":1`, times, fields, `"status":{}`))
	}
	const ended = `"timestamp":5,"duration":3`
	tests := map[string]struct{ in, want string }{
		"no kind": {text(ids, ended), span("", text(plain, `"kind":1`, times, `"status":{}`))},
		"client": {
			text(ids, ended, `"parentId":"3","name":"get /","kind":"CLIENT",
				"localEndpoint":{"serviceName":"web","ipv4":"10.0.0.1","port":3999},
				"remoteEndpoint":{"serviceName":"api","ipv6":"2001:db8::1","port":80}`),
			span(attributes("service.name", "web", "host.ip", "10.0.0.1"),
				text(plain, `"parentSpanId":"0000000000000003","name":"get /","kind":3`, times,
					attributes("peer.service", "api", "server.address", "2001:db8::1", "server.port", "80"),
					`"status":{}`)),
		},
		"shared server": {
			text(ids, ended, `"kind":"SERVER","shared":true,"debug":true,
				"localEndpoint":{"serviceName":"api","port":8080},"remoteEndpoint":{"ipv4":"10.0.0.9","port":0}`),
			span(attributes("service.name", "api"),
				text(plain, `"kind":2`, times,
					attributes("client.address", "10.0.0.9", "server.port", "8080"), `"status":{}`)),
		},
		"kind of a tag": {
			text(ids, ended, `"tags":{"span.kind":"consumer"}`),
			span("", text(plain, `"kind":5`, times, attributes("span.kind", "consumer"), `"status":{}`)),
		},
		"tag over endpoint": {
			text(ids, ended,
				`"kind":"PRODUCER","tags":{"peer.service":"orders"},"remoteEndpoint":{"serviceName":"kafka"}`),
			span("", text(plain, `"kind":4`, times, attributes("peer.service", "orders"), `"status":{}`)),
		},
		"status code": {
			text(ids, ended, `"tags":{"http.status_code":"503","sql.rows":"7","flag":true,"none":null}`),
			internal(`"attributes":[{"key":"http.status_code","value":{"intValue":"503"}},` +
				`{"key":"sql.rows","value":{"stringValue":"7"}},{"key":"flag","value":{"stringValue":"true"}},` +
				`{"key":"none","value":{"stringValue":""}}]`),
		},
		"error":         {text(ids, ended, `"tags":{"error":"timed out"}`), internal(attributes("error", "timed out"))},
		"empty error":   {text(ids, ended, `"tags":{"error":""}`), internal(attributes("error", "true"))},
		"error is true": {text(ids, ended, `"tags":{"error":true}`), internal(attributes("error", "true"))},
		"no error":      {text(ids, ended, `"tags":{"error":"false"}`), internal(attributes("error", "false"))},
		"status": {
			text(ids, ended, `"tags":{"otel.status_code":"ERROR","otel.status_description":"late","error":"late"}`),
			span("", text(plain, `"kind":1`, times,
				attributes("otel.status_code", "ERROR", "otel.status_description", "late", "error", "late"),
				`"status":{"message":"late","code":2}`)),
		},
		"annotations": {
			text(ids, ended, `"annotations":[{"timestamp":6,"value":"retry"},{"value":"no time"},7]`),
			internal(`"events":[{"timeUnixNano":"6000","name":"retry"}]`),
		},
		"time of an annotation": {
			text(ids, `"annotations":[{"timestamp":5,"value":"x"}],"duration":3`),
			internal(`"events":[{"timeUnixNano":"5000","name":"x"}]`),
		},
		"clock set back": {
			text(ids, `"timestamp":8,"duration":-3`),
			span("", text(plain, `"kind":1`, `"startTimeUnixNano":"8000","endTimeUnixNano":"5000"`, `"status":{}`)),
		},
		"long ids": {
			text(ended, `"traceId":"463AC35C9F6413AD48485A3953BB6124","id":"00000000000000000000000000000002"`),
			span("", text(`"traceId":"463ac35c9f6413ad48485a3953bb6124","spanId":"0000000000000002","kind":1`,
				times, `"status":{}`)),
		},
	}
	for name, test := range tests {
		for form, data := range map[string]string{
			"list":   "[{" + test.in + "}]",
			"traces": "[[{" + test.in + "}]]", "span": "{" + test.in + "}",
		} {
			got, rejected := translate(t, data)
			if len(rejected) > 0 || len(got) != 1 {
				t.Fatalf("%s, %s: %q, rejected %+v", name, form, got, rejected)
			}
			if diff := cmp.Diff(object(t, test.want), object(t, got[0])); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s\n%s", name, form, diff, got[0])
			}
		}
	}
}

// object returns the JSON object in text without empty fields, because pdata omits them inconsistently.
func object(t *testing.T, text string) any {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return withoutEmpty(v)
}

func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if value = withoutEmpty(value); value == nil || value == "" && key != "stringValue" {
				delete(v, key)
			} else {
				v[key] = value
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			v[i] = withoutEmpty(v[i])
		}
	}
	return v
}

// Consecutive spans of one endpoint share a resource.
func TestResources(t *testing.T) {
	of := func(service, id string) string {
		return `{"traceId":"1","id":"` + id + `","timestamp":1,"localEndpoint":{"serviceName":"` + service + `"}}`
	}
	got, _ := translate(t, "["+strings.Join([]string{of("a", "1"), of("a", "2"), of("b", "3"), of("a", "4")}, ",")+"]")
	for i, want := range []int{2, 1, 1} {
		if len(got) != 3 || strings.Count(got[i], "spanId") != want {
			t.Fatalf("%d resources, the one at %d is %q, want %d spans", len(got), i, got, want)
		}
	}
	if got, rejected := translate(t, "[]"); len(got)+len(rejected) > 0 {
		t.Errorf("an empty list became %q, rejected %+v", got, rejected)
	}
}

// An invalid span is omitted and counted, and doesn't affect others.
func TestRejected(t *testing.T) {
	const (
		number = "timestamp or duration of span 0000000000000002 is negative, too large, or not a number"
		ends   = "span 0000000000000002 ends outside of the years 1970 to 2262"
	)
	for span, want := range map[string]struct {
		reason trace.Reason
		detail string
	}{
		`"id":"1","timestamp":1`:               {trace.BadTraceID, "traceId is missing"},
		`"traceId":"0","id":"1","timestamp":1`: {trace.BadTraceID, "traceId is zero"},
		`"traceId":"-","id":"1","timestamp":1`: {trace.BadTraceID, `traceId "-": want at most 32 hexadecimal digits`},
		`"traceId":"1","timestamp":1`:          {trace.BadSpanID, "id is missing"},
		`"traceId":"1","id":"10000000000000000","timestamp":1`: {
			trace.BadSpanID, `id "10000000000000000": want at most 16 hexadecimal digits`,
		},
		ids + `,"parentId":"?","timestamp":1`: {trace.BadSpanID, `parentId "?": want at most 16 hexadecimal digits`},
		ids:                                   {trace.BadTime, "span 0000000000000002 has no timestamp"},
		ids + `,"timestamp":-1`:               {trace.BadTime, number},
		ids + `,"timestamp":1e300`:            {trace.BadTime, number},
		ids + `,"timestamp":"now"`:            {trace.BadTime, number},
		ids + `,"timestamp":9000000000000000,"duration":300000000000000`: {trace.BadTime, ends},
		ids + `,"timestamp":1,"duration":-2`:                             {trace.BadTime, ends},
	} {
		got, rejected := translate(t, `[{`+span+
			`},{"traceId":"1","id":"9","timestamp":1,"localEndpoint":7,"tags":[],"annotations":{},"name":{}}]`)
		reported := []ingest.Rejection{{Reason: want.reason, Spans: 1, Detail: want.detail}}
		if diff := cmp.Diff(reported, rejected); diff != "" ||
			len(got) != 1 || !strings.Contains(got[0], "0000000000000009") {
			t.Errorf("%s: %q (-want +got):\n%s", span, got, diff)
		}
	}
}

// Other documents give an error that describes them.
func TestMalformed(t *testing.T) {
	for data, want := range map[string]string{
		`[{"traceId":"1","id":"2","binaryAnnotations":[]}]`: "version 1 of Zipkin's JSON",
		`[{"traceId":"1","spanId":"2"}]`:                    "outside of resourceSpans",
		`[{"traceId":"1"`:                                   "unexpected EOF",
		`{"resourceSpans":[]}`:                              "neither traceId nor id",
		`[7]`:                                               "unexpected byte",
		`[[[{}]]]`:                                          "unexpected byte",
		`x`:                                                 "unexpected byte",
		`[]]`:                                               "bytes after the end",
	} {
		request, rejected, err := zipkin.Translate([]byte(data))
		if _, ok := errors.AsType[*ingest.RecordError](err); !ok ||
			!strings.Contains(err.Error(), want) || request != nil || rejected != nil {
			t.Errorf("%s: %x, %+v, error %v, want %q", data, request, rejected, err, want)
		}
	}
}

// A server that continues the span of its client is below it on the critical path, and its own calls are below the
// server.
func TestSharedSpans(t *testing.T) {
	const data = `[
		{"traceId":"a","id":"1","kind":"CLIENT","name":"get","timestamp":1000000,"duration":100000,
			"localEndpoint":{"serviceName":"web"}},
		{"traceId":"a","id":"1","kind":"SERVER","name":"get /cart","timestamp":1010000,"duration":80000,"shared":true,
			"localEndpoint":{"serviceName":"cart"}},
		{"traceId":"a","id":"2","parentId":"1","name":"price","timestamp":1020000,"duration":50000,
			"localEndpoint":{"serviceName":"cart"}}]`
	request, _, err := zipkin.Translate([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	names := &trace.Table{}
	spans, err := otlp.DecodeNamedTrace(trace.ID{15: 10}, request, names, ingest.AllFailureRules)
	if err != nil {
		t.Fatal(err)
	}
	p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(spans)
	if !p.Complete() || len(p.Roots) != 1 {
		t.Fatalf("%+v", p)
	}
	own := make(map[string]trace.Nanos)
	for _, s := range p.Roots[0].Sections {
		own[names.OpName(spans.Spans[p.Nodes[s.Node].Span].Op)] += s.End - s.Start
	}
	want := map[string]trace.Nanos{"get": 20e6, "get /cart": 30e6, "price": 50e6}
	if diff := cmp.Diff(want, own); diff != "" {
		t.Errorf("own times (-want +got):\n%s", diff)
	}
}

// Any input gives an error without a request, or a request of limited size with as many spans as the input, except for
// rejected ones.
func FuzzTranslate(f *testing.F) {
	f.Add([]byte(`[{"traceId":"1","id":"2","parentId":"0","name":"x","kind":"CLIENT","timestamp":1,"duration":"2",
		"tags":{"error":"","a\n":1},"annotations":[{"timestamp":3,"value":"v"}],
		"localEndpoint":{"serviceName":"a","ipv4":"1","port":2},"remoteEndpoint":{"ipv6":"3"}},
		{"traceId":"x","id":"1"}]`))
	f.Add([]byte(`[[{"id":"1"}],[],{"traceId":"1","binaryAnnotations":null}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		request, rejected, err := zipkin.Translate(data)
		if err != nil {
			if request != nil || rejected != nil {
				t.Fatalf("error %v with a result", err)
			}
			return
		}
		if len(request) > 4*len(data)+256 {
			t.Fatalf("%d bytes became %d", len(data), len(request))
		}
		var b ingest.Batch
		if err := otlp.NewDecoder(&trace.Table{}, ingest.AllKeys()).Protobuf(request, &b); err != nil ||
			len(b.Rejected) > 0 {
			t.Fatalf("%q became %x: error %v, rejected %+v", data, request, err, b.Rejected)
		}
	})
}

// A document with more tags than its size allows is refused, as one with too many spans is. Short tags are allowed.
func TestManyTags(t *testing.T) {
	const head = `{"traceId":"1","id":"2","timestamp":1,"duration":1,"tags":{`
	_, _, err := zipkin.Translate([]byte(head + strings.Repeat(`"a":"",`, 20_000) + `"b":""}}`))
	failed, _ := errors.AsType[*ingest.RecordError](err)
	if failed == nil || failed.Reason != trace.TooLarge || !errors.Is(err, ingest.ErrRecords) {
		t.Errorf("20,001 tags: error %v", err)
	}
	few := head + strings.Repeat(`"a":"",`, 4) + `"b":""}}`
	if _, _, err := zipkin.Translate([]byte("[" + strings.Repeat(few+",", 8191) + few + "]")); err != nil {
		t.Errorf("8,192 spans with five tags each: %v", err)
	}
}
