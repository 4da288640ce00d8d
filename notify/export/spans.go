// Package export sends critical paths to tracing backends, as additional spans, because backends do not modify spans
// that they have received.
//
// Each additional span is a child of a span on the critical path, in the same trace. Its attributes contain the share
// of the trace's duration that the parent accounts for. Its duration is zero, so that durations, critical paths and
// metrics of the trace do not change. Its ID is derived from the parent's, so that sending it repeatedly creates only
// one span.
package export

import (
	"cmp"
	"encoding/binary"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Path is the critical path of one trace.
type Path struct {
	Trace    trace.ID
	Problem  string        // ID of the problem that the trace is an exemplar of; may be empty
	Duration time.Duration // of the root
	Spans    []Span        // descending by Exclusive
}

// Span is a span on the critical path.
type Span struct {
	ID        trace.SpanID  // as sent
	Start     trace.Nanos   // as sent
	Exclusive time.Duration // on the critical path
	Sections  int           // of the critical path
}

// maxSpans is the maximum number of spans of a path. The remaining ones account for a negligible share.
const maxSpans = 100

// Of returns the critical path of the root with index root in p, with up to maxSpans spans. The path has no spans if
// the root's duration is 0. problem becomes the path's Problem.
func Of(p *critpath.Path, root int, problem string) Path {
	r := &p.Roots[root]
	c := Path{Trace: p.Trace.ID, Problem: problem, Duration: p.Duration(r)}
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
	sorting.SliceStable(c.Spans, func(a, b Span) int {
		return cmp.Or(cmp.Compare(b.Exclusive, a.Exclusive), cmp.Compare(a.ID, b.ID))
	})
	c.Spans = c.Spans[:min(len(c.Spans), maxSpans)]
	return c
}

// Attributes of the additional spans.
const (
	attributeExclusive = "sibyl.critical_path.exclusive_ns"
	attributeShare     = "sibyl.critical_path.share" // of the root's duration, 0–1
	attributeSections  = "sibyl.critical_path.sections"
	attributeRank      = "sibyl.critical_path.rank" // 1: the span with most of the duration
	attributeProblem   = "sibyl.problem"
)

// request returns the additional spans of paths.
func request(list []Path) ptrace.Traces {
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

func (c *Path) write(out ptrace.Span, rank int) {
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
