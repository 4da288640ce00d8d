package otlp_test

import (
	"slices"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/sibyl-trace/sibyl/ingest/otlp"
)

// Every span is in a part of its trace and keeps its resource and scope.
func TestSplitByTrace(t *testing.T) {
	all := ptrace.NewTraces()
	n := byte(0)
	for _, service := range []string{"a", "b"} {
		rs := all.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", service)
		for _, scope := range []string{"x", "y"} {
			ss := rs.ScopeSpans().AppendEmpty()
			ss.Scope().SetName(scope)
			for _, id := range []byte{1, 2, 1} {
				s := ss.Spans().AppendEmpty()
				n++
				s.SetTraceID(pcommon.TraceID{id})
				s.SetSpanID(pcommon.SpanID{n})
				s.SetName(service + scope)
			}
		}
	}
	for most, want := range map[int][]int{0: {8, 4}, 3: {3, 3, 3, 1, 2}} {
		again := ptrace.NewTraces()
		all.CopyTo(again)
		var sizes []int
		seen := make(map[pcommon.SpanID]bool)
		for _, part := range otlp.SplitByTrace(again, most) {
			sizes = append(sizes, part.Traces.SpanCount())
			for _, rs := range part.Traces.ResourceSpans().All() {
				service, _ := rs.Resource().Attributes().Get("service.name")
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						seen[s.SpanID()] = true
						if s.TraceID() != part.Trace || s.Name() != service.Str()+ss.Scope().Name() {
							t.Errorf("span %s of trace %s is with %s %s of trace %s",
								s.Name(), s.TraceID(), service.Str(), ss.Scope().Name(), part.Trace)
						}
					}
				}
			}
		}
		slices.Sort(sizes)
		slices.Sort(want)
		if !slices.Equal(sizes, want) || len(seen) != int(n) {
			t.Errorf("at most %d: parts of %v spans with %d different ones, want %v with %d",
				most, sizes, len(seen), want, n)
		}
	}
}
