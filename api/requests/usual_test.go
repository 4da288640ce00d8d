package requests

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/onetrace"
	"github.com/sibyl-trace/sibyl/trace"
)

// A step that is slower than in a few fast traces is not slow if most spans of its operation take as long.
func TestUsualSteps(t *testing.T) {
	table := &trace.Table{}
	service := table.Symbol("shop")
	op := table.Op(service, table.Symbol("GET"), trace.Server)
	request := func(n byte, ms trace.Nanos) *critpath.Path {
		tr := &trace.Trace{ID: trace.ID{n, 1}, Spans: []trace.Span{{
			ID: 1, Op: op, Service: service, Kind: trace.Server, Start: 1e9, End: 1e9 + ms*1e6,
		}}}
		return critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr)
	}
	var spans observation.RecentSpans
	slow := &onetrace.CallSuspect{Reason: onetrace.Slow, Part: onetrace.OwnPart}
	for i := range byte(40) {
		if got := isUsual(&spans, request(100, 10), slow); got != (i >= minRanked) {
			t.Errorf("with %d spans known, 10 ms are usual: %t", i, got)
		}
		spans.Observe(request(i, 5+trace.Nanos(i)/2), 0)
	}
	failed := &onetrace.CallSuspect{Reason: onetrace.Failed}
	more := &onetrace.CallSuspect{Reason: onetrace.Slow, Part: onetrace.CallsPart}
	if isUsual(&spans, request(100, 40), slow) || isUsual(&spans, request(100, 5), failed) ||
		isUsual(&spans, request(100, 5), more) {
		t.Error("a slow step, a failed one or additional calls are usual")
	}
}
