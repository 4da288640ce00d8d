package live

import (
	"bytes"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/trace"
)

// Requests kept for comparisons keep all spans and attributes, even though checkpoints trim the journal.
func TestWholeTraces(t *testing.T) {
	c := &clock{}
	c.set(start)
	dir := t.TempDir()
	r := run(t, dir, c, func(o *Options) { o.Checkpoint = time.Second })
	for _, x := range traffic(t, 16, 16) {
		r.send(x.bodies)
		c.add(stretchSpan)
		r.settle()
	}
	var all []*observation.Observation
	if err := r.Ask(t.Context(), func(core *engine.View) {
		for g := range core.Groups.Each() {
			all = append(all, core.Kept.Of(g)...)
		}
	}); err != nil {
		t.Fatal(err)
	}
	r.end() // waits for the copies
	found := 0
	for _, o := range all {
		request, err := r.WholeTrace(o.Trace)
		if err != nil {
			t.Fatal(err)
		}
		if request == nil { // it belongs to the learning period
			continue
		}
		x, err := otlp.DecodeWholeTrace(o.Trace, request, &trace.Table{}, ingest.AllFailureRules)
		if err != nil || len(x.Spans) < 2 || len(x.Attrs) == 0 {
			t.Fatalf("trace %s has %d spans and %d attributes, %v", o.Trace, len(x.Spans), len(x.Attrs), err)
		}
		found++
	}
	if found < 20 {
		t.Errorf("%d of %d requests are kept with all attributes", found, len(all))
	}
	if request, err := r.WholeTrace(trace.ID{1}); request != nil || err != nil {
		t.Errorf("an unknown trace: %d bytes, %v", len(request), err)
	}
}

// A trace can be copied from a JSON request even if pdata would write its attributes and identifiers differently.
func TestWholeTraceOfOddJSON(t *testing.T) {
	c := &clock{}
	c.set(start)
	r := run(t, t.TempDir(), c, nil)
	defer r.end()
	body := []byte(`{"batches":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},"instrumentationLibrarySpans":[{"spans":[
		{"traceId":"AQIDBAUGBwgJCgsMDQ4PEA==","spanId":"AQIDBAUGBwg=","name":"GET /","startTimeUnixNano":1.76e18,"endTimeUnixNano":"1760000000000000009",
		"attributes":[{"key":"i","value":{"intValue":7.0}},{"key":"b","value":{"boolValue":"true"}},{"key":"s","value":{"stringValue":7}}]}]}]}]}`)
	if rejected, why, err := r.Take(t.Context(), body, journal.JSON); rejected != 0 || err != nil {
		t.Fatal(rejected, why, err)
	}
	id := trace.ID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	found := false
	for record, err := range r.journal.Read(1) {
		if err != nil {
			t.Fatal(err)
		}
		if record.Kind != journal.JSON {
			continue
		}
		found = true
		request, err := recordedTrace(id, []uint64{record.Seq},
			func(seq uint64) ([]byte, error) { return readRecord(r.journal, seq, nil) })
		if err != nil {
			t.Fatal(err)
		}
		x, err := otlp.DecodeWholeTrace(id, request, &trace.Table{}, ingest.AllFailureRules)
		if err != nil || len(x.Spans) != 1 || len(x.Attrs) != 4 {
			t.Errorf("%+v, %v, want a span with the attributes of its resource and its own", x, err)
		}
	}
	if !found {
		t.Error("the journal has no request in JSON")
	}
}

// The oldest traces make room for new ones, and a trace that is too large isn't kept.
func TestWholeTracesAreBounded(t *testing.T) {
	w := newWholeTraces(2000)
	body := []byte("abcdefgh")
	for i := range byte(250) {
		w.add(trace.ID{i, 1}, body)
		w.add(trace.ID{i, 1}, body)
	}
	if w.size > w.most || len(w.traces) != len(w.order) || len(w.order) < 100 {
		t.Errorf("%d traces of %d bytes, %d in order", len(w.traces), w.size, len(w.order))
	}
	if x, err := w.get(trace.ID{249, 1}); !bytes.Equal(x, body) || err != nil {
		t.Errorf("the last trace is %q, %v", x, err)
	}
	if x, _ := w.get(trace.ID{0, 1}); x != nil {
		t.Error("the first trace is still there")
	}
	w.add(trace.ID{0, 2}, []byte("much longer than a hundredth of the limit"))
	if x, _ := w.get(trace.ID{0, 2}); x != nil {
		t.Error("a large trace is kept")
	}
}
