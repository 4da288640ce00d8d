// Package export tells a tracing backend what is on the critical path: it sends small spans of its own, because no
// backend changes a span that it has.
//
// Each is a child of a span on the path, in the same trace, and says in attributes how much of the trace's duration
// that span accounts for. It has no length, so that nothing that is computed from the trace changes: durations,
// critical paths, metrics. Its ID follows from the span's, so that what is sent twice is one span.
package export

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

// Critical is what is told of one trace.
type Critical struct {
	Trace    trace.ID
	Problem  string        // whose exemplar it is; may be empty
	Duration time.Duration // of the root
	Spans    []Span        // by falling Exclusive
}

// Span is a span on the critical path.
type Span struct {
	ID        trace.SpanID // as sent
	Start     trace.Nanos  // as sent
	Exclusive time.Duration
	Sections  int // into which that falls
}

// mostSpans bounds what is told of one trace: those left out account for next to nothing.
const mostSpans = 100

// Of returns what is to be told of root number root of a path; of a root without a duration, no spans.
func Of(p *critpath.Path, root int, problem string) Critical {
	r := &p.Roots[root]
	c := Critical{Trace: p.Trace.ID, Problem: problem, Duration: p.Duration(r)}
	sections := r.Sections
	if len(r.Refined) > 0 {
		sections = r.Refined
	}
	at := make(map[trace.SpanID]int)
	for i := range sections {
		s := p.Span(sections[i].Node)
		k, ok := at[s.ID]
		if !ok {
			k = len(c.Spans)
			at[s.ID] = k
			c.Spans = append(c.Spans, Span{ID: s.ID, Start: s.Start})
		}
		c.Spans[k].Exclusive += sections[i].End.Sub(sections[i].Start)
		c.Spans[k].Sections++
	}
	slices.SortStableFunc(c.Spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(b.Exclusive, a.Exclusive), cmp.Compare(a.ID, b.ID))
	})
	c.Spans = c.Spans[:min(len(c.Spans), mostSpans)]
	return c
}

// Attributes of the spans that are sent.
const (
	attributeExclusive = "sibyl.critical_path.exclusive_ns"
	attributeShare     = "sibyl.critical_path.share" // of the root's duration, 0–1
	attributeSections  = "sibyl.critical_path.sections"
	attributeRank      = "sibyl.critical_path.rank" // 1: the span with most of the duration
	attributeProblem   = "sibyl.problem"
)

// request returns the spans that tell of traces.
func request(list []Critical) ptrace.Traces {
	traces := ptrace.NewTraces()
	resource := traces.ResourceSpans().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "sibyl")
	scope := resource.ScopeSpans().AppendEmpty()
	scope.Scope().SetName("github.com/sibyl-trace/sibyl/notify/export")
	for i := range list {
		c := &list[i]
		for rank := range c.Spans {
			c.write(scope.Spans().AppendEmpty(), rank)
		}
	}
	return traces
}

func (c *Critical) write(out ptrace.Span, rank int) {
	s := &c.Spans[rank]
	out.SetTraceID(pcommon.TraceID(c.Trace))
	out.SetParentSpanID(spanID(s.ID))
	out.SetSpanID(spanID(trace.SpanID(max(1, trace.Mix(uint64(s.ID), c.Trace.Hash())))))
	out.SetName("critical path")
	out.SetKind(ptrace.SpanKindInternal)
	out.SetStartTimestamp(pcommon.Timestamp(s.Start))
	out.SetEndTimestamp(pcommon.Timestamp(s.Start))
	attributes := out.Attributes()
	attributes.PutInt(attributeExclusive, s.Exclusive.Nanoseconds())
	attributes.PutInt(attributeSections, int64(s.Sections))
	attributes.PutInt(attributeRank, int64(rank+1))
	if c.Duration > 0 {
		attributes.PutDouble(attributeShare, float64(s.Exclusive)/float64(c.Duration))
	}
	if c.Problem != "" {
		attributes.PutStr(attributeProblem, c.Problem)
	}
}

func spanID(id trace.SpanID) (b pcommon.SpanID) {
	binary.BigEndian.PutUint64(b[:], uint64(id))
	return b
}
