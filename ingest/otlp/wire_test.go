package otlp_test

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// messages holds the fields of OTLP messages that are messages themselves, so that tests can walk requests.
var messages = map[string]map[protowire.Number]string{
	"request": {1: "resourceSpans"}, "resourceSpans": {1: "resource", 2: "scopeSpans"},
	"scopeSpans": {1: "scope", 2: "span"},
	"resource":   {1: "pair"}, "scope": {3: "pair"}, "span": {9: "pair", 11: "event", 13: "link", 15: "status"},
	"event": {3: "pair"}, "link": {4: "pair"}, "pair": {2: "value"}, "value": {5: "list", 6: "pairs"},
	"list": {1: "value"}, "pairs": {1: "pair"},
}

type wireField struct {
	number protowire.Number
	data   []byte // tag and value
}

// ascending returns request with the fields of each message in ascending order, like most SDKs. pdata writes them in
// reverse order.
func ascending(request []byte) []byte { return reorder(request, "request") }

func reorder(b []byte, message string) []byte {
	var parts []wireField
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		size := n + protowire.ConsumeFieldValue(number, kind, b[n:])
		part := wireField{number, b[:size]}
		if inner := messages[message][number]; inner != "" {
			value, _ := protowire.ConsumeBytes(b[n:])
			part.data = protowire.AppendBytes(protowire.AppendTag(nil, number, kind), reorder(value, inner))
		}
		parts = append(parts, part)
		b = b[size:]
	}
	slices.SortStableFunc(parts, func(x, y wireField) int { return int(x.number - y.number) })
	var out []byte
	for _, p := range parts {
		out = append(out, p.data...)
	}
	return out
}

// stricter reports whether data contains encodings that the decoder rejects but pdata accepts: field numbers and
// varints out of range, unbalanced groups, or a value in several pieces.
func stricter(data []byte) bool { return strict(data, "request") }

func strict(b []byte, message string) bool {
	values := 0
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return true
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return true
		}
		if inner := messages[message][number]; inner != "" && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b[n:])
			if strict(value, inner) {
				return true
			}
			if message == "pair" && len(value) > 0 {
				values++
			}
		}
		b = b[n+size:]
	}
	return values > 1
}
