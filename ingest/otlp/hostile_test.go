package otlp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// oneBad returns a request with two spans, after change has made the first one invalid.
func oneBad(change func(ptrace.ResourceSpans, ptrace.Span)) ptrace.Traces {
	traces := ptrace.NewTraces()
	rs := traces.ResourceSpans().AppendEmpty()
	for i := range 2 {
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{byte(i + 1)})
		s.SetStartTimestamp(1)
		s.SetEndTimestamp(2)
		if i == 0 {
			change(rs, s)
		}
	}
	return traces
}

// An invalid span is counted with its reason and doesn't affect others, in both encodings.
func TestRejected(t *testing.T) {
	tests := []struct {
		name     string
		change   func(ptrace.ResourceSpans, ptrace.Span)
		want     trace.Reason
		rejected int
	}{
		{
			"trace id",
			func(_ ptrace.ResourceSpans, s ptrace.Span) { s.SetTraceID(pcommon.TraceID{}) },
			trace.BadTraceID,
			1,
		},
		{"span id", func(_ ptrace.ResourceSpans, s ptrace.Span) { s.SetSpanID(pcommon.SpanID{}) }, trace.BadSpanID, 1},
		{
			"start in 2262",
			func(_ ptrace.ResourceSpans, s ptrace.Span) { s.SetStartTimestamp(1<<63 - 1) },
			trace.BadTime,
			1,
		},
		{
			"end before 1970",
			func(_ ptrace.ResourceSpans, s ptrace.Span) { s.SetEndTimestamp(1<<64 - 1) },
			trace.BadTime,
			1,
		},
		{"start in year 1", func(_ ptrace.ResourceSpans, s ptrace.Span) {
			s.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Time{}))
		}, trace.BadTime, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			traces := oneBad(test.change)
			wire, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
			text, _ := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
			d := otlp.NewDecoder(&trace.Table{}, wanted(t))
			for encoding, decode := range map[string]func(*ingest.Batch) error{
				"protobuf": func(b *ingest.Batch) error { return d.Protobuf(wire, b) },
				"JSON":     func(b *ingest.Batch) error { return d.JSON(text, b) },
			} {
				var b ingest.Batch
				if err := decode(&b); err != nil {
					t.Fatalf("%s: %v", encoding, err)
				}
				if len(b.Spans) != 2-test.rejected || len(b.Rejected) != 1 || b.Rejected[0].Reason != test.want ||
					b.RejectedSpans() != test.rejected {
					t.Fatalf("%s: %d spans, rejected %+v, want %d for %s",
						encoding, len(b.Spans), b.Rejected, test.rejected, test.want)
				}
				if n := len(b.Rejected[0].Detail); n == 0 || n > 200 {
					t.Errorf("%s: detail of %d bytes", encoding, n)
				}
			}
		})
	}
}

// The decoder accepts times of 0 and ends before starts; their interpretation is up to the analysis.
func TestOddTimes(t *testing.T) {
	wire, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(oneBad(func(_ ptrace.ResourceSpans, s ptrace.Span) {
		s.SetStartTimestamp(pcommon.Timestamp(trace.MaxNanos))
		s.SetEndTimestamp(0)
	}))
	var b ingest.Batch
	err := otlp.NewDecoder(&trace.Table{}, wanted(t)).Protobuf(wire, &b)
	if err != nil || len(b.Spans) != 2 || b.Spans[0].Start != trace.MaxNanos {
		t.Errorf("error %v, spans %+v", err, b.Spans)
	}
}

// Malformed identifiers and times in JSON only reject their span.
func TestRejectedJSON(t *testing.T) {
	const good = `"traceId":"01000000000000000000000000000000","spanId":"0100000000000000"`
	for span, want := range map[string]trace.Reason{
		`"traceId":"0100","spanId":"0100000000000000"`:                             trace.BadTraceID,
		`"traceId":"0100000000000000000000000000000x","spanId":"0100000000000000"`: trace.BadTraceID,
		`"traceId":"0123456789abcdef","spanId":"0100000000000000"`:                 trace.BadTraceID, // 16 digits
		`"spanId":"0100000000000000"`:                                              trace.BadTraceID,
		`"traceId":"01000000000000000000000000000000","spanId":"abcdefgh"`:         trace.BadSpanID,
		`"traceId":"01000000000000000000000000000000"`:                             trace.BadSpanID,
		good + `,"parentSpanId":"1"`:                                               trace.BadSpanID,
		good + `,"startTimeUnixNano":""`:                                           trace.BadTime,
		good + `,"startTimeUnixNano":"-1"`:                                         trace.BadTime,
		good + `,"startTimeUnixNano":-1`:                                           trace.BadTime,
		good + `,"endTimeUnixNano":1.5`:                                            trace.BadTime,
		good + `,"endTimeUnixNano":"99999999999999999999"`:                         trace.BadTime,
		good + `,"endTimeUnixNano":99999999999999999999999`:                        trace.BadTime,
		good + `,"startTimeUnixNano":"0001-01-01T00:00:00Z"`:                       trace.BadTime,
	} {
		data := `{"resourceSpans":[{"scopeSpans":[{"spans":[{` + span + `},{` + good + `}]}]}]}`
		var b ingest.Batch
		if err := otlp.NewDecoder(&trace.Table{}, wanted(t)).JSON([]byte(data), &b); err != nil {
			t.Errorf("%s: %v", span, err)
			continue
		}
		if len(b.Spans) != 1 || len(b.Rejected) != 1 || b.Rejected[0].Reason != want {
			t.Errorf("%s: %d spans, rejected %+v, want %s", span, len(b.Spans), b.Rejected, want)
		}
	}
}

// The detail of a rejected span names its defect, even if there are several.
func TestDetails(t *testing.T) {
	const want32 = "want 32 hexadecimal digits, or the base64 of 16 bytes"
	const badTime = "a time of span 0100000000000000 is negative, too large, fractional, or not a number"
	for span, want := range map[string]string{
		`"traceId":"0100","spanId":"01"`:                   `trace id "0100": ` + want32,
		`"traceId":"F+XTKM0Z5gz9f8pFKHWG1A=","spanId":"1"`: `trace id "F+XTKM0Z5gz9f8pFKHWG1A=": ` + want32,
		goodIDs + `,"startTimeUnixNano":"1.76e-3"`:         badTime,
		`"traceId":"00000000000000000000000000000000"`:     "trace id is all zero",

		goodIDs + `,"parentSpanId":"x"`: `parent span id "x": want 16 hexadecimal digits, or the base64 of 8 bytes`,
	} {
		var b ingest.Batch
		err := otlp.NewDecoder(&trace.Table{}, wanted(t)).JSON(requestJSON(span), &b)
		if err != nil || len(b.Rejected) != 1 || b.Rejected[0].Detail != want {
			t.Errorf("%s: error %v, rejected %+v, want %q", span, err, b.Rejected, want)
		}
	}
}

const goodIDs = `"traceId":"01000000000000000000000000000000","spanId":"0100000000000000"`

// requestJSON returns a request with one span, which has the given fields.
func requestJSON(span string) []byte {
	return []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{` + span + `}]}]}]}`)
}

// A list with an unknown name in place of the spans is an error that contains the name. Next to a known name it is
// ignored.
func TestUnknownNames(t *testing.T) {
	const spans = `"scopeSpans":[{"spans":[{` + goodIDs + `}]}]`
	unknown := func(name, names string) string {
		return fmt.Sprintf("unknown field %q, want %s: is this OTLP/JSON?", name, names)
	}
	for data, want := range map[string]string{
		`{"resourceLogs":[{}]}`: unknown("resourceLogs", "resourceSpans, batches"),
		`{"a":1}`:               unknown("a", "resourceSpans, batches"),
		`{"resourceSpans":[{"resource":{},"scopespans":[]}]}`: unknown(
			"scopespans", "scopeSpans, instrumentationLibrarySpans"),
		`{"resourceSpans":[{"scopeSpans":[{"Spans":[]}]}]}`: unknown("Spans", "spans"),

		`{}`:                     "",
		`{"result":{}}`:          "",
		`{"resourceSpans":[{}]}`: "",
		`{"x":[],"resourceSpans":[{"y":[],` + spans + `}]}`:    "",
		`{"resourceSpans":[{"schemaUrl":"","resource":null}]}`: "",
	} {
		var b ingest.Batch
		err := otlp.NewDecoder(&trace.Table{}, wanted(t)).JSON([]byte(data), &b)
		got, ok := errors.AsType[*otlp.UnknownError](err)
		if err == nil && want != "" || err != nil && (!ok || got.Error() != want) {
			t.Errorf("%s: error %v, want %q", data, err, want)
		}
		if _, err := otlp.FromJSON([]byte(data)); err != nil && want == "" {
			t.Errorf("%s: FromJSON: %v", data, err)
		}
	}
}

// Malformed requests give an error with the position and add nothing.
func TestMalformedJSON(t *testing.T) {
	deep := string(bytes.Repeat([]byte(`{"arrayValue":{"values":[`), 1<<16))
	const span = `{"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{},"spans":[{`
	for data, offset := range map[string]int64{
		``:                                   -1,
		`[]`:                                 -1,
		`{"resourceSpans":{}}`:               2,
		`{"resourceSpans":[{}]}x`:            2,
		`{"resourceSpans":[{}]}{}`:           2,
		`{"resourceSpans":[{"resource":5`:    20,
		span + `"name":5}]}]}]}`:             70,
		span + `"kind":"SPAN_KIND_X"}]}]}]}`: 70,
		span + `"flags":-1}]}]}]}`:           70,
		span + `"flags":""}]}]}]}`:           70,
		`{"resourceSpans":[{"resource":{},"resource":{}}]}`:                                  34,
		`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":` + deep: -2,
		span + `"attributes":[{"key":"x","value":` + deep:                                    -2,
	} {
		b := ingest.Batch{Rejected: []ingest.Rejection{{Reason: trace.BadTime, Spans: 1}}}
		err := otlp.NewDecoder(&trace.Table{}, wanted(t)).JSON([]byte(data), &b)
		var failed *ingest.RecordError
		if !errors.As(err, &failed) || failed.Reason == "" || len(b.Spans) != 0 || b.RejectedSpans() != 1 {
			t.Errorf("%.100s: error %v, batch %+v", data, err, b)
			continue
		}
		if offset != -2 && failed.Offset != offset {
			t.Errorf("%.100s: offset %d, want %d", data, failed.Offset, offset)
		}
		if len(err.Error()) > 300 {
			t.Errorf("%.100s: message of %d bytes", data, len(err.Error()))
		}
		if tooLarge := strings.Contains(data, deep); tooLarge != (failed.Reason == trace.TooLarge) {
			t.Errorf("%.100s: reason %s", data, failed.Reason)
		}
	}
}

// Truncated requests, flipped bits, huge lengths and deeply nested values give valid spans or an error with the
// position, and no panic.
func TestDamaged(t *testing.T) {
	wire, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(request(3, 20, 5))
	text, _ := (&ptrace.JSONMarshaler{}).MarshalTraces(request(3, 2, 1))
	r := rand.New(rand.NewPCG(1, 1))
	d := otlp.NewDecoder(&trace.Table{}, ingest.AllKeys())
	check := func(what string, err error, b *ingest.Batch) {
		t.Helper()
		var failed *ingest.RecordError
		if err != nil && (!errors.As(err, &failed) || len(b.Spans) != 0) {
			t.Fatalf("%s: error %v, %d spans", what, err, len(b.Spans))
		}
	}
	for n := range wire {
		var b ingest.Batch
		check(fmt.Sprintf("protobuf cut after %d bytes", n), d.Protobuf(wire[:n], &b), &b)
	}
	for n := range text {
		var b ingest.Batch
		if err := d.JSON(text[:n], &b); err == nil {
			t.Fatalf("JSON cut after %d bytes: no error", n)
		}
	}
	for range 3000 {
		var b ingest.Batch
		flipped := bytes.Clone(wire)
		flipped[r.IntN(len(wire))] ^= 1 << r.IntN(8)
		check("protobuf with a bit flipped", d.Protobuf(flipped, &b), &b)
		b.Reset()
		flipped = bytes.Clone(text)
		flipped[r.IntN(len(text))] ^= 1 << r.IntN(8)
		check("JSON with a bit flipped", d.JSON(flipped, &b), &b)
	}
	for at := range 2000 {
		var b ingest.Batch
		huge := bytes.Clone(wire)
		copy(huge[at:], binary.AppendUvarint(nil, 1<<63))
		check("protobuf with a huge number", d.Protobuf(huge, &b), &b)
	}
	var b ingest.Batch
	check("protobuf nested deeply", d.Protobuf(nested(4000), &b), &b)
}

// nested returns a request with a resource attribute that is a list nested depth times.
func nested(depth int) []byte {
	var value []byte
	for range depth {
		value = protowire.AppendBytes([]byte{5<<3 | 2}, protowire.AppendBytes([]byte{1<<3 | 2}, value))
	}
	pair := protowire.AppendBytes(protowire.AppendBytes([]byte{1<<3 | 2}, []byte("a")), nil)
	pair = append(pair[:3], protowire.AppendBytes([]byte{2<<3 | 2}, value)...)
	resource := protowire.AppendBytes([]byte{1<<3 | 2}, pair)
	return protowire.AppendBytes([]byte{1<<3 | 2}, protowire.AppendBytes([]byte{1<<3 | 2}, resource))
}

// field returns a length-delimited field of protobuf.
func field(number protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

// emptyRecords returns requests in protobuf and JSON with n empty records of each kind, and few other bytes.
func emptyRecords(n int) (wires, texts map[string][]byte) {
	many := func(number protowire.Number) []byte { return bytes.Repeat(field(number, nil), n) }
	identity := append(field(1, bytes.Repeat([]byte{1}, 16)), field(2, bytes.Repeat([]byte{1}, 8))...)
	inScope := func(content []byte) []byte { return field(1, field(2, content)) }
	inSpan := func(content []byte) []byte { return inScope(field(2, append(bytes.Clone(identity), content...))) }
	wanted := field(1, field(3, append(field(1, []byte("http.route")), field(2, field(1, []byte("a")))...)))
	wires = map[string][]byte{
		"resources":             many(1),
		"scopes":                field(1, many(2)),
		"libraries":             field(1, many(1000)),
		"spans":                 inScope(many(2)),
		"spans before a scope":  inScope(append(many(2), wanted...)),
		"events":                inSpan(many(11)),
		"links":                 inSpan(many(13)),
		"attributes":            inSpan(many(9)),
		"of a resource":         field(1, field(1, many(1))),
		"of a scope":            inScope(field(1, many(3))),
		"of an event":           inSpan(field(11, many(3))),
		"of a link":             inSpan(field(13, many(4))),
		"of a few in each span": inScope(bytes.Repeat(field(2, bytes.Repeat(field(9, nil), 9)), n/10)),
	}
	list := strings.TrimSuffix(strings.Repeat("{},", n), ",")
	inSpanJSON := func(name string) []byte { return requestJSON(goodIDs + `,` + name + `:[` + list + `]`) }
	texts = map[string][]byte{
		"resources":     []byte(`{"resourceSpans":[` + list + `]}`),
		"scopes":        []byte(`{"resourceSpans":[{"scopeSpans":[` + list + `]}]}`),
		"spans":         []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[` + list + `]}]}]}`),
		"events":        inSpanJSON(`"events"`),
		"links":         inSpanJSON(`"links"`),
		"attributes":    inSpanJSON(`"attributes"`),
		"of a resource": []byte(`{"resourceSpans":[{"resource":{"attributes":[` + list + `]}}]}`),
		"of an event":   requestJSON(goodIDs + `,"events":[{"attributes":[` + list + `]}]`),
	}
	return wires, texts
}

// A limited decoder refuses requests of empty records, of any kind. Few are allowed.
func TestEmptyRecords(t *testing.T) {
	const many, few = 20_000, 900
	limited := otlp.NewDecoder(&trace.Table{}, wanted(t, benchKeys...))
	limited.Limit()
	unlimited := otlp.NewDecoder(&trace.Table{}, wanted(t, benchKeys...))
	check := func(name string, refused bool, decode func([]byte, *ingest.Batch) error, data []byte) {
		t.Helper()
		var b ingest.Batch
		err := decode(data, &b)
		failed, _ := errors.AsType[*ingest.RecordError](err)
		if refused && (failed == nil || failed.Reason != trace.TooLarge || !errors.Is(err, ingest.ErrRecords)) ||
			!refused && err != nil || refused && b.RejectedSpans()+len(b.Spans) > 0 {
			t.Errorf("%s: %d bytes: error %v, %d spans rejected", name, len(data), err, b.RejectedSpans())
		}
	}
	wires, texts := emptyRecords(many)
	fewWires, fewTexts := emptyRecords(few)
	for name := range wires {
		check(name, true, limited.Protobuf, wires[name])
		check(name, false, unlimited.Protobuf, wires[name])
		check(name, false, limited.Protobuf, fewWires[name])
	}
	for name := range texts {
		check(name, true, limited.JSON, texts[name])
		check(name, false, unlimited.JSON, texts[name])
		check(name, false, limited.JSON, fewTexts[name])
	}
}

// The smallest records with data are allowed in any number.
func TestSmallRecords(t *testing.T) {
	const n = 20_000
	d := otlp.NewDecoder(&trace.Table{}, wanted(t, "k"))
	d.Limit()
	identity := append(field(1, bytes.Repeat([]byte{1}, 16)), field(2, bytes.Repeat([]byte{1}, 8))...)
	pair := append(field(1, []byte("k")), field(2, []byte{2 << 3, 1})...)
	event := append([]byte{1<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8}, field(2, []byte("e"))...)
	inSpan := func(content []byte) []byte {
		return field(1, field(2, field(2, append(bytes.Clone(identity), content...))))
	}
	for name, data := range map[string][]byte{
		"spans of their own resource": bytes.Repeat(inSpan(nil), n),
		"attributes":                  inSpan(bytes.Repeat(field(9, pair), n)),
		"events":                      inSpan(bytes.Repeat(field(11, append(event, field(3, pair)...)), n)),
		"links":                       inSpan(bytes.Repeat(field(13, identity), n)),
	} {
		var b ingest.Batch
		if err := d.Protobuf(data, &b); err != nil || len(b.Spans) == 0 {
			t.Errorf("%s: %v, %d spans", name, err, len(b.Spans))
		}
		text, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		if err != nil {
			t.Fatal(err)
		}
		asJSON, err := (&ptrace.JSONMarshaler{}).MarshalTraces(text)
		if err == nil {
			b.Reset()
			err = d.JSON(asJSON, &b)
		}
		if err != nil || len(b.Spans) == 0 {
			t.Errorf("%s in JSON: %v, %d spans", name, err, len(b.Spans))
		}
	}
}

// The decoder allocates nothing in the steady state, in both encodings.
func TestAllocations(t *testing.T) {
	wire, _ := (&ptrace.ProtoMarshaler{}).MarshalTraces(request(5, 512, 64))
	text, _ := (&ptrace.JSONMarshaler{}).MarshalTraces(request(5, 512, 64))
	d := otlp.NewDecoder(&trace.Table{}, wanted(t, benchKeys...))
	var b ingest.Batch
	for name, decode := range map[string]func() error{
		"protobuf": func() error { return d.Protobuf(wire, &b) },
		"JSON":     func() error { return d.JSON(text, &b) },
	} {
		n := testing.AllocsPerRun(10, func() {
			b.Reset()
			if err := decode(); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations per request, want 0", name, n)
		}
	}
}
