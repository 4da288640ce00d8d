package tracepoint

import (
	"cmp"
	"slices"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// Catalogue returns the tracepoints of r, ascending by ID: the tracepoints that plans can enable, and the baseline
// spans seen so far. It omits tracepoints whose IDs are too long, and all tracepoints beyond [protocol.MaxCatalogue].
func (r *Registry) Catalogue() []protocol.Tracepoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]protocol.Tracepoint, 0, len(r.points))
	for _, p := range r.points {
		t := p.info
		t.ID, t.Service = p.id, r.service
		t.Owner, t.OwnerKind = p.ownerHint()
		if t.Parent != "" {
			t.Parent = r.service + "/" + t.Parent
		}
		if len(t.ID) <= protocol.MaxText {
			list = append(list, t)
		}
	}
	protocol.SortCatalogue(list)
	return list[:min(len(list), protocol.MaxCatalogue)]
}

// sorted returns the points ordered by scope, name and kind. The caller must hold r.mu.
func (r *Registry) sorted() []*Point {
	keys := make([]pointKey, 0, len(r.points))
	for k := range r.points {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b pointKey) int {
		return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.name, b.name), cmp.Compare(a.kind, b.kind))
	})
	list := make([]*Point, len(keys))
	for i, k := range keys {
		list[i] = r.points[k]
	}
	return list
}

// validText reports whether s consists of 1 to limit bytes of printable characters.
func validText(s string, limit int) bool {
	if s == "" || len(s) > limit || !utf8.ValidString(s) {
		return false
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return false
		}
	}
	return true
}

func spanKind(k trace.SpanKind) protocol.SpanKind {
	switch trace.ValidateSpanKind(k) {
	case trace.SpanKindServer:
		return protocol.Server
	case trace.SpanKindClient:
		return protocol.Client
	case trace.SpanKindProducer:
		return protocol.Producer
	case trace.SpanKindConsumer:
		return protocol.Consumer
	case trace.SpanKindInternal, trace.SpanKindUnspecified:
	}
	return protocol.Internal
}
