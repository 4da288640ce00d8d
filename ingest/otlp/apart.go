package otlp

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Spans are spans of one trace, with all that was sent of them.
type Spans struct {
	Trace  pcommon.TraceID
	Traces ptrace.Traces
}

// Apart takes traces apart: it moves the spans out of all and returns those of each trace, with their resources and scopes, in the order in
// which the traces first occur. An element holds at most so many spans; 0: no bound.
func Apart(all ptrace.Traces, most int) []Spans {
	a := apart{most: most, of: make(map[pcommon.TraceID]*gathering)}
	for _, rs := range all.ResourceSpans().All() {
		a.resource++
		for _, ss := range rs.ScopeSpans().All() {
			a.scope++
			for _, s := range ss.Spans().All() {
				s.MoveTo(a.room(s.TraceID(), rs, ss).AppendEmpty())
			}
		}
	}
	return a.out
}

type apart struct {
	most            int
	resource, scope int // numbers of the present ones
	of              map[pcommon.TraceID]*gathering
	out             []Spans
}

// gathering is what is being gathered of a trace: the last of its elements, and where in it the next span goes.
type gathering struct {
	element         int // of out
	spans           int
	resource, scope int
	into            ptrace.SpanSlice
}

// room returns where the next span of a trace goes.
func (a *apart) room(id pcommon.TraceID, rs ptrace.ResourceSpans, ss ptrace.ScopeSpans) ptrace.SpanSlice {
	g := a.of[id]
	if g == nil || a.most > 0 && g.spans >= a.most {
		g = &gathering{element: len(a.out)}
		a.of[id] = g
		a.out = append(a.out, Spans{id, ptrace.NewTraces()})
	}
	to := a.out[g.element].Traces.ResourceSpans()
	if g.resource != a.resource {
		r := to.AppendEmpty()
		rs.Resource().CopyTo(r.Resource())
		r.SetSchemaUrl(rs.SchemaUrl())
	}
	if g.scope != a.scope {
		s := to.At(to.Len() - 1).ScopeSpans().AppendEmpty()
		ss.Scope().CopyTo(s.Scope())
		s.SetSchemaUrl(ss.SchemaUrl())
		g.into = s.Spans()
	}
	g.resource, g.scope = a.resource, a.scope
	g.spans++
	return g.into
}
