package otlp

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/trace"
)

// Numbers of the fields that lead from a request to the ID of a trace, the same at each level.
const (
	fieldResourceSpans protowire.Number = 1 // of a request
	fieldScopeSpans    protowire.Number = 2 // of ResourceSpans
	fieldSpans         protowire.Number = 2 // of ScopeSpans
	fieldTraceID       protowire.Number = 1 // of Span
)

// AppendTrace appends the spans of one trace in a protobuf request, with their resources and scopes and everything they carry, to b. What
// it appends is a request too, and so is b then if it was one before. Without a span of the trace it appends nothing.
func AppendTrace(b, request []byte, id trace.ID) ([]byte, error) {
	return extract(b, request, fieldResourceSpans, func(b, resource []byte) ([]byte, error) {
		return extract(b, resource, fieldScopeSpans, func(b, scope []byte) ([]byte, error) {
			return extract(b, scope, fieldSpans, func(b, span []byte) ([]byte, error) {
				if !bytes.Contains(span, id[:]) { // of most spans of a large request
					return b, nil
				}
				of, err := traceOf(span)
				if err != nil || string(of) != string(id[:]) {
					return b, err
				}
				return append(b, span...), nil
			})
		})
	})
}

// extract appends message to b, with what inner appends for each field of the given number in its place. If inner appends nothing for
// any of them, neither does extract.
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
				b = closeField(b, at, head)
			}
		}
		message = message[tag+size:]
	}
	if !found {
		b = b[:before]
	}
	return b, nil
}

// closeField writes the length of a field whose tag is at b[at:] and whose content, which is no longer than there is room for, at b[head:].
func closeField(b []byte, at, head int) []byte {
	content := b[head:]
	end := protowire.AppendVarint(b[:at+1], uint64(len(content))) // tags of small numbers take one byte
	return append(end, content...)
}

// traceOf returns the bytes of a span's trace ID: of the last one, as the protobuf specification has it.
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
