package file_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/file"
)

// outcome is a span with its signs of failure, and the name of the rule by which it failed, or "".
type outcome struct {
	name   string
	kind   ptrace.SpanKind
	status ptrace.StatusCode
	attrs  map[string]any
	event  map[string]any // attributes of an exception; nil without an event
	want   string
}

const (
	server   = ptrace.SpanKindServer
	client   = ptrace.SpanKindClient
	internal = ptrace.SpanKindInternal
	consumer = ptrace.SpanKindConsumer
	unset    = ptrace.StatusCodeUnset
	okay     = ptrace.StatusCodeOk
)

type values = map[string]any

var outcomes = []outcome{
	{"nothing", server, unset, nil, nil, ""},
	{"status", internal, ptrace.StatusCodeError, nil, nil, "status"},
	{"status before code", server, ptrace.StatusCodeError, values{"http.response.status_code": 500}, nil, "status"},
	{
		"explicit OK", server, okay,
		values{"http.status_code": 503, "error": true, "error.type": "x"},
		values{"exception.escaped": true},
		"",
	},
	{"server 503", server, unset, values{"http.response.status_code": 503}, nil, "http"},
	{"server 503 as text", server, unset, values{"http.status_code": "503"}, nil, "http"},
	{"server 404", server, unset, values{"http.response.status_code": 404}, nil, ""},
	{
		"server 404 with its copies", server, unset,
		values{"http.status_code": "404", "error": "404", "error.type": "404"},
		nil, "",
	},
	{"server 404 by copy only", server, unset, values{"error": "404"}, nil, ""},
	{
		"server 404 by exception", server, unset,
		values{"http.response.status_code": 404},
		values{"exception.escaped": true},
		"",
	},
	{"client 404", client, unset, values{"http.response.status_code": 404}, nil, "http"},
	{"client 404 that was expected", client, okay, values{"http.response.status_code": 404}, nil, ""},
	{"client 302", client, unset, values{"http.response.status_code": 302}, nil, ""},
	{"no code", client, unset, values{"http.status_code": 0}, nil, ""},
	{"server NOT_FOUND", server, unset, values{"rpc.grpc.status_code": 5}, nil, ""},
	{"server UNAVAILABLE", server, unset, values{"rpc.grpc.status_code": 14}, nil, "grpc"},
	{"server by name", server, unset, values{"rpc.response.status_code": "DEADLINE_EXCEEDED"}, nil, "grpc"},
	{
		"server by number in text", server, unset,
		values{"grpc.status_code": "13", "http.status_code": "200"},
		nil, "grpc",
	},
	{"server by another style", server, unset, values{"rpc.connect_rpc.error_code": "data_loss"}, nil, "grpc"},
	{"another system", server, unset, values{"rpc.response.status_code": "SERVICE_TIMEOUT"}, nil, ""},
	{"client NOT_FOUND", client, unset, values{"rpc.grpc.status_code": 5}, nil, "grpc"},
	{
		"client CANCELLED", client, unset,
		values{"rpc.response.status_code": "CANCELLED", "error.type": "CANCELLED"},
		nil, "",
	},
	{"client OK", client, unset, values{"rpc.grpc.status_code": 0}, nil, ""},
	{"error.type", client, unset, values{"error.type": "java.net.SocketTimeoutException"}, nil, "error-type"},
	{
		"error.type with 200", server, unset,
		values{"http.response.status_code": 200, "error.type": "body"},
		nil, "error-type",
	},
	{"error as bool", internal, unset, values{"error": true}, nil, "error-tag"},
	{"error as text", internal, unset, values{"error": "true"}, nil, "error-tag"},
	{"error as message", client, unset, values{"error": "connection refused"}, nil, "error-tag"},
	{"error is false", client, unset, values{"error": "false"}, nil, ""},
	{"error is false as bool", client, unset, values{"error": false}, nil, ""},
	{"escaped", internal, unset, nil, values{"exception.escaped": true}, "exception"},
	{"escaped as text", internal, unset, nil, values{"exception.escaped": "True"}, "exception"},
	{
		"escaped with 200", server, unset,
		values{"http.status_code": 200},
		values{"exception.escaped": true},
		"exception",
	},
	{"handled", consumer, unset, nil, values{"exception.escaped": false}, ""},
	{"recorded in an entry", consumer, unset, nil, values{"exception.type": "x"}, "exception"},
	{"recorded below the entry", internal, unset, nil, values{"exception.type": "x"}, ""},
	{"recorded, answered well", server, unset, values{"http.status_code": 200}, values{"exception.type": "x"}, ""},
	{"status in an attribute", client, unset, values{"otel.status_code": "ERROR", "error": true}, nil, "status"},
	{"OK in an attribute", client, unset, values{"otel.status_code": "OK", "http.status_code": 404}, nil, ""},
}

func (o *outcome) otlp() ptrace.Traces {
	traces := ptrace.NewTraces()
	s := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{1})
	s.SetKind(o.kind)
	s.Status().SetCode(o.status)
	_ = s.Attributes().FromRaw(o.attrs)
	if o.event != nil {
		e := s.Events().AppendEmpty()
		e.SetName("exception")
		_ = e.Attributes().FromRaw(o.event)
	}
	return traces
}

// jaeger returns o as a collector exports it to Jaeger.
func (o *outcome) jaeger() []byte {
	type fields []map[string]any
	list := func(attrs values) (all fields) {
		for key, v := range attrs {
			kind := "string"
			switch v.(type) {
			case int:
				kind = "int64"
			case bool:
				kind = "bool"
			}
			all = append(all, map[string]any{"key": key, "type": kind, "value": v})
		}
		return all
	}
	tags := list(o.attrs)
	if o.kind != internal {
		kinds := map[ptrace.SpanKind]string{server: "server", client: "client", consumer: "consumer"}
		tags = append(tags, list(values{"span.kind": kinds[o.kind]})...)
	} else {
		tags = append(tags, list(values{"span.kind": "internal"})...)
	}
	if o.status != unset {
		tags = append(tags, list(values{"otel.status_code": map[ptrace.StatusCode]string{
			okay:                   "OK",
			ptrace.StatusCodeError: "ERROR",
		}[o.status]})...)
	}
	var logs []any
	if o.event != nil {
		logs = append(logs,
			map[string]any{"timestamp": 1, "fields": append(list(o.event), list(values{"event": "exception"})...)})
	}
	data, _ := json.Marshal(map[string]any{"data": []any{map[string]any{
		"traceID": "1", "processes": map[string]any{"p": map[string]any{"serviceName": "s"}},
		"spans": []any{map[string]any{
			"traceID": "1", "spanID": "1", "processID": "p", "startTime": 1, "duration": 1, "tags": tags, "logs": logs,
		}},
	}}})
	return data
}

// zipkin returns o as Brave reports it, or nil if o has a status or an event, because Brave's spans have only texts.
func (o *outcome) zipkin() []byte {
	if o.status != unset || o.event != nil {
		return nil
	}
	tags := make(map[string]string)
	for key, v := range o.attrs {
		tags[key] = fmt.Sprint(v)
	}
	span := map[string]any{"traceId": "1", "id": "1", "timestamp": 1, "duration": 1, "tags": tags}
	if o.kind != internal {
		span["kind"] = map[ptrace.SpanKind]string{server: "SERVER", client: "CLIENT", consumer: "CONSUMER"}[o.kind]
	}
	data, _ := json.Marshal([]any{span})
	return data
}

// A span fails by the same rule in all formats.
func TestFailures(t *testing.T) {
	for _, o := range outcomes {
		traces := o.otlp()
		for format, data := range map[string][]byte{
			"OTLP":      marshalProtobuf(traces),
			"OTLP/JSON": marshalJSON(traces), "Jaeger": o.jaeger(), "Zipkin": o.zipkin(),
		} {
			if data == nil {
				continue
			}
			if got := failedBy(t, data, ingest.AllFailureRules); got != o.want {
				t.Errorf("%s in %s: failed by %q, want %q", o.name, format, got, o.want)
			}
		}
	}
}

// A rule that isn't selected has no effect. The next rule that detects a failure counts.
func TestSelectedFailures(t *testing.T) {
	all := outcome{
		kind: server, status: ptrace.StatusCodeError, event: values{"exception.escaped": true},
		attrs: values{"http.status_code": 500, "rpc.grpc.status_code": 13, "error.type": "x", "error": true},
	}
	names := ingest.FailureRuleNames()
	for i := range names {
		rules, err := ingest.NewFailureRules(names[i:]...)
		if err != nil {
			t.Fatal(err)
		}
		if got := failedBy(t, marshalProtobuf(all.otlp()), rules); got != names[i] {
			t.Errorf("failed by %q with the rules %v", got, names[i:])
		}
	}
	if got := failedBy(t, marshalProtobuf(all.otlp()), 0); got != "" {
		t.Errorf("failed by %q without rules", got)
	}
	if _, err := ingest.NewFailureRules("http", "odd"); err == nil {
		t.Error("a rule of an unknown name is accepted")
	}
}

// failedBy decodes a file with one span and returns the name of the rule by which it failed.
func failedBy(t *testing.T, data []byte, rules ingest.FailureRules) string {
	t.Helper()
	keys, err := ingest.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	in, err := file.Read(t.Context(), []string{write(t, t.TempDir(), "spans", data)},
		file.Options{Keys: keys.FailingBy(rules)})
	if err != nil {
		t.Fatal(err)
	}
	for tr, err := range in.All() {
		if err != nil || len(tr.Spans) != 1 {
			t.Fatal(fmt.Sprint(len(tr.Spans)), err)
		}
		rule, failed := tr.Spans[0].Flags.FailedBy()
		if !failed {
			return ""
		}
		return rule.String()
	}
	t.Fatal("no trace")
	return ""
}
