package wild

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/trace"
)

// encoder writes traces as OTLP, one ExportTraceServiceRequest each.
type encoder struct {
	app       *app
	resources map[*pod][]byte // encoded
}

func newEncoder(a *app) *encoder { return &encoder{app: a, resources: make(map[*pod][]byte)} }

// append appends a trace to b, with a ResourceSpans for each process in the order of its first span.
func (e *encoder) append(b []byte, w *recorded) []byte {
	var pods []*pod
	known := make(map[*pod]bool)
	for i := range w.spans {
		if p := w.spans[i].pod; !known[p] {
			known[p] = true
			pods = append(pods, p)
		}
	}
	for _, p := range pods {
		scope := []byte{}
		for i := range w.spans {
			if w.spans[i].pod == p {
				scope = message(scope, 2, e.span(nil, w, &w.spans[i]))
			}
		}
		body := message(nil, 1, e.resource(p))
		b = message(b, 1, message(body, 2, scope))
	}
	return b
}

func (e *encoder) resource(p *pod) []byte {
	b, ok := e.resources[p]
	if !ok {
		for _, a := range e.app.resource(p) {
			b = message(b, 1, keyValue(a))
		}
		e.resources[p] = b
	}
	return b
}

func (e *encoder) span(b []byte, w *recorded, s *span) []byte {
	b = message(b, 1, w.id[:])
	b = message(b, 2, binary.BigEndian.AppendUint64(nil, s.id))
	if s.parent != 0 {
		b = message(b, 4, binary.BigEndian.AppendUint64(nil, s.parent))
	}
	b = message(b, 5, []byte(s.name))
	b = protowire.AppendVarint(protowire.AppendTag(b, 6, protowire.VarintType), uint64(s.kind))
	b = fixed(b, 7, uint64(s.start))
	b = fixed(b, 8, uint64(s.end))
	for _, a := range s.attrs {
		b = message(b, 9, keyValue(a))
	}
	if s.exception != "" {
		event := fixed(nil, 1, uint64(s.end))
		event = message(event, 2, []byte("exception"))
		event = message(event, 3, keyValue(attr{key: "exception.message", text: s.exception}))
		b = message(b, 11, event)
	}
	if s.link != 0 {
		link := message(nil, 1, s.linked[:])
		b = message(b, 13, message(link, 2, binary.BigEndian.AppendUint64(nil, s.link)))
	}
	if s.failed {
		const failed = 2
		status := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), failed)
		b = message(b, 15, status)
	}
	return protowire.AppendFixed32(protowire.AppendTag(b, 16, protowire.Fixed32Type), e.flags(s))
}

// flags returns the flags of a span: sampled and, in some installations, whether the parent is remote.
func (e *encoder) flags(s *span) uint32 {
	const sampled, knows, remote = 1, 1 << 8, 1 << 9
	switch {
	case !e.app.style.remote:
		return sampled
	case s.remote:
		return sampled | knows | remote
	}
	return sampled | knows
}

// keyValue returns a KeyValue. If the text is empty, the value is a number.
func keyValue(a attr) []byte {
	var value []byte
	if a.text != "" {
		value = message(nil, 1, []byte(a.text))
	} else {
		value = protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), uint64(a.number))
	}
	return message(message(nil, 1, []byte(a.key)), 2, value)
}

func message(b []byte, field protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), body)
}

func fixed(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), v)
}

// end returns the end of the last span by its clock, which orders recordings.
func (w *recorded) end() (end trace.Nanos) {
	for i := range w.spans {
		end = max(end, w.spans[i].end, w.spans[i].start)
	}
	return end
}
