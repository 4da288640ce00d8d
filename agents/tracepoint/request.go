package tracepoint

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// request is what was decided about a request, as far as this service goes, for what runs in one span of the baseline. It is
// immutable once others see it.
type request struct {
	registry *Registry
	owner    *Point // of that span; nil: it has none, or is not known
	arm      *arm   // nil: only the baseline is on
	version  int64  // of the plan that applies; 0: none
	draw     protocol.Draw
	filters  uint64 // that the request fits
	mark     string // what the request carries along
}

// on reports whether what s switches is on for the request.
func (q *request) on(s *switches) bool {
	if q.arm == nil {
		return false
	}
	for i := range s.settings {
		if x := &s.settings[i]; x.arm == q.arm {
			return (x.filters == 0 || x.filters&q.filters != 0) && q.draw.Passes(x.rate)
		}
	}
	return false
}

// below returns what was decided for what runs in a span of the given point.
func (q *request) below(owner *Point) *request {
	if q.owner == owner {
		return q
	}
	inner := *q
	inner.owner = owner
	return &inner
}

// entry is the span with which a request enters the service.
type entry struct {
	name       string
	kind       trace.SpanKind
	attributes []attribute.KeyValue
}

func (e *entry) attribute(key string) (string, bool) {
	for _, kv := range e.attributes {
		if string(kv.Key) == key {
			return kv.Value.String(), true
		}
	}
	return "", false
}

// requestOf returns what was decided about the request that a span with the context sc belongs to, and decides if nobody did.
func (r *Registry) requestOf(sc trace.SpanContext, e *entry) *request {
	if text := sc.TraceState().Get(protocol.TraceStateKey); text != "" {
		if m, ok := protocol.ParseMark(text); ok {
			return r.follow(m, text, sc.TraceID())
		}
	}
	return r.decide(sc.TraceID(), e)
}

// follow keeps to what was decided elsewhere.
func (r *Registry) follow(m protocol.Mark, text string, id trace.TraceID) *request {
	q := &request{registry: r, draw: protocol.DrawOf(id), filters: m.Filters, mark: text}
	if p := r.state.Load().of(m.Version); p != nil {
		q.version, q.arm = p.version, p.arm(m.Arm)
	}
	return q
}

// decide is for the first service that a request gets to.
func (r *Registry) decide(id trace.TraceID, e *entry) *request {
	q := &request{registry: r, draw: protocol.DrawOf(id)}
	p := r.state.Load().now
	if p == nil {
		q.mark = protocol.Mark{}.String()
		return q
	}
	q.version = p.version
	m := protocol.Mark{Version: p.version}
	if at := q.draw.Arm(p.source); at >= 0 {
		q.arm = p.arms[at]
		m.Arm = q.arm.name
	}
	for i := range p.source.Filters {
		if p.source.Filters[i].Matches(r.serviceName(), e.name, spanKind(e.kind), e.attribute) {
			m.Filters |= 1 << i
		}
	}
	if q.filters = m.Filters; q.filters == 0 && q.arm != nil {
		q.mark = q.arm.mark
	} else {
		q.mark = m.String()
	}
	return q
}

// carry returns sc with the request's mark.
func (q *request) carry(sc trace.SpanContext) trace.SpanContext {
	s := sc.TraceState()
	if s.Get(protocol.TraceStateKey) == q.mark {
		return sc
	}
	with, err := s.Insert(protocol.TraceStateKey, q.mark)
	if err != nil {
		return sc // the program that this runs in goes on; the next service decides by itself
	}
	return sc.WithTraceState(with)
}
