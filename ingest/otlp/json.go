package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/go-faster/jx"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/internal/jsonwalk"
	"github.com/sibyl-trace/sibyl/trace"
)

// Errors for valid JSON that is not a valid request.
var (
	errNumber  = errors.New("not a number in the range of its field")
	errEnum    = errors.New("not a name of its enumeration")
	errNesting = errors.New("a value nested more than 100 deep")
)

// UnknownError is the error for a document, or an element of one, that has an unknown field in place of the list of
// spans. Without this error, a document with a misspelt name would be accepted as empty.
type UnknownError struct {
	Field string // truncated to 40 bytes
	Want  string // the accepted names of the list
}

// Error returns a message with the field and the expected names.
func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown field %q, want %s: is this OTLP/JSON?", e.Field, e.Want)
}

func unknownField(key []byte, want string) error {
	return &UnknownError{Field: string(key[:min(len(key), 40)]), Want: want}
}

// JSON decodes data, one request in OTLP/JSON, and appends its spans to into, like [Decoder.Protobuf]. Field names may
// be in camel or snake case, or the names used by OTLP before 0.19 ("instrumentationLibrarySpans") and by Tempo
// ("batches"). Unknown fields are ignored, unless they take the place of a list that leads to the spans. 64-bit numbers
// may be strings, and enumerations may be names. Identifiers are in hexadecimal of either case, or in the padded base64
// of protobuf's JSON, which differs in length. An attribute value that doesn't match its type is converted, or ignored
// if that is impossible. The offset of an error points to the last field name before it.
func (d *Decoder) JSON(data []byte, into *ingest.Batch) error {
	return d.json.document(data, into, d.json.request)
}

// ResourceSpansJSON is like [Decoder.JSON], but for one element of the array "resourceSpans".
func (d *Decoder) ResourceSpansJSON(data []byte, into *ingest.Batch) error {
	return d.json.document(data, into, d.json.resourceSpans)
}

// jsonDecoder decodes requests in JSON.
type jsonDecoder struct {
	output

	walk    jsonwalk.Walker
	traceID [16]byte // buffers for the identifiers of a span
	spanID  [8]byte
	parent  [8]byte
}

func (d *jsonDecoder) document(data []byte, into *ingest.Batch, read func(*jx.Decoder) error) error {
	mark := into.Mark()
	d.build.Begin(into)
	err := d.walk.Record(data, read)
	d.scopeName = nil
	if err != nil {
		into.Rollback(mark)
	}
	return err
}

func (d *jsonDecoder) request(j *jx.Decoder) error {
	return requestFields(&d.walk, j, d.resourceSpans)
}

// requestFields reads a request and calls read for each element of its resourceSpans. The request may be in the
// envelope of Jaeger's API, {"result": request}, or of Tempo's, {"trace": request}.
func requestFields(w *jsonwalk.Walker, j *jx.Decoder, read func(*jx.Decoder) error) error {
	known := false
	var unknown []byte
	err := w.Fields(j, func(key []byte) error {
		switch string(key) {
		case "resourceSpans", "resource_spans", "batches":
			known = true
			return w.Elements(j, read)
		case "result", "trace":
			known = true
			if j.Next() == jx.Object {
				return envelopeFields(w, j, read)
			}
		default:
			unknown = key
		}
		return j.Skip()
	})
	if err == nil && !known && unknown != nil {
		err = unknownField(unknown, "resourceSpans, batches")
	}
	return err
}

// envelopeFields is like requestFields, but reads a request inside an envelope, where unknown fields are not an error.
func envelopeFields(w *jsonwalk.Walker, j *jx.Decoder, read func(*jx.Decoder) error) error {
	return w.Fields(j, func(key []byte) error {
		switch string(key) {
		case "resourceSpans", "resource_spans", "batches":
			return w.Elements(j, read)
		}
		return j.Skip()
	})
}

func (d *jsonDecoder) resourceSpans(j *jx.Decoder) error {
	d.build.NewResource()
	return d.prefixed(j, &resourceSpansLevel, d.resource, d.scopeSpans)
}

func (d *jsonDecoder) scopeSpans(j *jx.Decoder) error {
	defer d.build.Unshare(d.build.Shared())
	return d.prefixed(j, &scopeSpansLevel, d.scope, d.span)
}

// level describes a message that consists of a head, such as a resource, and a list of elements that the head applies
// to.
type level struct {
	heads, lists []string // alternative JSON names of the head and of the list
	want         string   // names of the list, for error messages
}

var (
	resourceSpansLevel = level{
		heads: []string{"resource"},
		lists: []string{"scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans"},
		want:  "scopeSpans, instrumentationLibrarySpans",
	}
	scopeSpansLevel = level{
		heads: []string{"scope", "instrumentationLibrary", "instrumentation_library"},
		lists: []string{"spans"},
		want:  "spans",
	}
)

// prefixed reads a message of level l. If the list comes before the head, prefixed reads the list last. An unknown
// field in place of the list is an error.
func (d *jsonDecoder) prefixed(j *jx.Decoder, l *level, readHead, readElement func(*jx.Decoder) error) error {
	known, listed := false, false
	var later []jx.Raw
	var unknown []byte
	err := d.walk.Fields(j, func(key []byte) error {
		switch {
		case slices.Contains(l.heads, string(key)):
			if known {
				return errTwice
			}
			known = true
			return readHead(j)
		case slices.Contains(l.lists, string(key)):
			listed = true
			if known {
				return d.walk.Elements(j, readElement)
			}
			raw, err := j.Raw()
			later = append(later, raw)
			return err
		case j.Next() == jx.Array:
			unknown = key
		}
		return j.Skip()
	})
	for _, raw := range later {
		if err == nil {
			err = d.walk.Elements(jx.DecodeBytes(raw), readElement)
		}
	}
	if err == nil && !listed && unknown != nil {
		err = unknownField(unknown, l.want)
	}
	return err
}

func (d *jsonDecoder) resource(j *jx.Decoder) error {
	return d.walk.Fields(j, func(key []byte) error {
		if string(key) != "attributes" {
			return j.Skip()
		}
		return d.walk.Elements(j, func(j *jx.Decoder) error {
			key, v, kind, err := d.pair(j, nil)
			if err != nil {
				return err
			}
			if kind == isString || kind == isArray {
				d.build.ResourceText(key, v.Text)
			}
			if found := d.keys.Find(key); found != ingest.Unwanted && kind >= isScalar {
				d.build.SharedAttr(found, key, v)
			}
			return nil
		})
	})
}

func (d *jsonDecoder) scope(j *jx.Decoder) error {
	d.scopeName = nil
	err := d.walk.Fields(j, func(key []byte) error {
		switch string(key) {
		case "name":
			var err error
			d.scopeName, err = jsonwalk.Text(j)
			return err
		case "attributes":
			return d.walk.Elements(j, func(j *jx.Decoder) error {
				key, v, kind, err := d.pair(j, d.keys)
				if err == nil && kind >= isScalar {
					d.build.SharedAttr(d.keys.Find(key), key, v)
				}
				return err
			})
		}
		return j.Skip()
	})
	d.shareScopeName()
	return err
}

func (d *jsonDecoder) span(j *jx.Decoder) error {
	s := d.build
	s.Span()
	err := d.walk.Fields(j, func(key []byte) error {
		var err error
		switch string(key) {
		case "traceId", "trace_id":
			s.Trace, err = d.identifier(j, d.traceID[:], ingest.TraceIDDefect)
		case "spanId", "span_id":
			s.ID, err = d.identifier(j, d.spanID[:], ingest.SpanIDDefect)
		case "parentSpanId", "parent_span_id":
			s.Parent, err = d.identifier(j, d.parent[:], ingest.ParentIDDefect)
		case "name":
			s.Name, err = jsonwalk.Text(j)
		case "kind":
			var kind int32
			kind, err = enumJSON(j, kinds)
			s.Kind = kindOf(kind)
		case "startTimeUnixNano", "start_time_unix_nano":
			s.Start, err = d.time(j)
		case "endTimeUnixNano", "end_time_unix_nano":
			s.End, err = d.time(j)
		case "flags":
			var v uint32
			v, err = flagsJSON(j)
			d.flags(v)
		case "status":
			err = d.status(j)
		case "attributes":
			err = d.walk.Elements(j, d.attr)
		case "links":
			err = d.walk.Elements(j, d.link)
		case "events":
			err = d.walk.Elements(j, d.event)
		default:
			err = j.Skip()
		}
		return err
	})
	if err == nil {
		s.EndSpan()
	}
	return err
}

var (
	kinds = map[string]int32{
		"SPAN_KIND_UNSPECIFIED": 0, "SPAN_KIND_INTERNAL": 1, "SPAN_KIND_SERVER": 2,
		"SPAN_KIND_CLIENT": 3, "SPAN_KIND_PRODUCER": 4, "SPAN_KIND_CONSUMER": 5,
	}
	statusCodes = map[string]int32{"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}
)

// identifier reads an identifier into buf and returns buf, or nil if the identifier is empty. If the identifier is
// invalid, it returns the text itself and adds defect to the current span.
func (d *jsonDecoder) identifier(j *jx.Decoder, buf []byte, defect ingest.Defect) ([]byte, error) {
	id, err := idJSON(j, buf)
	if len(id) != 0 && &id[0] != &buf[0] {
		d.build.Cause |= defect
	}
	return id, err
}

// flagsJSON reads a 32-bit unsigned integer. It returns errNumber if the value is out of range.
func flagsJSON(j *jx.Decoder) (uint32, error) {
	v, ok, err := uintJSON(j)
	if err == nil && (!ok || v > 1<<32-1) {
		err = errNumber
	}
	return uint32(v), err
}

// time reads a time. An invalid time is a defect of the current span, not an error.
func (d *jsonDecoder) time(j *jx.Decoder) (uint64, error) {
	v, ok, err := uintJSON(j)
	if !ok {
		d.build.Cause |= ingest.TimeDefect
	}
	return v, err
}

func (d *jsonDecoder) status(j *jx.Decoder) error {
	return d.walk.Fields(j, func(key []byte) error {
		if string(key) != "code" {
			return j.Skip()
		}
		code, err := enumJSON(j, statusCodes)
		d.statusCode(code)
		return err
	})
}

func (d *jsonDecoder) attr(j *jx.Decoder) error {
	key, v, kind, err := d.pair(j, d.keys)
	if err == nil && kind >= isScalar {
		d.build.Attr(d.keys.Find(key), key, v)
	}
	return err
}

// event reads an event of the current span. The only attribute value that it decodes is exception.escaped, because a
// span is usable even if its events have malformed values.
func (d *jsonDecoder) event(j *jx.Decoder) error {
	exception, escape := false, ingest.EscapeUnknown
	err := d.walk.Fields(j, func(key []byte) error {
		switch string(key) {
		case "name":
			name, err := jsonwalk.Text(j)
			exception = string(name) == ingest.ExceptionEvent
			return err
		case "attributes":
			return d.walk.Elements(j, func(j *jx.Decoder) error {
				key, raw, err := d.rawPair(j)
				if err == nil && raw != nil && string(key) == ingest.ExceptionEscaped {
					v, _, _ := d.value(jx.DecodeBytes(raw))
					escape = ingest.EscapeOf(v)
				}
				return err
			})
		}
		return j.Skip()
	})
	if exception {
		d.build.Exception(escape)
	}
	return err
}

// rawPair reads a KeyValue without decoding its value.
func (d *jsonDecoder) rawPair(j *jx.Decoder) (key []byte, value jx.Raw, err error) {
	err = d.walk.Fields(j, func(field []byte) error {
		var err error
		switch string(field) {
		case "key":
			key, err = jsonwalk.Text(j)
		case "value":
			value, err = j.Raw()
		default:
			err = j.Skip()
		}
		return err
	})
	return key, value, err
}

func (d *jsonDecoder) link(j *jx.Decoder) error {
	var traceID [16]byte
	var spanID [8]byte
	var t, s []byte
	join := false
	err := d.walk.Fields(j, func(key []byte) error {
		var err error
		switch string(key) {
		case "traceId", "trace_id":
			t, err = idJSON(j, traceID[:])
		case "spanId", "span_id":
			s, err = idJSON(j, spanID[:])
		case "attributes":
			err = d.walk.Elements(j, func(j *jx.Decoder) error {
				key, v, kind, err := d.pair(j, d.keys)
				join = join || kind >= isScalar && string(key) == trace.KeyJoin && v.True()
				return err
			})
		default:
			err = j.Skip()
		}
		return err
	})
	if len(t) != 0 && len(s) != 0 && &t[0] == &traceID[0] && &s[0] == &spanID[0] {
		d.build.Link(t, s, join)
	}
	return err
}

// pair reads a KeyValue. If key is not in wanted, pair skips the value and returns isNothing. A nil wanted contains all
// keys.
func (d *jsonDecoder) pair(j *jx.Decoder, wanted *ingest.Keys) (key []byte, v ingest.Value, kind valueKind, err error) {
	var later jx.Raw
	known := false
	err = d.walk.Fields(j, func(field []byte) error {
		var err error
		switch string(field) {
		case "key":
			key, err = jsonwalk.Text(j)
			known = true
		case "value":
			switch {
			case !known:
				later, err = j.Raw()
			case wanted != nil && wanted.Find(key) == ingest.Unwanted:
				err = j.Skip()
			default:
				later = nil // the last value counts
				v, kind, err = d.value(j)
			}
		default:
			err = j.Skip()
		}
		return err
	})
	if err == nil && later != nil && (wanted == nil || wanted.Find(key) != ingest.Unwanted) {
		v, kind, err = d.value(jx.DecodeBytes(later))
	}
	return key, v, kind, err
}

// value reads an AnyValue. For a list it returns isArray, and the first element if that is a string.
func (d *jsonDecoder) value(j *jx.Decoder) (v ingest.Value, kind valueKind, err error) {
	if j.Next() != jx.Object {
		return v, isNothing, j.Skip()
	}
	err = d.walk.Fields(j, func(key []byte) error {
		if j.Next() == jx.Null && string(key) != "stringValue" && string(key) != "string_value" {
			return j.Null()
		}
		var err error
		ok := false
		read, readKind := ingest.Value{}, isScalar
		switch string(key) {
		case "stringValue", "string_value":
			readKind = isString
			read.Text, ok, err = lenientText(j)
		case "boolValue", "bool_value":
			var b bool
			b, ok, err = lenientBool(j)
			read = boolValue(b)
		case "intValue", "int_value":
			var n int64
			n, ok, err = lenientInt(j)
			read = ingest.Value{Number: float64(n), Numeric: true}
		case "doubleValue", "double_value":
			read.Numeric = true
			read.Number, ok, err = lenientFloat(j)
		case "arrayValue", "array_value":
			ok, readKind = j.Next() == jx.Object, isArray
			read.Text, err = d.firstText(j)
		case "kvlistValue", "kvlist_value", "bytesValue", "bytes_value", "stringValueStrindex", "string_value_strindex":
			ok, readKind = true, isNothing
			err = j.Skip()
		default:
			err = j.Skip()
		}
		if ok {
			v, kind = read, readKind
		}
		return err
	})
	return v, kind, err
}

// firstText reads an ArrayValue and returns its first element if that is a string, or nil.
func (d *jsonDecoder) firstText(j *jx.Decoder) (text []byte, err error) {
	if j.Next() != jx.Object {
		return nil, j.Skip()
	}
	first := true
	err = d.walk.Fields(j, func(key []byte) error {
		if string(key) != "values" || j.Next() != jx.Array {
			return j.Skip()
		}
		return d.walk.Elements(j, func(j *jx.Decoder) error {
			if !first || j.Next() != jx.Object {
				first = false
				return j.Skip()
			}
			first = false
			return d.walk.Fields(j, func(key []byte) error {
				var err error
				switch string(key) {
				case "stringValue", "string_value":
					text, _, err = lenientText(j)
				default:
					err = j.Skip()
				}
				return err
			})
		})
	})
	return text, err
}

// idJSON reads an identifier into id and returns id, or nil if the text is empty. The text must encode len(id) bytes in
// hexadecimal or padded base64, which differ in length. If it doesn't, idJSON returns the text itself.
func idJSON(j *jx.Decoder, id []byte) ([]byte, error) {
	text, err := jsonwalk.Text(j)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	switch n := len(text); {
	case n == 2*len(id):
		if _, err := hex.Decode(id, text); err == nil {
			return id, nil
		}
	case n == base64.StdEncoding.EncodedLen(len(id)):
		var raw [18]byte // room for an identifier without padding
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			if n, err := encoding.Decode(raw[:], text); err == nil && n == len(id) {
				copy(id, raw[:])
				return id, nil
			}
		}
	}
	return text, nil
}

// uintJSON reads an unsigned integer or a string that contains one; null counts as 0. ok is false for any other value,
// and if the integer doesn't fit into 64 bits.
func uintJSON(j *jx.Decoder) (v uint64, ok bool, err error) {
	digits, err := digitsJSON(j)
	if err != nil || digits == nil {
		return 0, err == nil, err
	}
	v, negative, ok := wholeNumber(digits)
	if !ok || negative {
		return 0, false, nil
	}
	return v, true, nil
}

// wholeNumber returns the absolute value and the sign of text, a decimal number such as -12, 12.0 or 1.2e1. ok is false
// if text isn't a number, has a fractional part, or exceeds 64 bits.
func wholeNumber(text []byte) (v uint64, negative, ok bool) {
	if negative = len(text) > 0 && text[0] == '-'; negative {
		text = text[1:]
	}
	mantissa, exponent := text, 0
	if e := bytes.IndexAny(text, "eE"); e >= 0 {
		var err error
		if exponent, err = strconv.Atoi(string(text[e+1:])); err != nil || exponent < -400 || exponent > 400 {
			return 0, false, false
		}
		mantissa = text[:e]
	}
	zeros := 0 // zeros read but not yet counted; they matter only before another digit
	digits, point := 0, false
	for _, c := range mantissa {
		switch {
		case c == '.' && !point && digits > 0:
			point = true
			continue
		case c < '0' || c > '9':
			return 0, false, false
		}
		digits++
		if point {
			exponent--
		}
		if zeros++; c == '0' {
			continue
		}
		if v, ok = shifted(v, zeros); !ok || v > math.MaxUint64-uint64(c-'0') {
			return 0, false, false
		}
		v, zeros = v+uint64(c-'0'), 0
	}
	if exponent += zeros; digits == 0 || v != 0 && exponent < 0 {
		return 0, false, false
	}
	v, ok = shifted(v, exponent)
	return v, negative && v != 0, ok
}

// shifted returns v with n decimal zeros appended. It returns false if the result exceeds 64 bits.
func shifted(v uint64, n int) (uint64, bool) {
	for ; n > 0 && v != 0; n-- {
		if v > math.MaxUint64/10 {
			return 0, false
		}
		v *= 10
	}
	return v, true
}

// digitsJSON reads a number or a string and returns its text. It returns nil for null.
func digitsJSON(j *jx.Decoder) ([]byte, error) {
	switch j.Next() {
	case jx.String:
		return j.StrBytes()
	case jx.Null:
		return nil, j.Null()
	case jx.Number, jx.Bool, jx.Array, jx.Object, jx.Invalid:
	}
	return j.Num()
}

// lenientText reads a scalar as text. Like the other lenient functions, it returns false instead of an error for a
// value that can't be converted. Encoders in weakly typed languages often confuse the types of attributes, and we don't
// want to refuse their requests for that.
func lenientText(j *jx.Decoder) (text []byte, ok bool, err error) {
	switch j.Next() {
	case jx.String, jx.Number, jx.Null:
		text, err = digitsJSON(j)
		return text, true, err
	case jx.Bool:
		b, err := j.Bool()
		return boolValue(b).Text, true, err
	case jx.Array, jx.Object, jx.Invalid:
	}
	return nil, false, j.Skip()
}

func lenientBool(j *jx.Decoder) (b, ok bool, err error) {
	text, ok, err := lenientText(j)
	if !ok || err != nil {
		return false, false, err
	}
	b, bad := strconv.ParseBool(string(text))
	return b, bad == nil, nil
}

func lenientInt(j *jx.Decoder) (n int64, ok bool, err error) {
	text, ok, err := lenientText(j)
	if !ok || err != nil {
		return 0, false, err
	}
	v, negative, ok := wholeNumber(text)
	switch {
	case !ok || v > 1<<63 || v == 1<<63 && !negative:
		return 0, false, nil
	case negative:
		return -int64(v), true, nil
	}
	return int64(v), true, nil
}

func lenientFloat(j *jx.Decoder) (n float64, ok bool, err error) {
	text, ok, err := lenientText(j)
	if !ok || err != nil {
		return 0, false, err
	}
	n, bad := strconv.ParseFloat(string(text), 64)
	return n, bad == nil, nil
}

// enumJSON reads an enumeration value by number or by its name in names; null counts as 0. It returns errEnum for an
// unknown name.
func enumJSON(j *jx.Decoder, names map[string]int32) (int32, error) {
	switch j.Next() {
	case jx.Null:
		return 0, j.Null()
	case jx.String:
		name, err := j.StrBytes()
		if err != nil {
			return 0, err
		}
		v, ok := names[string(name)]
		if !ok {
			return 0, errEnum
		}
		return v, nil
	case jx.Number, jx.Bool, jx.Array, jx.Object, jx.Invalid:
	}
	return j.Int32()
}
