package critpath_test

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// A chain of spans deeper than MaxDepth has MaxDepth contexts, and its edges add up to the duration.
func TestContextDepth(t *testing.T) {
	const deep = 4 * critpath.MaxDepth
	in := &trace.Trace{ID: trace.ID{1}}
	for i := range trace.SpanID(deep) {
		in.Spans = append(in.Spans, trace.Span{
			ID:     i + 1,
			Parent: i,
			Start:  trace.Nanos(i),
			End:    trace.Nanos(3*deep - i),
			Op:     trace.Op(1 + i%3),
			Kind:   trace.Internal,
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
		t.Errorf("edges add up to %d, want %d", sum, o.Duration)
	}
}
