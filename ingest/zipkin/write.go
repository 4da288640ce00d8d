package zipkin

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/ingest/internal/protowriter"
	"github.com/sibyl-trace/sibyl/trace"
)

// Field numbers of OTLP.
const (
	resourceSpans = protowire.Number(1) // of a request

	resource           = protowire.Number(1) // of ResourceSpans
	scopes             = protowire.Number(2)
	resourceAttributes = protowire.Number(1)
	scopeSpans         = protowire.Number(2)

	spanTraceID    = protowire.Number(1)
	spanID         = protowire.Number(2)
	spanParent     = protowire.Number(4)
	spanName       = protowire.Number(5)
	spanKind       = protowire.Number(6)
	spanStart      = protowire.Number(7)
	spanEnd        = protowire.Number(8)
	spanAttributes = protowire.Number(9)
	spanEvents     = protowire.Number(11)
	spanStatus     = protowire.Number(15)

	eventTime = protowire.Number(1)
	eventName = protowire.Number(2)

	statusMessage = protowire.Number(2)
	statusCode    = protowire.Number(3)

	pairKey     = protowire.Number(1)
	pairValue   = protowire.Number(2)
	valueString = protowire.Number(1)
	valueInt    = protowire.Number(3)

	statusOK    = 1
	statusError = 2
)

// endResource writes the current resource with the spans collected for it, unless there are no spans.
func (t *translator) endResource() {
	if len(t.spans.Bytes) == 0 {
		return
	}
	message(&t.out, resourceSpans, func() {
		message(&t.out, resource, func() {
			if len(t.resource.service) > 0 {
				attribute(&t.out, resourceAttributes, "service.name", t.resource.service)
			}
			if len(t.resource.address) > 0 {
				attribute(&t.out, resourceAttributes, "host.ip", t.resource.address)
			}
		})
		t.out.Text(scopes, t.spans.Bytes)
	})
	t.spans.Bytes = t.spans.Bytes[:0]
}

// message writes a message whose contents can't fail.
func message(w *protowriter.Writer, number protowire.Number, write func()) {
	_ = w.Message(number, func() error { write(); return nil })
}

// attribute writes an attribute with a text value as the field with the given number.
func attribute(w *protowriter.Writer, number protowire.Number, key string, value []byte) {
	message(w, number, func() {
		w.Text(pairKey, []byte(key))
		message(w, pairValue, func() { w.Text(valueString, value) })
	})
}

func (t *translator) writeSpan(s *span) error {
	w := &t.spans
	w.Text(spanTraceID, s.trace.bytes[:])
	w.Text(spanID, s.id.span())
	if !s.parent.isZero() {
		w.Text(spanParent, s.parent.span())
	}
	w.Text(spanName, s.name)
	kind := s.otlpKind()
	w.Varint(spanKind, uint64(kind))
	w.Fixed64(spanStart, uint64(s.timestamp.n)*1000)
	w.Fixed64(spanEnd, uint64(s.timestamp.n+s.duration.n)*1000)
	for i := range s.tags {
		writeTag(w, &s.tags[i])
	}
	s.writeEndpoints(w, kind)
	for i := range s.annotations {
		a := &s.annotations[i]
		message(w, spanEvents, func() {
			w.Fixed64(eventTime, uint64(a.at.n)*1000)
			w.Text(eventName, a.value)
		})
	}
	s.writeStatus(w)
	return nil
}

// otlpKind returns the kind of s, or INTERNAL if s has no kind. Bridges write kinds that Zipkin doesn't have as a tag.
func (s *span) otlpKind() trace.Kind {
	name := s.kind
	if len(name) == 0 {
		name = s.tag("span.kind")
	}
	if kind, ok := trace.ParseKind(strings.ToLower(string(name))); ok && kind != trace.Unspecified {
		return kind
	}
	return trace.Internal
}

// tag returns the value of the first tag with the given key, or nil.
func (s *span) tag(key string) []byte {
	for i := range s.tags {
		if string(s.tags[i].key) == key {
			return s.tags[i].value
		}
	}
	return nil
}

// numberTags are the tags whose values are numbers according to the semantic conventions.
var numberTags = map[string]bool{
	"http.status_code": true, "http.response.status_code": true, "rpc.grpc.status_code": true, "grpc.status_code": true,
}

// writeTag writes t as an attribute. An empty tag "error" marks a failure, but an empty attribute doesn't, so writeTag
// writes it as "true".
func writeTag(w *protowriter.Writer, t *tag) {
	if string(t.key) == "error" && len(t.value) == 0 {
		attribute(w, spanAttributes, "error", []byte("true"))
		return
	}
	n, err := strconv.ParseUint(string(t.value), 10, 31)
	if err != nil || !numberTags[string(t.key)] {
		attribute(w, spanAttributes, string(t.key), t.value)
		return
	}
	message(w, spanAttributes, func() {
		w.Text(pairKey, t.key)
		message(w, pairValue, func() { w.Varint(valueInt, n) })
	})
}

// writeEndpoints writes the attributes of the remote endpoint, and the port of a server, unless a tag already has them.
func (s *span) writeEndpoints(w *protowriter.Writer, kind trace.Kind) {
	remoteAddress, remotePort, serverPort := "server.address", "server.port", []byte(nil)
	if kind == trace.Server {
		remoteAddress, remotePort, serverPort = "client.address", "client.port", s.local.port
	}
	for _, a := range []struct {
		key   string
		value []byte
	}{
		{"peer.service", s.remote.service},
		{remoteAddress, s.remote.address},
		{remotePort, s.remote.port},
		{"server.port", serverPort},
	} {
		if len(a.value) > 0 && s.tag(a.key) == nil {
			attribute(w, spanAttributes, a.key, a.value)
		}
	}
}

// writeStatus writes the status of s if a bridge from OpenTelemetry wrote it as tags. It leaves the tag "error" to the
// decoder, because Brave also sets that tag to response codes that mean that the client is at fault.
func (s *span) writeStatus(w *protowriter.Writer) {
	var code uint64
	switch string(s.tag("otel.status_code")) {
	case "ERROR":
		code = statusError
	case "OK":
		code = statusOK
	default:
		return
	}
	message(w, spanStatus, func() {
		if text := s.tag("otel.status_description"); len(text) > 0 {
			w.Text(statusMessage, text)
		}
		w.Varint(statusCode, code)
	})
}
