package api

import (
	"testing"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

// A span has a percentile among the spans of its operation once there are enough of them.
func TestSpansAreRanked(t *testing.T) {
	const minRanked = 20
	w := newHarness(t)
	id, data := pairOfSpans(t)
	if err := w.store.Traces.Put(id, data); err != nil {
		t.Fatal(err)
	}
	get := func() contract.Trace {
		return fetch[contract.Trace](t, w, "/api/v1/traces/"+id.String())
	}
	pay := trace.OpOf(trace.SymbolOf([]byte("shop")), trace.SymbolOf([]byte("pay")), trace.Server)
	seen := func(from, to int) {
		for i := from; i < to; i++ {
			span := trace.Span{ID: 1, Op: pay, Start: begin, End: begin + trace.Nanos(100+10*i)}
			w.core.Ingest(&trace.Trace{ID: trace.ID{0: 9, 15: byte(i)}, Spans: []trace.Span{span}})
		}
	}
	seen(0, minRanked-1)
	if d := get(); d.Spans[1].Percentile != nil || d.Spans[1].Among != minRanked-1 || d.RankedSince != nil {
		t.Errorf("%+v, since %v: ranked before the end of an epoch, among too few spans", d.Spans[1], d.RankedSince)
	}
	seen(minRanked-1, 40) // of 100 ns to 490 ns; half of the spans of equal duration count as shorter
	w.core.Epoch(begin)
	d := get()
	if p := d.Spans[1].Percentile; p == nil || *p < 48 || *p > 53 || d.Spans[1].Among != 40 || d.RankedSince == nil {
		t.Errorf("%+v, since %v: want about half of 40 to be shorter", d.Spans[1], d.RankedSince)
	}
	if d.Spans[0].Percentile != nil || d.Spans[0].Among != 0 {
		t.Errorf("%+v is ranked without other spans of its operation", d.Spans[0])
	}
}

// pairOfSpans returns a request with a trace of two spans. The span shop pay takes 300 ns.
func pairOfSpans(t testing.TB) (trace.ID, []byte) {
	t.Helper()
	names := &trace.Table{}
	x, err := tracetext.Parse("a shop \"GET /\" server 0..1000ns\n  b shop pay server 200..500ns", names)
	if err != nil {
		t.Fatal(err)
	}
	data, err := tracegen.Protobuf([]*trace.Trace{x}, names)
	if err != nil {
		t.Fatal(err)
	}
	return x.ID, data
}
