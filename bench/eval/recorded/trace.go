package recorded

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/trace"
)

// recordedTrace is a complete trace, which partly instrumented traces are derived from.
type recordedTrace struct {
	start   trace.Nanos  // of its primary root
	whole   *trace.Trace // every span, with its attributes and joins
	parents []int32      // of each span; -1 for roots
}

// newRecordedTrace copies the trace of p.
func newRecordedTrace(p *critpath.Path) *recordedTrace {
	t := &recordedTrace{start: p.Nodes[p.Roots[0].Node].Start, whole: &trace.Trace{ID: p.Trace.ID}}
	t.whole.Append(p.Trace)
	at := make(map[trace.SpanID]int32, len(t.whole.Spans))
	for i := range t.whole.Spans {
		at[t.whole.Spans[i].ID] = int32(i)
	}
	t.parents = make([]int32, len(t.whole.Spans))
	for i := range t.whole.Spans {
		t.parents[i] = -1
		if k, ok := at[t.whole.Spans[i].Parent]; ok && int(k) != i {
			t.parents[i] = k
		}
	}
	return t
}

// above returns the nearest span above span i that ok accepts, or -1 if it accepts no span.
func (t *recordedTrace) above(i int32, ok func(int32) bool) int32 {
	for range t.parents { // bounded because of cycles
		if i = t.parents[i]; i < 0 || ok(i) {
			return i
		}
	}
	return -1
}

// Attributes of the tracepoint protocol.
var (
	keyPlan = trace.SymbolOf([]byte(trace.KeyPlan))
	keyArm  = trace.SymbolOf([]byte(trace.KeyArm))
)

// enabled holds the enabled tracepoints of a request.
type enabled struct {
	plan int64
	arm  trace.Symbol // 0 without an arm
	on   map[trace.Symbol]bool
}

// instrument sets out to the trace that would have been recorded with the tracepoints of e enabled, delayed by shift
// and with another ID. It has the spans of the baseline and of the tracepoints of e, each a child of the nearest
// visible span above. Spans of tracepoints have Tracepoint set. Each parentless span carries the plan and the arm.
func (t *recordedTrace) instrument(c *catalogue, e enabled, id trace.ID, shift time.Duration, out *trace.Trace) {
	out.Reset()
	out.ID = id
	visible := func(i int32) bool {
		p := c.points[t.whole.Spans[i].Op]
		return p.baseline || e.on[p.id]
	}
	moved := make([]int32, len(t.whole.Spans)) // index of each span in out; -1: hidden
	for i := range t.whole.Spans {
		moved[i] = -1
		if !visible(int32(i)) {
			continue
		}
		moved[i] = int32(len(out.Spans))
		span := t.whole.Spans[i]
		span.Start, span.End = span.Start.Add(shift), span.End.Add(shift)
		if p := c.points[span.Op]; !p.baseline {
			span.Tracepoint = p.id
		}
		if t.parents[i] >= 0 {
			span.Parent = 0
			if k := t.above(int32(i), visible); k >= 0 {
				span.Parent = t.whole.Spans[k].ID
			}
		}
		out.Spans = append(out.Spans, span)
	}
	for _, a := range t.whole.Attrs {
		if a.Span = moved[a.Span]; a.Span >= 0 {
			out.Attrs = append(out.Attrs, a)
		}
	}
	for _, j := range t.whole.Joins {
		isLinked := func(s trace.Span) bool { return s.ID == j.Linked }
		if j.Span = moved[j.Span]; j.Span >= 0 && slices.ContainsFunc(out.Spans, isLinked) {
			out.Joins = append(out.Joins, j)
		}
	}
	for i := range out.Spans {
		if out.Spans[i].Parent == 0 {
			out.Attrs = append(out.Attrs,
				trace.Attr{Key: keyPlan, Number: float64(e.plan), Numeric: true, Span: int32(i)})
			if e.arm != 0 {
				out.Attrs = append(out.Attrs, trace.Attr{Key: keyArm, Text: e.arm, Span: int32(i)})
			}
		}
	}
}

// slice holds the traces that start in one epoch.
type slice struct {
	start  trace.Nanos
	traces []*recordedTrace
}

// divide divides traces, which must be ordered by start, into epochs counted from the time from. It leaves out epochs
// without traces.
func divide(traces []*recordedTrace, from trace.Nanos, epoch time.Duration) []slice {
	var all []slice
	for _, t := range traces {
		start := t.start.Add(-(t.start.Sub(from) % epoch))
		if n := len(all); n == 0 || all[n-1].start != start {
			all = append(all, slice{start: start})
		}
		last := &all[len(all)-1]
		last.traces = append(last.traces, t)
	}
	return all
}

func byStart(a, b *recordedTrace) int {
	return cmp.Or(cmp.Compare(a.start, b.start), a.whole.ID.Compare(b.whole.ID))
}
