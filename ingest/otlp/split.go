package otlp

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// TraceSpans holds spans of one trace, with all their data.
type TraceSpans struct {
	Trace  pcommon.TraceID
	Traces ptrace.Traces
}

// SplitByTrace moves the spans out of all and returns them by trace, with their resources and scopes, in the order of
// each trace's first span. If most isn't 0, a trace with more than `most` spans is split into several elements of at
// most that size.
func SplitByTrace(all ptrace.Traces, most int) []TraceSpans {
	s := splitter{most: most, parts: make(map[pcommon.TraceID]*part)}
	for _, rs := range all.ResourceSpans().All() {
		s.resource++
		for _, ss := range rs.ScopeSpans().All() {
			s.scope++
			for _, span := range ss.Spans().All() {
				span.MoveTo(s.room(span.TraceID(), rs, ss).AppendEmpty())
			}
		}
	}
	return s.out
}

type splitter struct {
	most            int
	resource, scope int // numbers of the current resource and scope, from 1
	parts           map[pcommon.TraceID]*part
	out             []TraceSpans
}

// part describes the last element of a trace, which the trace's next span is added to.
type part struct {
	element         int // index of the element in out
	spans           int
	resource, scope int
	into            ptrace.SpanSlice
}

// room returns the slice for the next span of the trace with the given id. rs and ss are the span's resource and scope.
func (s *splitter) room(id pcommon.TraceID, rs ptrace.ResourceSpans, ss ptrace.ScopeSpans) ptrace.SpanSlice {
	p := s.parts[id]
	if p == nil || s.most > 0 && p.spans >= s.most {
		p = &part{element: len(s.out)}
		s.parts[id] = p
		s.out = append(s.out, TraceSpans{id, ptrace.NewTraces()})
	}
	to := s.out[p.element].Traces.ResourceSpans()
	if p.resource != s.resource {
		r := to.AppendEmpty()
		rs.Resource().CopyTo(r.Resource())
		r.SetSchemaUrl(rs.SchemaUrl())
	}
	if p.scope != s.scope {
		scope := to.At(to.Len() - 1).ScopeSpans().AppendEmpty()
		ss.Scope().CopyTo(scope.Scope())
		scope.SetSchemaUrl(ss.SchemaUrl())
		p.into = scope.Spans()
	}
	p.resource, p.scope = s.resource, s.scope
	p.spans++
	return p.into
}
