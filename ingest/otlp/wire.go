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

// Bits of Span.flags.
const (
	flagHasRemote = 1 << 8
	flagRemote    = 1 << 9
)

// Protobuf decodes one request and appends its spans to into, where it also counts invalid spans. If data is not a
// request, Protobuf returns an *[ingest.RecordError] and leaves into unchanged. The batch keeps no reference to data.
// Time is linear in len(data); memory beyond the batch is bounded.
func (d *Decoder) Protobuf(data []byte, into *ingest.Batch) error {
	mark := into.Mark()
	d.data = slices.Clip(data)
	d.build.Begin(into)
	err := d.request(d.data)
	d.data = nil
	if err != nil {
		into.Rollback(mark)
		return err
	}
	return nil
}

// failure returns err with the position of rest, a subslice of d.data.
func (d *Decoder) failure(rest []byte, err error) error {
	// All subslices share the end of their capacity, so the difference of capacities is the position.
	return &ingest.RecordError{Reason: trace.Malformed, Offset: int64(cap(d.data) - cap(rest)), Err: err}
}

func (d *Decoder) request(b []byte) error {
	for len(b) > 0 {
		tag, rest, err := d.tag(b)
		if err != nil {
			return err
		}
		if tag != requestResourceSpans {
			if b, err = d.skip(b, rest, tag, 1); err != nil {
				return err
			}
			continue
		}
		message, rest, ok := bytesField(rest)
		if !ok {
			return d.failure(b, errTruncated)
		}
		if err := d.resourceSpans(message); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// resourceSpans reads all data of the resource first, because it may follow its spans. Encoders of OTLP 0.15 to 0.19
// write scope spans under their former number, some under both.
func (d *Decoder) resourceSpans(message []byte) error {
	d.build.NewResource()
	scopes, libraries := 0, 0
	for b := message; len(b) > 0; {
		tag, rest, err := d.tag(b)
		if err != nil {
			return err
		}
		switch tag {
		case resourceSpansResource, resourceSpansScope, resourceSpansURL, resourceSpansLibrary:
			field, rest, ok := bytesField(rest)
			if !ok {
				return d.failure(b, errTruncated)
			}
			switch tag {
			case resourceSpansResource:
				if err := d.resource(field); err != nil {
					return err
				}
			case resourceSpansScope:
				scopes++
			case resourceSpansLibrary:
				libraries++
			}
			b = rest
		default:
			if b, err = d.skip(b, rest, tag, 3); err != nil {
				return err
			}
		}
	}
	list := resourceSpansScope
	if scopes == 0 {
		list, scopes = resourceSpansLibrary, libraries
	}
	for b := message; scopes > 0; {
		tag, rest, _ := d.tag(b) // the first pass checked that all fields are complete
		if tag == list {
			var field []byte
			field, b, _ = bytesField(rest)
			if err := d.scopeSpans(field); err != nil {
				return err
			}
			scopes--
			continue
		}
		b, _ = d.skip(b, rest, tag, 0)
	}
	return nil
}

func (d *Decoder) resource(b []byte) error {
	for len(b) > 0 {
		tag, rest, err := d.tag(b)
		if err != nil {
			return err
		}
		if tag == resourceAttributes {
			pair, rest, ok := bytesField(rest)
			if !ok {
				return d.failure(b, errTruncated)
			}
			if err := d.resourceAttr(pair); err != nil {
				return err
			}
			b = rest
			continue
		}
		if tag == resourceDropped || tag == resourceEntities {
			b, err = d.pass(b, rest, tag)
		} else {
			b, err = d.skip(b, rest, tag, 3)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) resourceAttr(pair []byte) error {
	key, raw, err := d.pair(pair)
	if err != nil {
		return err
	}
	v, kind, err := d.value(raw)
	if err != nil {
		return err
	}
	switch kind {
	case isString:
		d.build.ResourceText(key, v.Text)
	case isArray: // host.ip is a list
		text, err := d.firstText(v.Text)
		if err != nil {
			return err
		}
		d.build.ResourceText(key, text)
	case isNothing, isScalar:
	}
	if found := d.keys.Find(key); found != ingest.Unwanted && kind >= isScalar {
		d.build.SharedAttr(found, key, v)
	}
	return nil
}

// scopeSpans reads spans and their scope. The scope may follow its spans, as pdata writes it. If it contains requested
// data, the spans are then read again. Every scope has a name, so if scope names are requested, the scope is read first
// instead.
func (d *Decoder) scopeSpans(message []byte) error {
	shared, mark := d.build.Shared(), d.build.Mark()
	defer d.build.Unshare(shared)
	d.scopeName = nil
	if d.scoped {
		if err := d.scopeFields(message, true, false); err != nil {
			return err
		}
		d.shareScopeName()
		return d.scopeFields(message, false, true)
	}
	if err := d.scopeFields(message, true, true); err != nil || d.build.Shared() == shared {
		return err
	}
	d.build.Rollback(mark)
	return d.scopeFields(message, false, true)
}

// scopeFields reads the scope in b if scope is set, and the spans if spans is set.
func (d *Decoder) scopeFields(b []byte, scope, spans bool) error {
	for len(b) > 0 {
		tag, rest, err := d.tag(b)
		if err != nil {
			return err
		}
		switch tag {
		case scopeSpansScope, scopeSpansSpans, scopeSpansURL:
			field, rest, ok := bytesField(rest)
			if !ok {
				return d.failure(b, errTruncated)
			}
			if spans && tag == scopeSpansSpans {
				err = d.span(field)
			} else if scope && tag == scopeSpansScope {
				err = d.scope(field)
			}
			b = rest
		default:
			b, err = d.skip(b, rest, tag, 3)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) scope(b []byte) error {
	for len(b) > 0 {
		tag, rest, err := d.tag(b)
		if err != nil {
			return err
		}
		switch tag {
		case scopeName, scopeAttributes:
			field, rest, ok := bytesField(rest)
			if !ok {
				return d.failure(b, errTruncated)
			}
			if tag == scopeName {
				d.scopeName = field
			} else if err := d.scopeAttr(field); err != nil {
				return err
			}
			b = rest
		case scopeVersion, scopeDropped:
			b, err = d.pass(b, rest, tag)
		default:
			b, err = d.skip(b, rest, tag, 4)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shareScopeName adds the name of the current scope, if requested, to the attributes of its spans, after the scope's
// attributes.
func (d *Decoder) shareScopeName() {
	if found := d.keys.Find(scopeKey); found != ingest.Unwanted && len(d.scopeName) != 0 {
		d.build.SharedAttr(found, scopeKey, ingest.Value{Text: d.scopeName})
	}
}

func (d *Decoder) scopeAttr(pair []byte) error {
	key, raw, err := d.pair(pair)
	if err != nil {
		return err
	}
	found := d.keys.Find(key)
	if found == ingest.Unwanted {
		return nil
	}
	v, kind, err := d.value(raw)
	if err == nil && kind >= isScalar {
		d.build.SharedAttr(found, key, v)
	}
	return err
}

// span reads one span, whose fields may be in any order. This is the hot loop, so it makes only one pass.
func (d *Decoder) span(b []byte) error {
	s := d.build
	s.Span()
	for i := 0; i < len(b); {
		tag, at := uint64(b[i]), i
		if i++; tag >= 0x80 {
			v, n := protowire.ConsumeVarint(b[at:])
			if tag, i = v, at+n; n < 0 {
				return d.failure(b[at:], errTruncated)
			}
		}
		if tag&7 != length {
			n, err := d.spanScalar(b[at:], b[i:], tag)
			if err != nil {
				return err
			}
			i += n
			continue
		}
		var n, from int
		if i < len(b) && b[i] < 0x80 {
			n, from = int(b[i]), i+1
		} else {
			n, from = longSize(b, i)
		}
		if n > len(b)-from {
			return d.failure(b[at:], errTruncated)
		}
		i = from + n
		field := b[from:i]
		var err error
		switch tag {
		case spanAttributes:
			err = d.attr(field)
		case spanTraceID:
			s.Trace = field
		case spanID:
			s.ID = field
		case spanParent:
			s.Parent = field
		case spanName:
			s.Name = field
		case spanLinks:
			err = d.link(field)
		case spanStatus:
			err = d.status(field)
		case spanEvents:
			d.event(field)
		case spanState:
		default:
			err = d.unknown(b[at:], tag, spanFlags>>3)
		}
		if err != nil {
			return err
		}
	}
	s.EndSpan()
	return nil
}

// spanScalar reads a field of the current span that isn't length-delimited, and returns the size of its value at the
// start of rest. The field itself starts at b.
func (d *Decoder) spanScalar(b, rest []byte, tag uint64) (size int, err error) {
	s := d.build
	switch tag {
	case spanStart:
		if len(rest) >= 8 {
			s.Start = binary.LittleEndian.Uint64(rest)
			return 8, nil
		}
	case spanEnd:
		if len(rest) >= 8 {
			s.End = binary.LittleEndian.Uint64(rest)
			return 8, nil
		}
	case spanFlags:
		if len(rest) >= 4 {
			d.flags(binary.LittleEndian.Uint32(rest))
			return 4, nil
		}
	case spanKind:
		v, n := protowire.ConsumeVarint(rest)
		if n > 0 {
			s.Kind = kindOf(int32(v))
			return n, nil
		}
	default:
		if tag != spanDropped && tag != spanDroppedEv && tag != spanDroppedLi {
			if err := d.unknown(b, tag, spanFlags>>3); err != nil {
				return 0, err
			}
		}
		after, err := d.pass(b, rest, tag)
		return len(rest) - len(after), err
	}
	return 0, d.failure(b, errTruncated)
}

func kindOf(v int32) trace.Kind {
	if v < int32(trace.Unspecified) || v > int32(trace.Consumer) {
		return trace.Unspecified
	}
	return trace.Kind(v)
}

// flags sets the flags of the current span from v, the value of Span.flags.
func (d *Decoder) flags(v uint32) {
	d.build.Flags &^= trace.RemoteParent
	if v&flagHasRemote != 0 && v&flagRemote != 0 {
		d.build.Flags |= trace.RemoteParent
	}
}

// attr reads an attribute of the current span if its key is requested.
func (d *Decoder) attr(pair []byte) error {
	var key, value []byte
	// Fast path: a key and a value of less than 128 bytes each, in either order (pdata writes fields backwards).
	if n := len(pair); n >= 4 && n < 0x80 && int(pair[1]) < n-3 {
		if k := 2 + int(pair[1]); int(pair[k+1]) == n-k-2 {
			if tags := uint64(pair[0])<<8 | uint64(pair[k]); tags == pairValue<<8|pairKey {
				key, value = pair[k+2:], pair[2:k]
			} else if tags == pairKey<<8|pairValue {
				key, value = pair[2:k], pair[k+2:]
			}
		}
	}
	if len(key) == 0 {
		var err error
		if key, value, err = d.pair(pair); err != nil {
			return err
		}
	}
	found := d.keys.Find(key)
	if found == ingest.Unwanted {
		return nil
	}
	if d.keys.Identifies(found) {
		switch n := len(value) - 2; {
		case 0 <= n && n < 0x80 && uint64(value[0]) == valueString && int(value[1]) == n:
			d.build.Identify(found, value[2:])
			return nil
		case n == 1 && uint64(value[0]) == valueInt && value[1] >= 0x80 && value[2] < 0x80:
			d.build.IdentifyNumber(found, uint16(value[1])&0x7f|uint16(value[2])<<7)
			return nil
		}
	}
	v, kind, err := d.value(value)
	if err == nil && kind >= isScalar {
		d.build.Attr(found, key, v)
	}
	return err
}

// pair reads a KeyValue. It returns an error if the value comes in several pieces: protobuf would merge them, but no
// encoder writes them.
func (d *Decoder) pair(b []byte) (key, value []byte, err error) {
	for len(b) > 0 {
		tag, rest, err := d.tag(b)
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
					return nil, nil, d.failure(b, errTwice)
				}
				value = v
			}
		case pairIndex:
			_, rest, ok = varintField(rest)
		default:
			if rest, err = d.skip(b, rest, tag, 3); err != nil {
				return nil, nil, err
			}
			ok = true
		}
		if !ok {
			return nil, nil, d.failure(b, errTruncated)
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
func (d *Decoder) value(b []byte) (v ingest.Value, kind valueKind, err error) {
	if n := len(b) - 2; n >= 0 && n < 0x80 && uint64(b[0]) == valueString && int(b[1]) == n { // fast path
		return ingest.Value{Text: b[2:]}, isString, nil
	}
	if len(b) == 3 && uint64(b[0]) == valueInt && b[1] >= 0x80 && b[2] < 0x80 { // a status or a port
		return ingest.Value{Number: float64(int(b[1])&0x7f | int(b[2])<<7), Numeric: true}, isScalar, nil
	}
	for len(b) > 0 {
		tag, rest, err := d.tag(b)
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
				v, kind = ingest.Value{Number: math.Float64frombits(binary.LittleEndian.Uint64(rest)), Numeric: true}, isScalar
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
			if rest, err = d.skip(b, rest, tag, 8); err != nil {
				return v, isNothing, err
			}
		}
		if !ok {
			return v, isNothing, d.failure(b, errTruncated)
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
func (d *Decoder) firstText(b []byte) ([]byte, error) {
	for len(b) > 0 {
		tag, rest, err := d.tag(b)
		if err != nil {
			return nil, err
		}
		if tag != arrayValues {
			if b, err = d.skip(b, rest, tag, 1); err != nil {
				return nil, err
			}
			continue
		}
		element, _, ok := bytesField(rest)
		if !ok {
			return nil, d.failure(b, errTruncated)
		}
		v, kind, err := d.value(element)
		if kind != isString {
			return nil, err
		}
		return v.Text, err
	}
	return nil, nil
}

func (d *Decoder) status(b []byte) error {
	for len(b) > 0 {
		tag, rest, err := d.tag(b)
		if err != nil {
			return err
		}
		var ok bool
		switch tag {
		case statusCode:
			var code uint64
			code, rest, ok = varintField(rest)
			d.statusCode(int32(code))
		case statusMessage:
			_, rest, ok = bytesField(rest)
		default:
			if tag>>3 == 1 { // formerly a deprecated code
				rest, err = d.skip(b, rest, tag, 0)
			} else {
				rest, err = d.skip(b, rest, tag, 3)
			}
			if err != nil {
				return err
			}
			ok = true
		}
		if !ok {
			return d.failure(b, errTruncated)
		}
		b = rest
	}
	return nil
}

// statusCode sets the status of the current span. An unknown code counts as unset.
func (d *Decoder) statusCode(code int32) {
	status := ingest.StatusUnset
	if code == int32(ingest.StatusOK) || code == int32(ingest.StatusError) {
		status = ingest.Status(code)
	}
	d.build.Status(status)
}

// event reads an event of the current span. It ignores a malformed event, because the span is usable without it.
func (d *Decoder) event(b []byte) {
	exception, escape := false, ingest.EscapeUnknown
	for len(b) > 0 {
		tag, rest, err := d.tag(b)
		if err != nil {
			return
		}
		if tag != eventName && tag != eventAttributes {
			if b, err = d.pass(b, rest, tag); err != nil {
				return
			}
			continue
		}
		field, rest, ok := bytesField(rest)
		if !ok {
			return
		}
		if tag == eventName {
			exception = string(field) == ingest.ExceptionEvent
		} else if key, raw, err := d.pair(field); err == nil && string(key) == ingest.ExceptionEscaped {
			v, _, _ := d.value(raw)
			escape = ingest.EscapeOf(v)
		}
		b = rest
	}
	if exception {
		d.build.Exception(escape)
	}
}

func (d *Decoder) link(b []byte) error {
	var traceID, spanID []byte
	join := false
	for len(b) > 0 {
		tag, rest, err := d.tag(b)
		if err != nil {
			return err
		}
		var ok bool
		switch tag {
		case linkTraceID:
			traceID, rest, ok = bytesField(rest)
		case linkSpanID:
			spanID, rest, ok = bytesField(rest)
		case linkAttributes:
			var pair []byte
			if pair, rest, ok = bytesField(rest); ok {
				joins, err := d.joins(pair)
				if err != nil {
					return err
				}
				join = join || joins
			}
		case linkState, linkDropped, linkFlags:
			rest, err = d.pass(b, rest, tag)
			ok = true
		default:
			rest, err = d.skip(b, rest, tag, 6)
			ok = true
		}
		if err != nil {
			return err
		}
		if !ok {
			return d.failure(b, errTruncated)
		}
		b = rest
	}
	d.build.Link(traceID, spanID, join)
	return nil
}

// joins reports whether pair is sibyl.join=true.
func (d *Decoder) joins(pair []byte) (bool, error) {
	key, value, err := d.pair(pair)
	if err != nil || string(key) != trace.KeyJoin {
		return false, err
	}
	v, kind, err := d.value(value)
	return kind >= isScalar && v.True(), err
}

// tag reads the tag at the start of b, which must not be empty.
func (d *Decoder) tag(b []byte) (tag uint64, rest []byte, err error) {
	if b[0] >= 0x08 && b[0] < 0x80 {
		return uint64(b[0]), b[1:], nil
	}
	tag, n := protowire.ConsumeVarint(b)
	if n < 0 {
		return 0, nil, d.failure(b, errTruncated)
	}
	if num, _ := protowire.DecodeTag(tag); !num.IsValid() {
		return 0, nil, d.failure(b, errField)
	}
	return tag, b[n:], nil
}

// pass skips the value of a field of any number. rest starts after the tag at b.
func (d *Decoder) pass(b, rest []byte, tag uint64) ([]byte, error) {
	n := protowire.ConsumeFieldValue(protowire.Number(tag>>3), protowire.Type(tag&7), rest)
	if n < 0 {
		return nil, d.failure(b, protowire.ParseError(n))
	}
	return rest[n:], nil
}

// skip skips an unknown field. It returns an error if the field number is at most known, that is, if a known field has
// the wrong wire type.
func (d *Decoder) skip(b, rest []byte, tag, known uint64) ([]byte, error) {
	if err := d.unknown(b, tag, known); err != nil {
		return nil, err
	}
	return d.pass(b, rest, tag)
}

// unknown returns an error unless tag belongs to an unknown field. A field number of at most known means that a known
// field has the wrong wire type.
func (d *Decoder) unknown(b []byte, tag, known uint64) error {
	switch num, _ := protowire.DecodeTag(tag); {
	case !num.IsValid():
		return d.failure(b, errField)
	case tag>>3 <= known:
		return d.failure(b, errWireType)
	}
	return nil
}

// longSize reads a length at b[i:] and returns it with the index after it. If the length is invalid, n is greater than
// the length of any slice.
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

// longBytesField is bytesField without the fast path for values under 128 bytes.
func longBytesField(b []byte) (value, rest []byte, ok bool) {
	n, size := protowire.ConsumeVarint(b)
	if size < 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return b[size : size+int(n)], b[size+int(n):], true
}

// varintField reads a varint at the start of b. ok is false if there isn't a valid one.
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
