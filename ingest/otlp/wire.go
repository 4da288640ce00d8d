package otlp

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Errors in the wire format.
var (
	errTruncated = errors.New("the message ends inside a field")
	errWireType  = errors.New("wire type does not fit the field")
	errField     = errors.New("not a protobuf field")
	errTwice     = errors.New("a field is given twice")
)

// Tags of the known fields: field number and wire type.
const (
	varint  = uint64(protowire.VarintType)
	fixed32 = uint64(protowire.Fixed32Type)
	fixed64 = uint64(protowire.Fixed64Type)
	length  = uint64(protowire.BytesType)

	requestResourceSpans = 1<<3 | length

	resourceSpansResource = 1<<3 | length
	resourceSpansScope    = 2<<3 | length
	resourceSpansURL      = 3<<3 | length
	resourceSpansLibrary  = uint64(fieldLibrarySpans)<<3 | length

	resourceAttributes = 1<<3 | length
	resourceDropped    = 2<<3 | varint
	resourceEntities   = 3<<3 | length

	scopeSpansScope = 1<<3 | length
	scopeSpansSpans = 2<<3 | length
	scopeSpansURL   = 3<<3 | length

	scopeName       = 1<<3 | length
	scopeVersion    = 2<<3 | length
	scopeAttributes = 3<<3 | length
	scopeDropped    = 4<<3 | varint

	spanTraceID    = 1<<3 | length
	spanID         = 2<<3 | length
	spanState      = 3<<3 | length
	spanParent     = 4<<3 | length
	spanName       = 5<<3 | length
	spanKind       = 6<<3 | varint
	spanStart      = 7<<3 | fixed64
	spanEnd        = 8<<3 | fixed64
	spanAttributes = 9<<3 | length
	spanDropped    = 10<<3 | varint
	spanEvents     = 11<<3 | length
	spanDroppedEv  = 12<<3 | varint
	spanLinks      = 13<<3 | length
	spanDroppedLi  = 14<<3 | varint
	spanStatus     = 15<<3 | length
	spanFlags      = 16<<3 | fixed32

	eventName       = 2<<3 | length
	eventAttributes = 3<<3 | length

	statusMessage = 2<<3 | length
	statusCode    = 3<<3 | varint

	linkTraceID    = 1<<3 | length
	linkSpanID     = 2<<3 | length
	linkState      = 3<<3 | length
	linkAttributes = 4<<3 | length
	linkDropped    = 5<<3 | varint
	linkFlags      = 6<<3 | fixed32

	pairKey   = 1<<3 | length
	pairValue = 2<<3 | length
	pairIndex = 3<<3 | varint

	valueString = 1<<3 | length
	valueBool   = 2<<3 | varint
	valueInt    = 3<<3 | varint
	valueDouble = 4<<3 | fixed64
	valueArray  = 5<<3 | length
	valueList   = 6<<3 | length
	valueBytes  = 7<<3 | length
	valueIndex  = 8<<3 | varint

	arrayValues = 1<<3 | length
)

// message describes a type of message that [wire.fields] can read.
type message struct {
	read  []uint64 // tags of the length-delimited fields to read
	other []uint64 // tags of other known fields
	known uint64   // highest number of a known field
}

var (
	requestMessage       = message{read: []uint64{requestResourceSpans}, known: 1}
	resourceSpansMessage = message{
		read:  []uint64{resourceSpansResource, resourceSpansScope, resourceSpansURL, resourceSpansLibrary},
		known: 3,
	}
	resourceMessage = message{
		read:  []uint64{resourceAttributes},
		other: []uint64{resourceDropped, resourceEntities},
		known: 3,
	}
	scopeSpansMessage = message{read: []uint64{scopeSpansSpans, scopeSpansScope, scopeSpansURL}, known: 3}
	scopeMessage      = message{
		read:  []uint64{scopeName, scopeAttributes},
		other: []uint64{scopeVersion, scopeDropped},
		known: 4,
	}
	eventMessage = message{read: []uint64{eventName, eventAttributes}}
	linkMessage  = message{
		read:  []uint64{linkTraceID, linkSpanID, linkAttributes},
		other: []uint64{linkState, linkDropped, linkFlags},
		known: 6,
	}
)

// wire reads the fields of messages in protobuf.
type wire struct {
	data []byte // the request being decoded
}

// fields calls f for each field of b that is in m.read, in order. The field itself starts at `at`.
func (w *wire) fields(b []byte, m *message, f func(tag uint64, at, value []byte) error) error {
	for len(b) > 0 {
		tag, rest, err := w.tag(b)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(m.read, tag):
			value, after, ok := bytesField(rest)
			if !ok {
				return w.failure(b, errTruncated)
			}
			err = f(tag, b, value)
			b = after
		case slices.Contains(m.other, tag):
			b, err = w.pass(b, rest, tag)
		default:
			b, err = w.skip(b, rest, tag, m.known)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// failure returns err with the position of rest, a subslice of w.data.
func (w *wire) failure(rest []byte, err error) error {
	return &ingest.RecordError{Reason: trace.Malformed, Offset: w.position(rest), Err: err}
}

// position returns the offset of rest, a subslice of w.data, in w.data. All subslices have the same end of capacity, so
// the offset is the difference between the capacities.
func (w *wire) position(rest []byte) int64 { return int64(cap(w.data) - cap(rest)) }

// pair reads a KeyValue. It returns an error if the value comes in several pieces, which protobuf would merge but no
// encoder writes.
func (w *wire) pair(b []byte) (key, value []byte, err error) {
	for len(b) > 0 {
		tag, rest, err := w.tag(b)
		if err != nil {
			return nil, nil, err
		}
		var ok bool
		switch tag {
		case pairKey:
			key, rest, ok = bytesField(rest)
		case pairValue:
			var v []byte
			if v, rest, ok = bytesField(rest); len(v) != 0 {
				if len(value) != 0 {
					return nil, nil, w.failure(b, errTwice)
				}
				value = v
			}
		case pairIndex:
			_, rest, ok = varintField(rest)
		default:
			if rest, err = w.skip(b, rest, tag, 3); err != nil {
				return nil, nil, err
			}
			ok = true
		}
		if !ok {
			return nil, nil, w.failure(b, errTruncated)
		}
		b = rest
	}
	return key, value, nil
}

// valueKind is the kind of an attribute's value. Only scalars become attributes.
type valueKind uint8

const (
	isNothing valueKind = iota // empty, or of an ignored type: bytes or a list of pairs
	isArray                    // Value.Text is the encoded ArrayValue
	isScalar                   // kinds from here on are scalars
	isString  = isScalar + 1
)

// value reads an AnyValue, but not the values nested in it.
func (w *wire) value(b []byte) (v ingest.Value, kind valueKind, err error) {
	if n := len(b) - 2; n >= 0 && n < 0x80 && uint64(b[0]) == valueString && int(b[1]) == n { // fast path
		return ingest.Value{Text: b[2:]}, isString, nil
	}
	if len(b) == 3 && uint64(b[0]) == valueInt && b[1] >= 0x80 && b[2] < 0x80 { // a status or a port
		return ingest.Value{Number: float64(int(b[1])&0x7f | int(b[2])<<7), Numeric: true}, isScalar, nil
	}
	for len(b) > 0 {
		tag, rest, err := w.tag(b)
		if err != nil {
			return v, isNothing, err
		}
		ok := true
		switch tag {
		case valueString:
			v, kind = ingest.Value{}, isString
			v.Text, rest, ok = bytesField(rest)
		case valueBool:
			var n uint64
			n, rest, ok = varintField(rest)
			v, kind = boolValue(n != 0), isScalar
		case valueInt:
			var n uint64
			n, rest, ok = varintField(rest)
			v, kind = ingest.Value{Number: float64(int64(n)), Numeric: true}, isScalar
		case valueDouble:
			if ok = len(rest) >= 8; ok {
				number := math.Float64frombits(binary.LittleEndian.Uint64(rest))
				v, kind = ingest.Value{Number: number, Numeric: true}, isScalar
				rest = rest[8:]
			}
		case valueArray:
			v, kind = ingest.Value{}, isArray
			v.Text, rest, ok = bytesField(rest)
		case valueList, valueBytes:
			v, kind = ingest.Value{}, isNothing
			_, rest, ok = bytesField(rest)
		case valueIndex:
			v, kind = ingest.Value{}, isNothing
			_, rest, ok = varintField(rest)
		default:
			if rest, err = w.skip(b, rest, tag, 8); err != nil {
				return v, isNothing, err
			}
		}
		if !ok {
			return v, isNothing, w.failure(b, errTruncated)
		}
		b = rest
	}
	return v, kind, nil
}

var (
	trueText  = []byte("true")
	falseText = []byte("false")
)

func boolValue(v bool) ingest.Value {
	if v {
		return ingest.Value{Text: trueText}
	}
	return ingest.Value{Text: falseText}
}

// firstText returns the first element of the encoded ArrayValue b if it is a string, or nil.
func (w *wire) firstText(b []byte) ([]byte, error) {
	for len(b) > 0 {
		tag, rest, err := w.tag(b)
		if err != nil {
			return nil, err
		}
		if tag != arrayValues {
			if b, err = w.skip(b, rest, tag, 1); err != nil {
				return nil, err
			}
			continue
		}
		element, _, ok := bytesField(rest)
		if !ok {
			return nil, w.failure(b, errTruncated)
		}
		v, kind, err := w.value(element)
		if kind != isString {
			return nil, err
		}
		return v.Text, err
	}
	return nil, nil
}

// joins reports whether pair is sibyl.join=true.
func (w *wire) joins(pair []byte) (bool, error) {
	key, value, err := w.pair(pair)
	if err != nil || string(key) != trace.KeyJoin {
		return false, err
	}
	v, kind, err := w.value(value)
	return kind >= isScalar && v.True(), err
}

// tag reads the tag at the start of b, which must not be empty.
func (w *wire) tag(b []byte) (tag uint64, rest []byte, err error) {
	if b[0] >= 0x08 && b[0] < 0x80 {
		return uint64(b[0]), b[1:], nil
	}
	tag, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return 0, nil, w.failure(b, errTruncated)
	}
	if num, _ := protowire.DecodeTag(tag); !num.IsValid() {
		return 0, nil, w.failure(b, errField)
	}
	return tag, b[n:], nil
}

// pass skips the value of a field of any number. rest starts after the tag at b.
func (w *wire) pass(b, rest []byte, tag uint64) ([]byte, error) {
	n := protowire.ConsumeFieldValue(protowire.Number(tag>>3), protowire.Type(tag&7), rest)
	if n < 0 {
		return nil, w.failure(b, protowire.ParseError(n))
	}
	return rest[n:], nil
}

// skip skips an unknown field. It returns an error if the field number is at most `known`: a known field then has the
// wrong wire type.
func (w *wire) skip(b, rest []byte, tag, known uint64) ([]byte, error) {
	if err := w.unknown(b, tag, known); err != nil {
		return nil, err
	}
	return w.pass(b, rest, tag)
}

// unknown returns an error unless tag belongs to an unknown field. If the field number is at most `known`, a known
// field has the wrong wire type.
func (w *wire) unknown(b []byte, tag, known uint64) error {
	switch num, _ := protowire.DecodeTag(tag); {
	case !num.IsValid():
		return w.failure(b, errField)
	case tag>>3 <= known:
		return w.failure(b, errWireType)
	}
	return nil
}

// longSize reads a length at b[i:] and returns it with the index of the byte that follows. If the length is invalid, n
// is [math.MaxInt].
func longSize(b []byte, i int) (n, next int) {
	if i+1 < len(b) && b[i+1] < 0x80 {
		return int(b[i]&0x7f) | int(b[i+1])<<7, i + 2
	}
	v, size := protowire.ConsumeVarint(b[min(i, len(b)):])
	if size < 0 || v > math.MaxInt32 {
		return math.MaxInt, i
	}
	return int(v), i + size
}

// bytesField reads a length-delimited value at the start of b. ok is false if b is too short.
func bytesField(b []byte) (value, rest []byte, ok bool) {
	if len(b) > 0 && int(b[0]) < min(len(b), 0x80) {
		n := 1 + int(b[0])
		return b[1:n], b[n:], true
	}
	return longBytesField(b)
}

// longBytesField is like bytesField, but without the fast path for values of less than 128 bytes.
func longBytesField(b []byte) (value, rest []byte, ok bool) {
	n, size := protowire.ConsumeVarint(b)
	if size < 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return b[size : size+int(n)], b[size+int(n):], true
}

// varintField reads a varint at the start of b. ok is false if b doesn't start with a valid varint.
func varintField(b []byte) (v uint64, rest []byte, ok bool) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), b[1:], true
	}
	v, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}
