package otlp_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// everything returns a request with all fields of OTLP.
func everything() ptrace.Traces {
	traces := seed()
	rs := traces.ResourceSpans().At(0)
	rs.SetSchemaUrl("resource")
	rs.Resource().SetDroppedAttributesCount(1)
	ss := rs.ScopeSpans().At(0)
	ss.SetSchemaUrl("scope")
	ss.Scope().SetVersion("1.2")
	ss.Scope().SetDroppedAttributesCount(2)
	ss.Spans().RemoveIf(func(s ptrace.Span) bool { return s.TraceID().IsEmpty() }) // pdata can't read it from JSON
	s := ss.Spans().At(0)
	s.SetDroppedAttributesCount(3)
	s.SetDroppedEventsCount(4)
	s.SetDroppedLinksCount(5)
	nested := s.Attributes().PutEmptySlice("list")
	nested.AppendEmpty().SetBool(false)
	nested.AppendEmpty().SetEmptyMap().PutEmptySlice("x").AppendEmpty()
	e := s.Events().At(0)
	e.SetTimestamp(7)
	e.SetDroppedAttributesCount(6)
	e.Attributes().PutStr("exception.message", strings.Repeat("long ", 100))
	l := s.Links().At(0)
	l.SetFlags(0x100)
	l.TraceState().FromRaw("a=b")
	l.SetDroppedAttributesCount(7)
	return traces
}

// fromJSON returns the request that FromJSON makes from data.
func fromJSON(t *testing.T, data []byte) ptrace.Traces {
	t.Helper()
	wire, err := otlp.FromJSON(data)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	traces, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(wire)
	if err != nil {
		t.Fatalf("%s became %x: %v", data, wire, err)
	}
	return traces
}

func jsonOf(t *testing.T, traces ptrace.Traces) string {
	t.Helper()
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	identifiers = regexp.MustCompile(`("(?:traceId|spanId|parentSpanId)":)"([0-9a-f]+)"`)
	fieldNames  = regexp.MustCompile(`"[a-zA-Z]+":`)
)

// withBase64 returns text, a document, with its identifiers in base64.
func withBase64(t *testing.T, text string) string {
	return identifiers.ReplaceAllStringFunc(text, func(field string) string {
		parts := identifiers.FindStringSubmatch(field)
		id, err := hex.DecodeString(parts[2])
		if err != nil {
			t.Fatal(err)
		}
		return parts[1] + `"` + base64.StdEncoding.EncodeToString(id) + `"`
	})
}

// FromJSON is lossless: a request written by pdata becomes the same request, regardless of the names and identifiers
// in its JSON.
func TestFromJSON(t *testing.T) {
	for _, traces := range []ptrace.Traces{everything(), request(3, 20, 5), ptrace.NewTraces()} {
		want := jsonOf(t, traces)
		tempo := strings.NewReplacer(`"resourceSpans":`, `"batches":`, `"scopeSpans":`,
			`"instrumentationLibrarySpans":`, `"scope":`, `"instrumentationLibrary":`).Replace(want)
		for name, text := range map[string]string{
			"camel case": want,
			"snake case": fieldNames.ReplaceAllStringFunc(want, func(name string) string {
				return regexp.MustCompile("[A-Z]").ReplaceAllStringFunc(name,
					func(c string) string { return "_" + strings.ToLower(c) })
			}),
			"Jaeger's API": `{"result":` + want + `}`,
			"Tempo":        withBase64(t, tempo),
			"Tempo's API":  `{"trace":` + withBase64(t, want) + `,"metrics":{}}`,
		} {
			if diff := cmp.Diff(want, jsonOf(t, fromJSON(t, []byte(text)))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			var plain, other ingest.Batch
			table := &trace.Table{}
			for data, into := range map[string]*ingest.Batch{want: &plain, text: &other} {
				if err := otlp.NewDecoder(table, ingest.AllKeys()).JSON([]byte(data), into); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			if diff := cmp.Diff(plain, other, sameBatch); text != want && diff != "" {
				t.Errorf("%s: the decoder reads (-want +got):\n%s", name, diff)
			}
		}
	}
}

// Values whose type differs from their field's are converted, by both the decoder and FromJSON, or ignored if this is
// impossible. They never cause a request to be refused, regardless of the requested attributes.
func TestLenientValues(t *testing.T) {
	for value, want := range map[string]any{
		`{"intValue":7.0}`:                      int64(7),
		`{"intValue":"7"}`:                      int64(7),
		`{"intValue":-7e1}`:                     int64(-70),
		`{"intValue":"-9223372036854775808"}`:   int64(-1 << 63),
		`{"intValue":9223372036854775808}`:      nil,
		`{"intValue":7.5}`:                      nil,
		`{"intValue":"seven"}`:                  nil,
		`{"intValue":true}`:                     nil,
		`{"intValue":[1]}`:                      nil,
		`{"boolValue":"true"}`:                  true,
		`{"boolValue":1}`:                       true,
		`{"boolValue":0}`:                       false,
		`{"boolValue":"maybe"}`:                 nil,
		`{"stringValue":7}`:                     "7",
		`{"stringValue":true}`:                  "true",
		`{"stringValue":{"a":1}}`:               nil,
		`{"doubleValue":"1.5"}`:                 1.5,
		`{"doubleValue":{}}`:                    nil,
		`{"doubleValue":1e999}`:                 nil,
		`{"arrayValue":5}`:                      nil,
		`{"arrayValue":{"values":5}}`:           nil,
		`{"arrayValue":{"values":["x"]}}`:       nil,
		`"bare"`:                                nil,
		`{"stringValue":"a","intValue":"x"}`:    "a",
		`{"bytesValue":"not base64"}`:           nil,
		`{"kvlistValue":{"values":[{}, null]}}`: nil,
	} {
		text := []byte(`{"resourceSpans":[{"resource":{"attributes":[{"key":"r","value":` +
			value + `}]},"scopeSpans":[{"spans":[{` + goodIDs +
			`,"attributes":[{"key":"a","value":` + value + `},{"key":"b","value":{"stringValue":"kept"}}]}]}]}]}`)
		s := fromJSON(t, text).ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		got, _ := s.Attributes().Get("a")
		if scalar := got.AsRaw(); want != nil && scalar != want || want == nil && scalarType(got.Type()) {
			t.Errorf("FromJSON reads %s as %v, want %v", value, scalar, want)
		}
		table := &trace.Table{}
		for _, keys := range []*ingest.Keys{wanted(t), wanted(t, "b"), ingest.AllKeys()} {
			var b ingest.Batch
			if err := otlp.NewDecoder(table, keys).JSON(text, &b); err != nil || len(b.Spans) != 1 {
				t.Errorf("%s: %d spans, error %v", value, len(b.Spans), err)
			}
		}
		wire, _ := otlp.FromJSON(text)
		var direct, through ingest.Batch
		d := otlp.NewDecoder(table, ingest.AllKeys())
		if err := d.JSON(text, &direct); err != nil {
			t.Error(err)
		}
		if err := d.Protobuf(wire, &through); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(direct, through, sameBatch); diff != "" {
			t.Errorf("%s (-JSON +protobuf):\n%s", value, diff)
		}
	}
}

func scalarType(of pcommon.ValueType) bool {
	return of == pcommon.ValueTypeStr || of == pcommon.ValueTypeBool ||
		of == pcommon.ValueTypeInt || of == pcommon.ValueTypeDouble
}

// Times may have an exponent or a fraction of zero, as in protobuf's JSON.
func TestDecimalTimes(t *testing.T) {
	for text, want := range map[string]trace.Nanos{
		"1.76e18": 1760000000000000000, `"1.760000000123456789E+18"`: 1760000000123456789, "5.000": 5, "50e-1": 5,
		"0e300": 0, "0.0e-300": 0, `"007"`: 7,
		"100000000000000000000e-2": 1000000000000000000,
	} {
		var b ingest.Batch
		span := goodIDs + `,"startTimeUnixNano":` + text
		err := otlp.NewDecoder(&trace.Table{}, wanted(t)).JSON(requestJSON(span), &b)
		if err != nil || len(b.Spans) != 1 || b.Spans[0].Start != want {
			t.Errorf("%s: error %v, spans %+v, want %d", text, err, b.Spans, want)
		}
	}
	for _, text := range []string{
		"1.5", "15e-1", "1e20", "1e9999", `"1e"`,
		`"."`, `"1.2.3"`, `"0x1"`, `" 1"`, "-1e3", "184467440737095516160e-1",
	} {
		var b ingest.Batch
		span := goodIDs + `,"startTimeUnixNano":` + text
		err := otlp.NewDecoder(&trace.Table{}, wanted(t)).JSON(requestJSON(span), &b)
		if err != nil || len(b.Spans) != 0 || len(b.Rejected) != 1 || b.Rejected[0].Reason != trace.BadTime {
			t.Errorf("%s: error %v, spans %+v, rejected %+v", text, err, b.Spans, b.Rejected)
		}
	}
}

// Values may be nested as deeply as protobuf decoders allow. Deeper values are omitted in linear time.
func TestNesting(t *testing.T) {
	for depth, kept := range map[int]bool{10: true, 99: true, 101: false, 3000: false} {
		value := strings.Repeat(`{"arrayValue":{"values":[`, depth) +
			`{"stringValue":"x"}` + strings.Repeat("]}}", depth)
		s := fromJSON(t, requestJSON(goodIDs+`,"attributes":[{"key":"a","value":`+value+`}]`)).
			ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		v, _ := s.Attributes().Get("a")
		if got := v.Type() == pcommon.ValueTypeSlice; got != kept {
			t.Errorf("nested %d deep: kept %t, want %t", depth, got, kept)
		}
	}
}

// Encoders of OTLP 0.15 wrote scope spans under another number, some under both.
func TestLibrarySpans(t *testing.T) {
	wire, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(request(1, 3, 2))
	if err != nil {
		t.Fatal(err)
	}
	var want ingest.Batch
	table := &trace.Table{}
	if err := otlp.NewDecoder(table, wanted(t)).Protobuf(wire, &want); err != nil {
		t.Fatal(err)
	}
	id := want.Traces[0]
	for name, data := range map[string][]byte{"former": renumbered(wire, false), "both": renumbered(wire, true)} {
		var got ingest.Batch
		if err := otlp.NewDecoder(table, wanted(t)).Protobuf(data, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, sameBatch); diff != "" {
			t.Errorf("%s number (-want +got):\n%s", name, diff)
		}
		part, err := otlp.AppendTrace(nil, data, id)
		if err != nil {
			t.Fatal(err)
		}
		all, err := otlp.DecodeTrace(id, data, ingest.AllFailureRules)
		if err != nil {
			t.Fatal(err)
		}
		if one, err := otlp.DecodeTrace(id, part, ingest.AllFailureRules); err != nil ||
			len(one.Spans) != len(all.Spans) || len(one.Spans) == 0 {
			t.Errorf("%s number: extracted %d spans of %d, %v", name, len(one.Spans), len(all.Spans), err)
		}
	}
}

// FromJSON accepts everything that the decoder accepts, and gives the same spans.
func FuzzFromJSON(f *testing.F) {
	for _, traces := range []ptrace.Traces{seed(), everything()} {
		text, _ := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
		f.Add(text)
		f.Add(bytes.ReplaceAll(text, []byte("resourceSpans"), []byte("batches")))
	}
	f.Add([]byte(`{"trace":{"batches":[{"instrumentationLibrarySpans":[{"spans":[{"traceId":"F+XTKM0Z5gz9f8pFKHWG1A==","spanId":"LIJtBqUODmg=",
		"startTimeUnixNano":1.76e18,"events":5,"attributes":[{"value":{"intValue":7.0},"key":"a"}]}]}]}]}}`))
	f.Fuzz(checkFromJSON)
}

// checkFromJSON compares the spans that the decoder reads from data with those that it reads from the result of
// FromJSON.
func checkFromJSON(t *testing.T, data []byte) {
	var direct, through ingest.Batch
	if otlp.NewDecoder(&trace.Table{}, wanted(t)).JSON(data, &direct) != nil {
		_, _ = otlp.FromJSON(data) // may accept it, must not panic
		return
	}
	wire, err := otlp.FromJSON(data)
	if err != nil {
		t.Fatalf("the decoder accepts %q, FromJSON returns %v", data, err)
	}
	if err := otlp.NewDecoder(&trace.Table{}, wanted(t)).Protobuf(wire, &through); err != nil {
		t.Fatalf("the result for %q cannot be decoded: %v", data, err)
	}
	type identity struct {
		ID, Parent trace.SpanID
		Start, End trace.Nanos
		Kind       trace.Kind
		Flags      trace.Flags
	}
	of := func(b *ingest.Batch) (all []identity) {
		for _, s := range b.Spans {
			all = append(all, identity{s.ID, s.Parent, s.Start, s.End, s.Kind, s.Flags})
		}
		return all
	}
	if diff := cmp.Diff(of(&direct), of(&through)); diff != "" || direct.RejectedSpans() != through.RejectedSpans() {
		t.Fatalf("%q: rejected %d and %d; -JSON +protobuf:\n%s", data,
			direct.RejectedSpans(), through.RejectedSpans(), diff)
	}
}

// FromJSON and the decoder also agree if an odd encoder has replaced values in a document by values of other types.
func TestOddDocuments(t *testing.T) {
	text := jsonOf(t, everything())
	places := regexp.MustCompile(`:("[^"]*"|[0-9.]+|true|\{|\[)|"[A-Za-z]+":`).FindAllStringIndex(text, -1)
	values := []string{
		`:null`, `:7`, `:"x"`, `:1.5`, `:-1`, `:true`,
		`:{}`, `:[]`, `:[7]`, `:[{}]`, `:{"a":1}`, `:1e400`, `:"`, `:[[]]`,
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 5000 {
		damaged := []byte(text)
		for range 1 + r.IntN(2) {
			at := places[r.IntN(len(places))]
			value := values[r.IntN(len(values))]
			rest := text[at[1]:]
			if text[at[0]] == '"' { // for a name, add a value and turn the old value into another name
				value = text[at[0]:at[1]-1] + value + `,"old":`
			} else if c := text[at[1]-1]; c == '{' || c == '[' { // keep the document whole
				value += `,"old":` + string(c)
			}
			damaged = []byte(text[:at[0]] + value + rest)
		}
		checkFromJSON(t, damaged)
	}
}

// renumbered returns request with scope spans under their former number: in addition to the current number if both is
// true, and instead of it otherwise.
func renumbered(request []byte, both bool) (out []byte) {
	for len(request) > 0 {
		resource, size := protowire.ConsumeBytes(request[1:]) // after the tag of resource_spans
		request = request[1+size:]
		var message []byte
		for len(resource) > 0 {
			number, kind, n := protowire.ConsumeTag(resource)
			field := resource[:n+protowire.ConsumeFieldValue(number, kind, resource[n:])]
			resource = resource[len(field):]
			if number != 2 || both {
				message = append(message, field...)
			}
			if number == 2 {
				message = append(protowire.AppendTag(message, 1000, kind), field[n:]...)
			}
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, 1, protowire.BytesType), message)
	}
	return out
}
