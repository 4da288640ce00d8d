package observation_test

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// Attributes of spans that are not on the critical path are observed only on request.
func TestObserveEverywhere(t *testing.T) {
	table := &trace.Table{}
	service := table.Symbol("shop")
	span := func(id, parent trace.SpanID, name string, kind trace.Kind, from, to trace.Nanos) trace.Span {
		op := table.Op(service, table.Symbol(name), kind)
		return trace.Span{ID: id, Parent: parent, Op: op, Service: service, Kind: kind, Start: from, End: to}
	}
	tr := &trace.Trace{ID: trace.ID{1}, Spans: []trace.Span{
		span(1, 0, "GET", trace.Server, 1e9, 2e9),
		span(2, 1, "slow", trace.Internal, 1.1e9, 1.9e9),
		span(3, 1, "fast", trace.Internal, 1.1e9, 1.2e9),
	}}
	for i := range int32(3) {
		tr.Attrs = append(tr.Attrs, trace.Attr{Key: table.Symbol("user"), Text: table.Symbol("x"), Span: i})
	}
	path := critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr)
	for everywhere, want := range map[bool]int{false: 2, true: 3} {
		var o observation.Observation
		x := observation.Observer{Everywhere: everywhere}
		if x.Observe(path, 0, &o); len(o.Variables) != want {
			t.Errorf("everywhere %t: %d attributes, want %d", everywhere, len(o.Variables), want)
		}
	}
}
