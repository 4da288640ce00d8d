package live

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// The requests that are kept for comparisons can be read from the journal, with all spans.
func TestRecordedTraces(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, nil)
	defer r.end()
	for _, x := range traffic(t, 14, 14) {
		r.send(x.bodies)
		c.add(stretchSpan)
		r.settle()
	}
	var all []*observation.Observation
	if err := r.Ask(t.Context(), func(core *engine.Core) {
		for g := range core.Grouper().Each() {
			all = append(all, core.Kept(g)...)
		}
	}); err != nil {
		t.Fatal(err)
	}
	read, found := r.RecordedTraces(1<<30), 0
	for _, o := range all {
		if len(o.Records) == 0 { // of the learning period
			continue
		}
		request, err := read(o.Trace, o.Records)
		if err != nil {
			t.Fatal(err)
		}
		x, err := otlp.DecodeWholeTrace(o.Trace, request, &trace.Table{})
		if err != nil || len(x.Spans) < 2 {
			t.Fatalf("trace %s has %d spans, %v", o.Trace, len(x.Spans), err)
		}
		found++
	}
	if found == 0 {
		t.Error("no request has records")
	}
	last := all[len(all)-1]
	if request, err := r.RecordedTraces(-1)(last.Trace, last.Records); request != nil || err != nil {
		t.Errorf("without a budget: %d bytes, %v", len(request), err)
	}
	if request, err := read(last.Trace, []uint64{1 << 40}); request != nil || err != nil {
		t.Errorf("a record that was trimmed: %d bytes, %v", len(request), err)
	}
}
