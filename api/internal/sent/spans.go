// Package sent reads the spans of stored traces as they were sent.
package sent

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/trace"
)

// Spans holds the spans of a stored trace as they were sent, with all attributes. Nested values aren't parsed, so deep
// nesting costs nothing. Malformed fields are skipped: the decoder has accepted the trace, but may not have looked at
// all attributes.
type Spans struct {
	id    trace.ID
	start trace.Nanos

	service   string
	resource  []contract.Attribute
	All       []contract.Span
	Resources [][]contract.Attribute // by span; spans of the same resource share them
}

// Read reads the spans of the trace with the given ID from an OTLP request. Their times are relative to start.
func Read(id trace.ID, start trace.Nanos, request []byte) *Spans {
	v := &Spans{id: id, start: start}
	v.request(request)
	return v
}

// fields calls f for each field of the protobuf message b. It sets bytes for length-delimited fields, and word for
// varints and 64-bit fields. It stops at a malformed field.
func fields(b []byte, f func(number int32, bytes []byte, word uint64)) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return
		}
		var bytes []byte
		var word uint64
		if kind == protowire.BytesType {
			bytes, _ = protowire.ConsumeBytes(b)
		}
		if kind == protowire.VarintType {
			word, _ = protowire.ConsumeVarint(b)
		}
		if kind == protowire.Fixed64Type {
			word, _ = protowire.ConsumeFixed64(b)
		}
		f(int32(number), bytes, word)
		b = b[n:]
	}
}

// Field numbers from opentelemetry-proto's trace.proto and common.proto.
const (
	requestResource  = 1
	resourceResource = 1
	resourceScope    = 2
	resourceAttrs    = 1
	scopeSpan        = 2
	spanTrace        = 1
	spanID           = 2
	spanParent       = 4
	spanName         = 5
	spanKind         = 6
	spanStart        = 7
	spanEnd          = 8
	spanAttr         = 9
	spanStatus       = 15
	statusCode       = 3
	statusError      = 2
)

func (v *Spans) request(data []byte) {
	fields(data, func(number int32, resource []byte, _ uint64) {
		if number != requestResource {
			return
		}
		v.service, v.resource = "", nil
		// The first pass looks for the resource, because it may come after its spans.
		fields(resource, func(number int32, b []byte, _ uint64) {
			if number == resourceResource {
				fields(b, func(number int32, b []byte, _ uint64) {
					if number != resourceAttrs {
						return
					}
					x := attribute(b)
					v.resource = append(v.resource, x)
					if x.Key == "service.name" {
						v.service = x.Value
					}
				})
			}
		})
		fields(resource, func(number int32, b []byte, _ uint64) {
			if number == resourceScope {
				fields(b, func(number int32, b []byte, _ uint64) {
					if number == scopeSpan {
						v.span(b)
					}
				})
			}
		})
	})
}

func (v *Spans) span(b []byte) {
	s := contract.Span{Service: v.service, Kind: trace.Unspecified.String(), Attributes: []contract.Attribute{}}
	var id []byte
	var start, end uint64
	fields(b, func(number int32, b []byte, word uint64) {
		switch number {
		case spanTrace:
			id = b
		case spanID:
			s.ID = hex.EncodeToString(b)
		case spanParent:
			if len(b) == 8 && binary.BigEndian.Uint64(b) != 0 {
				s.Parent = hex.EncodeToString(b)
			}
		case spanName:
			s.Name = string(b)
		case spanKind:
			s.Kind = trace.Kind(word).String()
		case spanStart:
			start = word
		case spanEnd:
			end = word
		case spanAttr:
			x := attribute(b)
			if x.Key == trace.KeyTracepoint {
				s.Tracepoint = x.Value
			}
			s.Attributes = append(s.Attributes, x)
		case spanStatus:
			fields(b, func(number int32, _ []byte, word uint64) {
				s.Error = s.Error || number == statusCode && word == statusError
			})
		}
	})
	if string(id) != string(v.id[:]) || max(start, end) > uint64(trace.MaxNanos) {
		return
	}
	s.StartNs, s.DurationNs = int64(start)-int64(v.start), int64(end)-int64(start)
	v.All, v.Resources = append(v.All, s), append(v.Resources, v.resource)
}

// Field numbers of attributes and their values.
const (
	attrKey     = 1
	attrValue   = 2
	valueText   = 1
	valueBool   = 2
	valueInt    = 3
	valueDouble = 4
	valueBytes  = 7
)

func attribute(b []byte) contract.Attribute {
	var x contract.Attribute
	fields(b, func(number int32, b []byte, _ uint64) {
		switch number {
		case attrKey:
			x.Key = string(b)
		case attrValue:
			fields(b, func(number int32, b []byte, word uint64) { x.Value = attributeText(number, b, word) })
		}
	})
	return x
}

func attributeText(number int32, b []byte, word uint64) string {
	switch number {
	case valueText:
		return string(b)
	case valueBool:
		return strconv.FormatBool(word != 0)
	case valueInt:
		return strconv.FormatInt(int64(word), 10)
	case valueDouble:
		return strconv.FormatFloat(math.Float64frombits(word), 'g', -1, 64)
	case valueBytes:
		return hex.EncodeToString(b)
	}
	return "…" // we don't follow lists and maps
}
