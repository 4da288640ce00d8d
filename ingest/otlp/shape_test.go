package otlp_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// scalars holds the wire types of the fields of messages that aren't messages themselves.
var scalars = map[string]map[protowire.Number]protowire.Type{
	"resourceSpans": {3: protowire.BytesType}, "scopeSpans": {3: protowire.BytesType},
	"resource": {2: protowire.VarintType},
	"scope":    {1: protowire.BytesType, 2: protowire.BytesType, 4: protowire.VarintType},
	"span": {
		1:  protowire.BytesType,
		2:  protowire.BytesType,
		3:  protowire.BytesType,
		4:  protowire.BytesType,
		5:  protowire.BytesType,
		6:  protowire.VarintType,
		7:  protowire.Fixed64Type,
		8:  protowire.Fixed64Type,
		10: protowire.VarintType,
		12: protowire.VarintType,
		14: protowire.VarintType, 16: protowire.Fixed32Type,
	},
	"link": {
		1: protowire.BytesType,
		2: protowire.BytesType,
		3: protowire.BytesType,
		5: protowire.VarintType,
		6: protowire.Fixed32Type,
	},
	"status": {2: protowire.BytesType, 3: protowire.VarintType},
	"pair":   {1: protowire.BytesType, 3: protowire.VarintType},
	"value": {
		1: protowire.BytesType,
		2: protowire.VarintType,
		3: protowire.VarintType,
		4: protowire.Fixed64Type,
		7: protowire.BytesType,
		8: protowire.VarintType,
	},
	"event": {1: protowire.Fixed64Type, 2: protowire.BytesType, 4: protowire.VarintType},
}

// texts lists values that have a meaning in some field.
var texts = []string{
	"", "a", "b", "service.name", "host.ip", "host.id", "true", "otel.scope.name", trace.KeyJoin, trace.KeyTracepoint,
	trace.KeyPlan,
	"error", "error.type", "http.status_code", "grpc.status_code", "otel.status_code", "OK", "404", "503", "14",
	"false", "exception",
	"exception.escaped", "127.0.0.1", "GET /users/12", "\xff\xfe", "0123456789abcdef",
	"\x01\x02\x03\x04\x05\x06\x07\x08",
}

// shape draws the given message with fields in any order and number, sometimes with an unknown field or a wrong wire
// type.
func shape(t *rapid.T, message string, depth int) []byte {
	var out []byte
	for range rapid.IntRange(0, 6).Draw(t, "fields") {
		out = append(out, shapeField(t, message, depth)...)
	}
	switch { // otherwise few requests would have valid spans
	case depth == 0:
	case message == "resourceSpans" || message == "scopeSpans":
		inner := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType),
			shape(t, messages[message][2], depth-1))
		if rapid.Bool().Draw(t, "first") {
			return append(inner, out...)
		}
		return append(out, inner...)
	case message == "span":
		out = protowire.AppendBytes(protowire.AppendTag(out, 1, protowire.BytesType), []byte("0123456789abcdef"))
		out = protowire.AppendBytes(protowire.AppendTag(out, 2, protowire.BytesType),
			[]byte("\x01\x02\x03\x04\x05\x06\x07\x08"))
	}
	return out
}

func shapeField(t *rapid.T, message string, depth int) []byte {
	number := protowire.Number(rapid.IntRange(1, 17).Draw(t, "number"))
	inner, kind := messages[message][number], protowire.Type(0)
	if inner == "" {
		var known bool
		if kind, known = scalars[message][number]; !known {
			if number < 17 && depth > 0 && rapid.IntRange(0, 3).Draw(t, "unknown") > 0 {
				return nil
			}
			kind = rapid.SampledFrom([]protowire.Type{0, 1, 2, 5}).Draw(t, "kind")
		}
	}
	if rapid.IntRange(0, 999).Draw(t, "wrong") == 0 {
		inner, kind = "", rapid.SampledFrom([]protowire.Type{0, 1, 2, 5}).Draw(t, "kind")
	}
	switch {
	case inner != "":
		if depth == 0 {
			return nil
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), shape(t, inner, depth-1))
	case kind == protowire.VarintType:
		v := rapid.SampledFrom([]uint64{0, 1, 2, 3, 5, 6, 300, 1 << 32, 1<<32 + 2, 1<<64 - 1}).Draw(t, "varint")
		return protowire.AppendVarint(protowire.AppendTag(nil, number, kind), v)
	case kind == protowire.Fixed64Type:
		v := rapid.SampledFrom([]uint64{
			0, 1, 1e18, uint64(trace.MaxNanos), uint64(trace.MaxNanos) + 1, 1 << 63,
		}).Draw(t, "fixed64")
		return protowire.AppendFixed64(protowire.AppendTag(nil, number, kind), v)
	case kind == protowire.Fixed32Type:
		return protowire.AppendFixed32(protowire.AppendTag(nil, number, kind),
			rapid.SampledFrom([]uint32{0, 0x100, 0x200, 0x300}).Draw(t, "fixed32"))
	}
	text := rapid.SampledFrom(texts).Draw(t, "text")
	if message == "span" && number < 5 && number != 3 || message == "link" && number < 3 { // identifiers
		text = rapid.SampledFrom([]string{"", "\x01\x02\x03\x04\x05\x06\x07\x08"}).Draw(t, "id")
		if number == 1 {
			text = "0123456789abcdef"
		}
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), []byte(text))
}

// The last status code of a span is used, and a status without a code doesn't reset it, in both encodings.
func TestRepeatedStatus(t *testing.T) {
	const none = -1 // no code
	for _, c := range []struct {
		codes  []int // of one status each
		failed bool
	}{
		{[]int{2}, true},
		{[]int{2, 1}, false},
		{[]int{2, 0}, false},
		{[]int{1, 2}, true},
		{[]int{2, none}, true},
		{[]int{2, 1, 2}, true},
	} {
		span := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("0123456789abcdef"))
		span = protowire.AppendBytes(protowire.AppendTag(span, 2, protowire.BytesType), []byte("01234567"))
		text := `"traceId":"30313233343536373839616263646566","spanId":"3031323334353637"`
		for _, code := range c.codes {
			status := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "why")
			member := `"message":"why"`
			if code != none {
				status = protowire.AppendVarint(protowire.AppendTag(status, 3, protowire.VarintType), uint64(code))
				member += fmt.Sprintf(`,"code":%d`, code)
			}
			span = protowire.AppendBytes(protowire.AppendTag(span, 15, protowire.BytesType), status)
			text += `,"status":{` + member + `}`
		}
		request := span
		for _, number := range []protowire.Number{2, 2, 1} { // of spans, scope spans and resource spans
			request = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), request)
		}
		var protobuf, json, reference ingest.Batch
		d := otlp.NewDecoder(&trace.Table{}, wanted(t))
		if err := errors.Join(
			d.Protobuf(request, &protobuf),
			d.JSON(requestJSON(text), &json),
			newReference(&trace.Table{}, false).Protobuf(request, &reference),
		); err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string]*ingest.Batch{"protobuf": &protobuf, "JSON": &json, "pdata": &reference} {
			if len(b.Spans) != 1 || b.Spans[0].Flags&trace.Error != 0 != c.failed {
				t.Errorf("codes %v in %s: %+v, want failed: %t", c.codes, name, b.Spans, c.failed)
			}
		}
	}
}

// The decoder gives the same result as pdata for messages of any shape.
func TestShapes(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		data := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), shape(t, "resourceSpans", 7))
		all := rapid.Bool().Draw(t, "all")
		keys, _ := ingest.NewKeys(fuzzKeys...)
		if all {
			keys = ingest.AllKeys()
		}
		var got, want ingest.Batch
		if newReference(&trace.Table{}, all, fuzzKeys...).Protobuf(data, &want) != nil {
			_ = otlp.NewDecoder(&trace.Table{}, keys).Protobuf(data, &got) // may accept it, must not panic
			return
		}
		if err := otlp.NewDecoder(&trace.Table{}, keys).Protobuf(data, &got); err != nil {
			if stricter(data) {
				return
			}
			t.Fatalf("pdata accepts %x, the decoder returns %v", data, err)
		}
		accepted += len(got.Spans)
		if diff := cmp.Diff(want, got, sameBatch); diff != "" {
			t.Fatalf("%x: -pdata +decoder:\n%s", data, diff)
		}
	})
	if accepted == 0 {
		t.Error("no spans were compared")
	}
	t.Logf("%d spans compared", accepted)
}
