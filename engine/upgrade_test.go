package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/codec/plain"
	"github.com/sibyl-trace/sibyl/trace"
)

// withSamples returns the state of c in version coreWithSamples.
func withSamples(c *Core) []byte {
	s := c.saved()
	for i := range s.Samples {
		x := &s.Samples[i]
		sample := c.causes.samples[x.Group]
		old := stats.NewSample[*observation.Observation](sampledRequests)
		for _, o := range sample.Requests() {
			old.Add(o.Key(), o)
		}
		*x = savedSample{Group: x.Group, Seen: sample.Seen(), Requests: old.AppendBinary(nil, func(b []byte, o *observation.Observation) []byte {
			return codec.AppendUvarints(observation.AppendObservation(b, o), 0) // no tracepoints
		})}
	}
	for i := range s.Found {
		x := &s.Found[i]
		x.Explanations, x.Findings = x.Findings.Explanations, explain.Findings{}
	}
	s.Loads, s.Series = nil, savedSeries{}
	b := []byte{coreWithSamples}
	b = codec.AppendSection(b, c.table.AppendBinary)
	b = codec.AppendSection(b, c.types.AppendBinary)
	b = codec.AppendSection(b, c.detector.AppendBinary)
	b = codec.AppendSection(b, func(b []byte) []byte { return AppendSearchState(b, &c.state) })
	b = codec.AppendSection(b, c.appendEarly)
	return codec.AppendSection(b, func(b []byte) []byte { return plain.Append(b, s) })
}

// A state of the previous version keeps its samples and explanations.
func TestRestoreWithSamples(t *testing.T) {
	options := DefaultOptions()
	options.Learning = time.Minute
	app := sim.New(sim.Config{Seed: 0, Fault: sim.Host, Tracepoints: 100, Rate: 20})
	c := NewCore(app.Table(), options)
	now := trace.Nanos(1_700_000_000_000_000_000)
	c.Announce(now, app.Catalogue())
	explained := func() *found {
		for _, f := range c.causes.found {
			if f.in != nil && len(f.findings.Explanations) > 0 {
				return f
			}
		}
		return nil
	}
	for epoch := 0; explained() == nil; epoch++ {
		if epoch > 60 {
			t.Fatal("no problem was explained")
		}
		if epoch == 12 {
			app.Inject(now)
		}
		for x := range app.Requests(now, now.Add(options.Epoch), nil) {
			c.Ingest(x)
		}
		now = now.Add(options.Epoch)
		c.Epoch(now)
	}
	restored := NewCore(&trace.Table{}, options)
	if err := restored.Restore(withSamples(c)); err != nil {
		t.Fatal(err)
	}
	for id, s := range c.causes.samples {
		r := restored.causes.samples[id]
		if r == nil || r.requestType != s.requestType || r.Seen() != s.Seen() || len(r.Requests()) != len(s.Requests()) {
			t.Errorf("sample %v: %+v, want %+v", id, r, s)
		}
		if restored.causes.loads[s.requestType] == nil {
			t.Errorf("request type %v has no load", s.requestType)
		}
	}
	for id, f := range c.causes.found {
		r := restored.causes.found[id]
		if r == nil || !slices.Equal(r.findings.Explanations, f.findings.Explanations) || r.seen != f.seen || r.looks != f.looks {
			t.Errorf("findings about %v: %+v, want %+v", id, r, f)
		}
	}
	for range 8 { // it goes on
		for x := range app.Requests(now, now.Add(options.Epoch), nil) {
			restored.Ingest(x)
		}
		now = now.Add(options.Epoch)
		restored.Epoch(now)
	}
}
