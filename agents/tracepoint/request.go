package tracepoint

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// request holds the decision about a request in this service, and the baseline span that the code runs in. It is
// immutable once published.
type request struct {
	registry   *Registry
	owner      *Point // point of the baseline span; nil if there is no baseline span or it is unknown
	arm        *arm   // nil if only the baseline is enabled
	version    int64  // of the plan; may be 0
	randomness protocol.Randomness
	filters    uint64 // bit i is set if the request matches filter i of the plan
	decision   string // value in the tracestate
}

// enables reports whether a enables its point for the request.
func (q *request) enables(a *activation) bool {
	if q.arm == nil {
		return false
	}
	for i := range a.rules {
		if x := &a.rules[i]; x.arm == q.arm {
			return (x.filters == 0 || x.filters&q.filters != 0) && q.randomness.Passes(x.rate)
		}
	}
	return false
}

// withOwner returns the request for code that runs in a baseline span of owner.
func (q *request) withOwner(owner *Point) *request {
	if q.owner == owner {
		return q
	}
	inner := *q
	inner.owner = owner
	return &inner
}

// entrySpan describes the first span of a request in the service, as of the start of the span.
type entrySpan struct {
	name       string
	kind       trace.SpanKind
	attributes []attribute.KeyValue
}

func (e *entrySpan) attribute(key string) (string, bool) {
	for _, kv := range e.attributes {
		if string(kv.Key) == key {
			return kv.Value.String(), true
		}
	}
	return "", false
}

// requestOf returns the request that a span with the context sc belongs to. It follows the decision in the tracestate,
// or decides if the tracestate doesn't contain a decision.
func (r *Registry) requestOf(sc trace.SpanContext, e *entrySpan) *request {
	if text := sc.TraceState().Get(protocol.TraceStateKey); text != "" {
		if d, ok := protocol.ParseDecision(text); ok {
			return r.follow(d, text, sc.TraceID())
		}
	}
	return r.decide(sc.TraceID(), e)
}

// follow returns the request with the given trace ID according to d, the decision of another service. text is the text
// form of d. If r doesn't have the plan of d, only the baseline is enabled.
func (r *Registry) follow(d protocol.Decision, text string, id trace.TraceID) *request {
	q := &request{registry: r, randomness: protocol.RandomnessOf(id), filters: d.Filters, decision: text}
	if p := r.state.Load().plan(d.Version); p != nil {
		q.version, q.arm = p.version, p.arm(d.Arm)
	}
	return q
}

// decide makes the decision about a request that hasn't reached any other service before.
func (r *Registry) decide(id trace.TraceID, e *entrySpan) *request {
	q := &request{registry: r, randomness: protocol.RandomnessOf(id)}
	p := r.state.Load().current
	if p == nil {
		q.decision = protocol.Decision{}.String()
		return q
	}
	q.version = p.version
	d := protocol.Decision{Version: p.version}
	if at := q.randomness.Arm(p.source); at >= 0 {
		q.arm = p.arms[at]
		d.Arm = q.arm.name
	}
	for i := range p.source.Filters {
		if p.source.Filters[i].Matches(r.serviceName(), e.name, spanKind(e.kind), e.attribute) {
			d.Filters |= 1 << i
		}
	}
	if q.filters = d.Filters; q.filters == 0 && q.arm != nil {
		q.decision = q.arm.decision
	} else {
		q.decision = d.String()
	}
	return q
}

// withDecision returns sc with the request's decision in the tracestate. If the decision doesn't fit, it returns sc
// itself, and the next service makes its own decision.
func (q *request) withDecision(sc trace.SpanContext) trace.SpanContext {
	s := sc.TraceState()
	if s.Get(protocol.TraceStateKey) == q.decision {
		return sc
	}
	with, err := s.Insert(protocol.TraceStateKey, q.decision)
	if err != nil {
		return sc
	}
	return sc.WithTraceState(with)
}
