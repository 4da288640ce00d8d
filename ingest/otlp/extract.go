package otlp

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/trace"
)

// Field numbers on the path from a request to a trace ID.
const (
	fieldResourceSpans protowire.Number = 1    // of a request
	fieldScopeSpans    protowire.Number = 2    // of ResourceSpans
	fieldLibrarySpans  protowire.Number = 1000 // former field of ResourceSpans
	fieldSpans         protowire.Number = 2    // of ScopeSpans
	fieldTraceID       protowire.Number = 1    // of Span
)

// AppendTrace appends to b the spans in request, which is encoded in protobuf, that belong to the trace with the given
// id, with their resources, scopes and all other data. The appended bytes are a request, and if b was a request, the
// result is one, too. AppendTrace appends nothing if request contains no span of the trace.
func AppendTrace(b, request []byte, id trace.ID) ([]byte, error) {
	return extract(b, request, fieldResourceSpans, func(b, resource []byte) ([]byte, error) {
		appended, err := appendScopes(b, resource, fieldScopeSpans, id)
		if len(appended) == len(b) && err == nil {
			return appendScopes(b, resource, fieldLibrarySpans, id)
		}
		return appended, err
	})
}

// appendScopes appends to b the ResourceSpans in resource. Of the field with the given number, it appends only the
// spans of the trace with the given id.
func appendScopes(b, resource []byte, number protowire.Number, id trace.ID) ([]byte, error) {
	return extract(b, resource, number, func(b, scope []byte) ([]byte, error) {
		return extract(b, scope, fieldSpans, func(b, span []byte) ([]byte, error) {
			if !bytes.Contains(span, id[:]) { // fast path for most spans of a large request
				return b, nil
			}
			of, err := traceOf(span)
			if err != nil || string(of) != string(id[:]) {
				return b, err
			}
			return append(b, span...), nil
		})
	})
}

// extract appends message to b, with each field of the given number replaced by the output of inner. If inner appends
// nothing for any field, extract appends nothing.
func extract(b, message []byte, number protowire.Number, inner func(b, field []byte) ([]byte, error)) ([]byte, error) {
	before, found := len(b), false
	for len(message) > 0 {
		num, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return b[:before], fmt.Errorf("extract a trace: %w", protowire.ParseError(tag))
		}
		size := protowire.ConsumeFieldValue(num, kind, message[tag:])
		if size < 0 {
			return b[:before], fmt.Errorf("extract a trace: %w", protowire.ParseError(size))
		}
		if num != number || kind != protowire.BytesType {
			b = append(b, message[:tag+size]...)
		} else {
			field, _ := protowire.ConsumeBytes(message[tag:])
			at := len(b)
			b = protowire.AppendTag(b, number, protowire.BytesType)
			b = append(b, make([]byte, protowire.SizeVarint(uint64(len(field))))...)
			head := len(b)
			var err error
			if b, err = inner(b, field); err != nil {
				return b[:before], err
			}
			if len(b) == head {
				b = b[:at]
			} else {
				found = true
				b = closeField(b, at+protowire.SizeTag(number), head)
			}
		}
		message = message[tag+size:]
	}
	if !found {
		b = b[:before]
	}
	return b, nil
}

// closeField writes the length of a field at b[at:] and moves the field's contents from b[head:] to directly after the
// length. The length must fit into b[at:head].
func closeField(b []byte, at, head int) []byte {
	content := b[head:]
	end := protowire.AppendVarint(b[:at], uint64(len(content)))
	return append(end, content...)
}

// traceOf returns the trace ID of span, or nil if span has no trace ID. If span has several, the last one counts, as
// the protobuf specification requires.
func traceOf(span []byte) (id []byte, err error) {
	for len(span) > 0 {
		num, kind, tag := protowire.ConsumeTag(span)
		if tag < 0 {
			return nil, fmt.Errorf("extract a trace: %w", protowire.ParseError(tag))
		}
		size := protowire.ConsumeFieldValue(num, kind, span[tag:])
		if size < 0 {
			return nil, fmt.Errorf("extract a trace: %w", protowire.ParseError(size))
		}
		if num == fieldTraceID && kind == protowire.BytesType {
			id, _ = protowire.ConsumeBytes(span[tag:])
		}
		span = span[tag+size:]
	}
	return id, nil
}
