package otlp

import (
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/go-faster/jx"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/internal/jsonwalk"
	"github.com/sibyl-trace/sibyl/trace"
)

// Errors in valid JSON that is no valid request.
var (
	errNumber = errors.New("not a number in the range of its field")
	errEnum   = errors.New("not a name of its enumeration")
)

// JSON decodes one request in OTLP/JSON and appends its spans to into, as [Decoder.Protobuf] does. Field names may be
// in camel or snake case; unknown ones are ignored. Numbers of 64 bits may be strings, enumerations may be names, and
// identifiers are hexadecimal in either case. The offset of an error is that of the last field name before it.
func (d *Decoder) JSON(data []byte, into *ingest.Batch) error {
	return d.document(data, into, d.requestJSON)
}

// ResourceSpansJSON is like [Decoder.JSON] for one element of the array "resourceSpans".
func (d *Decoder) ResourceSpansJSON(data []byte, into *ingest.Batch) error {
	return d.document(data, into, d.resourceSpansJSON)
}

func (d *Decoder) document(data []byte, into *ingest.Batch, read func(*jx.Decoder) error) error {
	mark := into.Mark()
	d.build.Begin(into)
	err := d.walk.Record(data, read)
	d.scopeName = nil
	if err != nil {
		into.Rollback(mark)
	}
	return err
}

// requestJSON reads a request, with or without the envelope of Jaeger's API, {"result": request}.
func (d *Decoder) requestJSON(j *jx.Decoder) error {
	return d.walk.Fields(j, func(key []byte) error {
		switch string(key) {
		case "resourceSpans", "resource_spans":
			return jsonwalk.Elements(j, d.resourceSpansJSON)
		case "result":
			return d.envelopeJSON(j)
		}
		return j.Skip()
	})
}

func (d *Decoder) envelopeJSON(j *jx.Decoder) error {
	if j.Next() != jx.Object {
		return j.Skip()
	}
	return d.walk.Fields(j, func(key []byte) error {
		switch string(key) {
		case "resourceSpans", "resource_spans":
			return jsonwalk.Elements(j, d.resourceSpansJSON)
		}
		return j.Skip()
	})
}

func (d *Decoder) resourceSpansJSON(j *jx.Decoder) error {
	d.build.NewResource()
	return d.prefixed(j, "resource", d.resourceJSON, "scopeSpans", "scope_spans", d.scopeSpansJSON)
}

func (d *Decoder) scopeSpansJSON(j *jx.Decoder) error {
	defer d.build.Unshare(d.build.Shared())
	return d.prefixed(j, "scope", d.scopeJSON, "spans", "spans", d.spanJSON)
}

// prefixed reads an object that contains a head and a list of elements that the head applies to. If the list comes
// first, it is read at the end of the object.
func (d *Decoder) prefixed(j *jx.Decoder, head string, readHead func(*jx.Decoder) error,
	list, listSnake string, readElement func(*jx.Decoder) error,
) error {
	known := false
	var later []jx.Raw
	err := d.walk.Fields(j, func(key []byte) error {
		switch string(key) {
		case head:
			if known {
				return errTwice
			}
			known = true
			return readHead(j)
		case list, listSnake:
			if known {
				return jsonwalk.Elements(j, readElement)
			}
			raw, err := j.Raw()
			later = append(later, raw)
			return err
		}
		return j.Skip()
	})
	for _, raw := range later {
		if err == nil {
			err = jsonwalk.Elements(jx.DecodeBytes(raw), readElement)
		}
	}
	return err
}

func (d *Decoder) resourceJSON(j *jx.Decoder) error {
	return d.walk.Fields(j, func(key []byte) error {
		if string(key) != "attributes" {
			return j.Skip()
		}
		return jsonwalk.Elements(j, func(j *jx.Decoder) error {
			key, v, kind, err := d.pairJSON(j, nil)
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

func (d *Decoder) scopeJSON(j *jx.Decoder) error {
	d.scopeName = nil
	err := d.walk.Fields(j, func(key []byte) error {
		switch string(key) {
		case "name":
			var err error
			d.scopeName, err = jsonwalk.Text(j)
			return err
		case "attributes":
			return jsonwalk.Elements(j, func(j *jx.Decoder) error {
				key, v, kind, err := d.pairJSON(j, d.keys)
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

func (d *Decoder) spanJSON(j *jx.Decoder) error {
	s := d.build
	s.Span()
	err := d.walk.Fields(j, func(key []byte) error {
		var err error
		switch string(key) {
		case "traceId", "trace_id":
			if s.Trace, err = hexJSON(j, d.traceID[:]); err == nil && len(s.Trace) != 0 && &s.Trace[0] != &d.traceID[0] {
				s.Cause = ingest.TraceIDDefect
			}
		case "spanId", "span_id":
			if s.ID, err = hexJSON(j, d.spanID[:]); err == nil && len(s.ID) != 0 && &s.ID[0] != &d.spanID[0] {
				s.Cause = ingest.SpanIDDefect
			}
		case "parentSpanId", "parent_span_id":
			if s.Parent, err = hexJSON(j, d.parent[:]); err == nil && len(s.Parent) != 0 && &s.Parent[0] != &d.parent[0] {
				s.Cause = ingest.SpanIDDefect
			}
		case "name":
			s.Name, err = jsonwalk.Text(j)
		case "kind":
			var kind int32
			kind, err = enumJSON(j, kinds)
			s.Kind = kindOf(kind)
		case "startTimeUnixNano", "start_time_unix_nano":
			s.Start, err = d.timeJSON(j)
		case "endTimeUnixNano", "end_time_unix_nano":
			s.End, err = d.timeJSON(j)
		case "flags":
			var v uint64
			var ok bool
			if v, ok, err = uintJSON(j); err == nil && (!ok || v > 1<<32-1) {
				err = errNumber
			}
			d.flags(uint32(v))
		case "status":
			err = d.statusJSON(j)
		case "attributes":
			err = jsonwalk.Elements(j, d.attrJSON)
		case "links":
			err = jsonwalk.Elements(j, d.linkJSON)
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
	statusCodes = map[string]int32{"STATUS_CODE_UNSET": 0, "STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": statusError}
)

// timeJSON reads a time. An invalid one is a defect of the span, not of the request.
func (d *Decoder) timeJSON(j *jx.Decoder) (uint64, error) {
	v, ok, err := uintJSON(j)
	if !ok {
		d.build.Cause = ingest.TimeDefect
	}
	return v, err
}

func (d *Decoder) statusJSON(j *jx.Decoder) error {
	return d.walk.Fields(j, func(key []byte) error {
		if string(key) != "code" {
			return j.Skip()
		}
		code, err := enumJSON(j, statusCodes)
		d.statusCode(code)
		return err
	})
}

func (d *Decoder) attrJSON(j *jx.Decoder) error {
	key, v, kind, err := d.pairJSON(j, d.keys)
	if err == nil && kind >= isScalar {
		d.build.Attr(d.keys.Find(key), key, v)
	}
	return err
}

func (d *Decoder) linkJSON(j *jx.Decoder) error {
	var traceID [16]byte
	var spanID [8]byte
	var t, s []byte
	join := false
	err := d.walk.Fields(j, func(key []byte) error {
		var err error
		switch string(key) {
		case "traceId", "trace_id":
			t, err = hexJSON(j, traceID[:])
		case "spanId", "span_id":
			s, err = hexJSON(j, spanID[:])
		case "attributes":
			err = jsonwalk.Elements(j, func(j *jx.Decoder) error {
				key, v, kind, err := d.pairJSON(j, d.keys)
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

// pairJSON reads a KeyValue. It skips values of keys outside wanted and returns isNothing for them; a nil wanted
// contains all keys.
func (d *Decoder) pairJSON(j *jx.Decoder, wanted *ingest.Keys) (key []byte, v ingest.Value, kind valueKind, err error) {
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
				v, kind, err = d.valueJSON(j)
			}
		default:
			err = j.Skip()
		}
		return err
	})
	if err == nil && later != nil && (wanted == nil || wanted.Find(key) != ingest.Unwanted) {
		v, kind, err = d.valueJSON(jx.DecodeBytes(later))
	}
	return key, v, kind, err
}

// valueJSON reads an AnyValue. For a list it returns isArray and the first element, if that is a string.
func (d *Decoder) valueJSON(j *jx.Decoder) (v ingest.Value, kind valueKind, err error) {
	err = d.walk.Fields(j, func(key []byte) error {
		if j.Next() == jx.Null && string(key) != "stringValue" && string(key) != "string_value" {
			return j.Null()
		}
		var err error
		switch string(key) {
		case "stringValue", "string_value":
			v, kind = ingest.Value{}, isString
			v.Text, err = jsonwalk.Text(j)
		case "boolValue", "bool_value":
			var b bool
			b, err = j.Bool()
			v, kind = boolValue(b), isScalar
		case "intValue", "int_value":
			v, kind = ingest.Value{Numeric: true}, isScalar
			v.Number, err = intJSON(j)
		case "doubleValue", "double_value":
			v, kind = ingest.Value{Numeric: true}, isScalar
			v.Number, err = floatJSON(j)
		case "arrayValue", "array_value":
			v, kind = ingest.Value{}, isArray
			v.Text, err = d.firstTextJSON(j)
		case "kvlistValue", "kvlist_value", "bytesValue", "bytes_value", "stringValueStrindex", "string_value_strindex":
			v, kind = ingest.Value{}, isNothing
			err = j.Skip()
		default:
			err = j.Skip()
		}
		return err
	})
	return v, kind, err
}

func (d *Decoder) firstTextJSON(j *jx.Decoder) (text []byte, err error) {
	first := true
	err = d.walk.Fields(j, func(key []byte) error {
		if string(key) != "values" {
			return j.Skip()
		}
		return jsonwalk.Elements(j, func(j *jx.Decoder) error {
			if !first {
				return j.Skip()
			}
			first = false
			return d.walk.Fields(j, func(key []byte) error {
				var err error
				switch string(key) {
				case "stringValue", "string_value":
					text, err = jsonwalk.Text(j)
				default:
					err = j.Skip()
				}
				return err
			})
		})
	})
	return text, err
}

// hexJSON reads an identifier into id and returns id. It returns nil for an empty identifier, and the text itself if it
// is not len(id) bytes in hexadecimal.
func hexJSON(j *jx.Decoder, id []byte) ([]byte, error) {
	text, err := jsonwalk.Text(j)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	if len(text) != 2*len(id) {
		return text, nil
	}
	if _, err := hex.Decode(id, text); err != nil {
		return text, nil //nolint:nilerr // the caller compares the result with id
	}
	return id, nil
}

// uintJSON reads an unsigned number or a string that contains one; null is 0. It returns false if the value is
// something else or does not fit into 64 bits.
func uintJSON(j *jx.Decoder) (v uint64, ok bool, err error) {
	digits, err := digitsJSON(j)
	if err != nil || digits == nil {
		return 0, err == nil, err
	}
	for _, c := range digits {
		if c < '0' || c > '9' || v > (1<<64-1-uint64(c-'0'))/10 {
			return 0, false, nil
		}
		v = v*10 + uint64(c-'0')
	}
	return v, len(digits) != 0, nil
}

// digitsJSON returns the text of a number or a string, or nil for null.
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

func intJSON(j *jx.Decoder) (float64, error) {
	digits, err := digitsJSON(j)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, errNumber
	}
	return float64(v), nil
}

func floatJSON(j *jx.Decoder) (float64, error) {
	digits, err := digitsJSON(j)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(string(digits), 64)
	if err != nil {
		return 0, errNumber
	}
	return v, nil
}

// enumJSON reads a value of an enumeration by number or name; null is 0.
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
