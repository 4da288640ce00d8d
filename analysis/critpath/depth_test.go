package critpath_test

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestContextsAreBounded: in a chain of spans far deeper than MaxDepth every place keeps its time, and contexts do not grow.
func TestContextsAreBounded(t *testing.T) {
	const deep = 4 * critpath.MaxDepth
	in := &trace.Trace{ID: trace.ID{1}}
	for i := range trace.SpanID(deep) {
		in.Spans = append(in.Spans, trace.Span{
			ID: i + 1, Parent: i, Start: trace.Nanos(i), End: trace.Nanos(3*deep - i), Op: trace.Op(1 + i%3), Kind: trace.Internal,
		})
	}
	p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(in)
	var o observation.Observation
	new(observation.Observer).Observe(p, 0, &o)
	if len(o.Contexts) != critpath.MaxDepth {
		t.Errorf("%d contexts, want %d", len(o.Contexts), critpath.MaxDepth)
	}
	sum := int64(0)
	for _, e := range o.Edges {
		sum += e.Nanos
	}
	if sum != o.Duration.Nanoseconds() {
		t.Errorf("edges add up to %d, duration %d", sum, o.Duration)
	}
}
