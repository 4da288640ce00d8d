package live

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// ran returns a request that spent the times `at` in spans of tracepoint.
func ran(id byte, tracepoint trace.Symbol, at ...time.Duration) *request {
	r := &request{Observation: observation.Observation{Records: []uint64{uint64(id)}}}
	r.Trace[0], r.Start, r.Duration = id, trace.Nanos(id), time.Second
	for i, d := range at {
		r.Contexts = append(r.Contexts, observation.ContextCount{
			Context: trace.Context(i + 1), Tracepoint: tracepoint, Total: d.Nanoseconds(),
		})
	}
	return r
}

// The traces with the longest time at the leading suspect are kept while the search is running. They stay once the
// place is located and its tracepoint is off.
func TestWitnesses(t *testing.T) {
	const place, child = trace.Symbol(1), trace.Symbol(2)
	one, other := analysis.Hash{Lo: 1}, analysis.Hash{Lo: 2}
	w := newWitnesses()
	v := search.Investigation{
		Subject:   search.OfIncident(7),
		Status:    search.Investigating,
		Requested: []search.TracepointRequest{{Tracepoint: place}, {Tracepoint: child}},
		Suspects:  []search.Suspect{{Tracepoint: place, Op: 5, Share: 0.9}},
	}
	epoch := func() []keep { return w.keeps(&search.State{Investigations: []search.Investigation{v}}) }
	expect := func(name string, group analysis.Hash, ids ...byte) {
		t.Helper()
		var found []byte
		for _, k := range epoch() {
			if k.of != v.Subject || !k.replaced || len(k.located) > 0 && k.group != group {
				t.Errorf("%s: %+v", name, k)
			}
			for _, e := range k.located {
				found = append(found, e.Trace[0])
				if len(e.Records) != 1 {
					t.Errorf("%s: records %v", name, e.Records)
				}
			}
		}
		if string(found) != string(ids) {
			t.Errorf("%s: traces %v, want %v", name, found, ids)
		}
	}
	w.observe(one, ran(1, place, time.Second)) // before anything was requested
	expect("nothing requested", one)
	for id, at := range []time.Duration{
		3: time.Millisecond, 4: 9 * time.Millisecond, 5: 5 * time.Millisecond, 6: 7 * time.Millisecond,
	} {
		if at > 0 {
			w.observe(one, ran(byte(id), place, at/2, at))
		}
	}
	w.observe(one, ran(9, child, time.Hour))
	expect("longest first", one, 4, 6)
	w.observe(one, ran(10, place, 6*time.Millisecond))
	expect("no longer one", one)
	w.observe(other, ran(11, place, 20*time.Millisecond))
	expect("a longer one of another type", other, 11)
	v.Status, v.Requested = search.Located, nil
	expect("located", one)
	w.observe(one, ran(12, place, time.Hour)) // for another investigation
	expect("stays", one)
}
