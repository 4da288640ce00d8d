package otlp

import (
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Protobuf decodes one request and appends its spans to into, where it also counts invalid spans. If data is not a
// request, it returns an *[ingest.RecordError] and leaves into unchanged. The batch doesn't retain data. Protobuf takes
// time linear in len(data) and, apart from the batch, bounded memory.
func (d *Decoder) Protobuf(data []byte, into *ingest.Batch) error {
	mark := into.Mark()
	p := &d.protobuf
	p.data = slices.Clip(data)
	p.left = math.MaxInt
	if p.limited {
		p.left = ingest.MaxRecords(len(data), ingest.MinRecord)
	}
	p.build.Begin(into)
	err := p.request(p.data)
	p.data = nil
	if err != nil {
		into.Rollback(mark)
	}
	return err
}

// protobufDecoder decodes requests in protobuf.
type protobufDecoder struct {
	wire
	output

	scoped  bool // scope names are requested
	limited bool // the number of records is limited
	left    int  // number of further records that the request may have
}

// count counts a record, whose field starts at b. It returns an error if the request has too many records.
func (d *protobufDecoder) count(b []byte) error {
	if d.left--; d.left < 0 {
		return d.excess(b)
	}
	return nil
}

func (d *protobufDecoder) excess(b []byte) error {
	return &ingest.RecordError{Reason: trace.TooLarge, Offset: d.position(b), Err: ingest.ErrRecords}
}

func (d *protobufDecoder) request(b []byte) error {
	return d.fields(b, &requestMessage, func(_ uint64, at, value []byte) error {
		if err := d.count(at); err != nil {
			return err
		}
		return d.resourceSpans(value)
	})
}

// resourceSpans reads all data of the resource first, because the resource may follow its spans. Encoders of OTLP 0.15
// to 0.19 write scope spans under their former field number, and some write them under both numbers.
func (d *protobufDecoder) resourceSpans(message []byte) error {
	d.build.NewResource()
	scopes, libraries := 0, 0
	err := d.fields(message, &resourceSpansMessage, func(tag uint64, at, value []byte) error {
		switch tag {
		case resourceSpansResource:
			return d.resource(value)
		case resourceSpansScope:
			scopes++
			return d.count(at)
		case resourceSpansLibrary:
			libraries++
			return d.count(at)
		}
		return nil
	})
	if err != nil {
		return err
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

func (d *protobufDecoder) resource(b []byte) error {
	return d.fields(b, &resourceMessage, func(_ uint64, at, pair []byte) error {
		if err := d.count(at); err != nil {
			return err
		}
		return d.resourceAttr(pair)
	})
}

func (d *protobufDecoder) resourceAttr(pair []byte) error {
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

// scopeSpans reads spans and their scope. The scope may follow its spans, as pdata writes it. If the scope turns out to
// contain requested data, scopeSpans reads the spans again. If scope names are requested, it reads the scope first
// instead, because every scope has a name.
func (d *protobufDecoder) scopeSpans(message []byte) error {
	shared, mark, left := d.build.Shared(), d.build.Mark(), d.left
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
	d.left = left
	return d.scopeFields(message, false, true)
}

// scopeFields reads the scope in b if scope is set, and the spans if spans is set.
func (d *protobufDecoder) scopeFields(b []byte, scope, spans bool) error {
	return d.fields(b, &scopeSpansMessage, func(tag uint64, at, value []byte) error {
		switch {
		case spans && tag == scopeSpansSpans:
			if err := d.count(at); err != nil {
				return err
			}
			return d.span(value)
		case scope && tag == scopeSpansScope:
			return d.scope(value)
		}
		return nil
	})
}

func (d *protobufDecoder) scope(b []byte) error {
	return d.fields(b, &scopeMessage, func(tag uint64, at, value []byte) error {
		if tag == scopeName {
			d.scopeName = value
			return nil
		}
		if err := d.count(at); err != nil {
			return err
		}
		return d.scopeAttr(value)
	})
}

func (d *protobufDecoder) scopeAttr(pair []byte) error {
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
func (d *protobufDecoder) span(b []byte) error {
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
			if d.left--; d.left < 0 {
				return d.excess(b[at:])
			}
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
			if err = d.count(b[at:]); err == nil {
				err = d.link(field)
			}
		case spanStatus:
			err = d.status(field)
		case spanEvents:
			d.event(field)
			err = d.count(b[at:])
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

// spanScalar reads a field of the current span that isn't length-delimited, and returns the size of its value. The
// field starts at b, and its value at rest.
func (d *protobufDecoder) spanScalar(b, rest []byte, tag uint64) (size int, err error) {
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

// attr reads an attribute of the current span if its key is requested.
func (d *protobufDecoder) attr(pair []byte) error {
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
	if d.keys.Interprets(found) {
		switch n := len(value) - 2; {
		case 0 <= n && n < 0x80 && uint64(value[0]) == valueString && int(value[1]) == n:
			d.build.Interpret(found, value[2:])
			return nil
		case n == 1 && uint64(value[0]) == valueInt && value[1] >= 0x80 && value[2] < 0x80:
			d.build.InterpretNumber(found, uint16(value[1])&0x7f|uint16(value[2])<<7)
			return nil
		}
	}
	v, kind, err := d.value(value)
	if err == nil && kind >= isScalar {
		d.build.Attr(found, key, v)
	}
	return err
}

func (d *protobufDecoder) status(b []byte) error {
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

// event reads an event of the current span. It ignores a malformed event, because the span is usable without it.
func (d *protobufDecoder) event(b []byte) {
	exception, escape := false, ingest.EscapeUnknown
	err := d.fields(b, &eventMessage, func(tag uint64, at, value []byte) error {
		if tag == eventName {
			exception = string(value) == ingest.ExceptionEvent
			return nil
		}
		if err := d.count(at); err != nil {
			return err // for the caller, which also counts
		}
		if key, raw, err := d.pair(value); err == nil && string(key) == ingest.ExceptionEscaped {
			v, _, _ := d.value(raw)
			escape = ingest.EscapeOf(v)
		}
		return nil
	})
	if err == nil && exception {
		d.build.Exception(escape)
	}
}

func (d *protobufDecoder) link(b []byte) error {
	var traceID, spanID []byte
	join := false
	err := d.fields(b, &linkMessage, func(tag uint64, at, value []byte) error {
		switch tag {
		case linkTraceID:
			traceID = value
		case linkSpanID:
			spanID = value
		case linkAttributes:
			if err := d.count(at); err != nil {
				return err
			}
			joins, err := d.joins(value)
			join = join || joins
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.build.Link(traceID, spanID, join)
	return nil
}
