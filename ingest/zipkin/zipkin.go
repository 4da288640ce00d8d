// Package zipkin translates Zipkin's JSON, version 2, to OTLP. It accepts lists of spans, which reporters post to
// /api/v2/spans, and lists of traces, which Zipkin's query API returns.
//
// A span without a kind is INTERNAL. The local endpoint becomes the resource, and the remote endpoint becomes the
// callee or the client. Tags become attributes, as text except for status codes. The tag error becomes the attribute
// error, which the decoder interprets by its usual rules; an empty tag becomes "true". Annotations become events. A
// server that continues the span of its client ("shared") keeps the common ID; package critpath distinguishes the two.
// Identifiers are hexadecimal and may lack leading zeros.
//
// The translation is protobuf, so that package otlp can decode it and a journal needs no additional format. It is at
// most about twice as large as the input, for any input.
//
// Source: Zipkin's zipkin2-api.yaml.
package zipkin

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/go-faster/jx"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/internal/jsonwalk"
	"github.com/sibyl-trace/sibyl/ingest/internal/protowriter"
	"github.com/sibyl-trace/sibyl/trace"
)

var (
	errVersion = errors.New("version 1 of Zipkin's JSON: use version 2, as of /api/v2")
	errOTLP    = errors.New("a span with a spanId outside of resourceSpans: it belongs to no service")
	errOther   = errors.New("not a span of Zipkin: it has neither traceId nor id")
)

// Translate returns the spans of a document as a protobuf-encoded OTLP request, and the spans that it omitted, by
// reason. The error is an *[ingest.RecordError] with the offset of the last field name before the error.
func Translate(data []byte) (request []byte, rejected []ingest.Rejection, err error) {
	var t translator
	t.walk.Limited = true
	if err := t.walk.Record(data, t.document); err != nil {
		return nil, nil, err
	}
	t.endResource()
	return t.out.Bytes, t.rejected.Rejected, nil
}

type translator struct {
	walk     jsonwalk.Walker
	out      protowriter.Writer // resources
	spans    protowriter.Writer // spans of the current resource
	resource endpoint           // current resource
	rejected ingest.Batch       // only the rejected spans are used
	span     span               // current span
}

// span holds the fields of a span, which may come in any order. Its texts refer to the document.
type span struct {
	trace, id, parent id
	name, kind        []byte
	timestamp         micros
	duration          micros
	local, remote     endpoint
	tags              []tag
	annotations       []annotation
}

// endpoint is one side of a call: the local service or the remote one. Unknown fields are empty.
type endpoint struct{ service, address, port []byte }

func (e *endpoint) equal(o *endpoint) bool {
	return bytes.Equal(e.service, o.service) && bytes.Equal(e.address, o.address)
}

type tag struct{ key, value []byte }

type annotation struct {
	at    micros
	value []byte
}

// micros is a time or duration in microseconds. It is usable only if valid is set. given distinguishes invalid values
// from missing ones.
type micros struct {
	n            int64
	given, valid bool
}

// id is an identifier. The bytes of a span ID are the last eight.
type id struct {
	bytes [16]byte
	text  []byte // text as given
	bad   bool   // not hexadecimal, or too long
}

// document reads a list of spans, a list of lists of spans, or a single span.
func (t *translator) document(j *jx.Decoder) error {
	if j.Next() != jx.Array {
		return t.readSpan(j)
	}
	return t.walk.Elements(j, func(j *jx.Decoder) error {
		if j.Next() == jx.Array {
			return t.walk.Elements(j, t.readSpan)
		}
		return t.readSpan(j)
	})
}

func (t *translator) readSpan(j *jx.Decoder) error {
	s := &t.span
	*s = span{tags: s.tags[:0], annotations: s.annotations[:0]}
	err := t.walk.Fields(j, func(key []byte) error {
		var err error
		switch string(key) {
		case "traceId":
			err = s.trace.read(j, 32)
		case "id":
			err = s.id.read(j, 16)
		case "parentId":
			err = s.parent.read(j, 16)
		case "name":
			s.name, err = scalar(j)
		case "kind":
			s.kind, err = scalar(j)
		case "timestamp":
			err = s.timestamp.read(j)
		case "duration":
			err = s.duration.read(j)
		case "localEndpoint":
			err = t.readEndpoint(j, &s.local)
		case "remoteEndpoint":
			err = t.readEndpoint(j, &s.remote)
		case "tags":
			err = t.readTags(j)
		case "annotations":
			err = t.readAnnotations(j)
		case "binaryAnnotations":
			err = errVersion
		case "spanId":
			err = errOTLP
		default:
			err = j.Skip()
		}
		return err
	})
	if err == nil && len(s.trace.text)+len(s.id.text) == 0 {
		err = errOther
	}
	if err != nil {
		return err
	}
	if reason, detail := s.defect(); reason != "" {
		t.rejected.Reject(reason, detail, 1)
		return nil
	}
	if !s.local.equal(&t.resource) {
		t.endResource()
		t.resource = s.local
	}
	return t.spans.Message(scopeSpans, func() error { return t.writeSpan(s) })
}

// scalar reads a text, number or bool as text. It skips other values and returns nil.
func scalar(j *jx.Decoder) ([]byte, error) {
	switch j.Next() {
	case jx.String:
		return j.StrBytes()
	case jx.Number, jx.Bool:
		return j.Raw()
	case jx.Null, jx.Array, jx.Object, jx.Invalid:
	}
	return nil, j.Skip()
}

func (t *translator) readEndpoint(j *jx.Decoder, e *endpoint) error {
	if j.Next() != jx.Object {
		return j.Skip()
	}
	return t.walk.Fields(j, func(key []byte) error {
		text, err := scalar(j)
		switch {
		case len(text) == 0:
		case string(key) == "serviceName":
			e.service = text
		case string(key) == "ipv4", string(key) == "ipv6" && e.address == nil:
			e.address = text
		case string(key) == "port" && string(text) != "0":
			e.port = text
		}
		return err
	})
}

func (t *translator) readTags(j *jx.Decoder) error {
	if j.Next() != jx.Object {
		return j.Skip()
	}
	return t.walk.Fields(j, func(key []byte) error {
		if err := t.walk.Count(); err != nil {
			return err
		}
		value, err := scalar(j)
		t.span.tags = append(t.span.tags, tag{key, value})
		return err
	})
}

func (t *translator) readAnnotations(j *jx.Decoder) error {
	if j.Next() != jx.Array {
		return j.Skip()
	}
	return t.walk.Elements(j, func(j *jx.Decoder) error {
		var a annotation
		if j.Next() != jx.Object {
			return j.Skip()
		}
		err := t.walk.Fields(j, func(key []byte) error {
			var err error
			switch string(key) {
			case "timestamp":
				err = a.at.read(j)
			case "value":
				a.value, err = scalar(j)
			default:
				err = j.Skip()
			}
			return err
		})
		if a.at.valid && a.at.n >= 0 {
			t.span.annotations = append(t.span.annotations, a)
		}
		return err
	})
}

// read reads an identifier of at most `most` hexadecimal digits, not counting leading zeros. It sets bad if the text
// isn't such an identifier.
func (d *id) read(j *jx.Decoder, most int) error {
	var err error
	if d.text, err = scalar(j); err != nil || len(d.text) == 0 {
		return err
	}
	digits := bytes.TrimLeft(d.text[:max(0, len(d.text)-most)], "0")
	if len(digits) > 0 {
		d.bad = true
		return nil
	}
	padded := [32]byte([]byte("00000000000000000000000000000000"))
	last := d.text[max(0, len(d.text)-most):]
	copy(padded[32-len(last):], last)
	_, err = hex.Decode(d.bytes[:], padded[:])
	d.bad = err != nil
	return nil
}

func (d *id) isZero() bool { return d.bytes == [16]byte{} }

func (d *id) span() []byte { return d.bytes[8:] }

// read reads a number, or a text that contains one.
func (m *micros) read(j *jx.Decoder) error {
	text, err := scalar(j)
	if err != nil || text == nil {
		return err
	}
	v, bad := strconv.ParseFloat(string(text), 64)
	m.given, m.valid = true, bad == nil && math.Abs(v) <= float64(trace.MaxNanos/1000)
	if m.valid {
		m.n = int64(v)
	}
	return nil
}

// defect returns the reason why s can't be used and a description, or "" if s is usable. Before that, it sets a missing
// timestamp from the first annotation.
func (s *span) defect() (trace.Reason, string) {
	if !s.timestamp.given && len(s.annotations) > 0 {
		s.timestamp = s.annotations[0].at
	}
	end := s.timestamp.n + s.duration.n
	switch {
	case s.trace.bad || s.trace.isZero():
		return trace.BadTraceID, badID("traceId", &s.trace, 32)
	case s.id.bad || s.id.isZero():
		return trace.BadSpanID, badID("id", &s.id, 16)
	case s.parent.bad:
		return trace.BadSpanID, badID("parentId", &s.parent, 16)
	case !s.timestamp.given:
		return trace.BadTime, fmt.Sprintf("span %x has no timestamp", s.id.span())
	case !s.timestamp.valid || s.timestamp.n < 0 || s.duration.given && !s.duration.valid:
		return trace.BadTime,
			fmt.Sprintf("timestamp or duration of span %x is negative, too large, or not a number", s.id.span())
	case end < 0 || end > int64(trace.MaxNanos/1000):
		return trace.BadTime, fmt.Sprintf("span %x ends outside of the years 1970 to 2262", s.id.span())
	}
	return "", ""
}

func badID(field string, d *id, digits int) string {
	switch {
	case d.bad:
		return fmt.Sprintf("%s %q: want at most %d hexadecimal digits", field, d.text[:min(len(d.text), 40)], digits)
	case len(d.text) == 0:
		return field + " is missing"
	}
	return field + " is zero"
}
