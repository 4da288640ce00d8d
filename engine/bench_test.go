package engine

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkObserve measures a request of an application with open problems, and the end of an epoch divided among the
// requests of a second.
func BenchmarkObserve(b *testing.B) {
	options := DefaultOptions()
	options.Learning = time.Minute
	app := sim.New(sim.Config{Seed: 0, Fault: sim.Host, Tracepoints: 100, Rate: 20})
	c := NewCore(app.Table(), options)
	now := trace.Nanos(1_700_000_000_000_000_000)
	for epoch := 0; len(c.Problems()) == 0; epoch++ {
		if epoch > 200 {
			b.Fatal("no problem")
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
	extractor, observer := critpath.NewExtractor(options.Path), &observation.Observer{}
	type request struct {
		o observation.Observation
		s critpath.Simulation
	}
	var all []request
	for x := range app.Requests(now, now.Add(options.Epoch), nil) {
		p := extractor.Extract(x)
		all = append(all, request{})
		observer.Observe(p, 0, &all[len(all)-1].o)
		all[len(all)-1].s.Capture(p, 0)
	}
	b.Run("request", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			r := &all[i%len(all)]
			r.o.Trace[3], r.o.Trace[4], r.o.Trace[5] = byte(i), byte(i>>8), byte(i>>16)
			c.Observe(&r.o, &r.s)
			i++
		}
	})
	b.Run("epoch", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for i := range all {
				all[i].o.Trace[3]++
				c.Observe(&all[i].o, &all[i].s)
			}
			now = now.Add(options.Epoch)
			c.Epoch(now)
		}
	})
}

// BenchmarkTally alternates between the ingestion of a trace, which contains the count of its calls by site and
// instance, and this count alone.
func BenchmarkTally(b *testing.B) {
	options := DefaultOptions()
	app := sim.New(sim.Config{Seed: 0, Fault: sim.Host, Tracepoints: 100, Rate: 200})
	c := NewCore(app.Table(), options)
	now := trace.Nanos(1_700_000_000_000_000_000)
	var all []*trace.Trace
	for x := range app.Requests(now, now.Add(options.Epoch), nil) {
		t := &trace.Trace{ID: x.ID}
		t.Append(x)
		all = append(all, t)
	}
	extractor, tally := critpath.NewExtractor(options.Path), baselinediff.NewTally()
	var whole, counted time.Duration
	spans, i := 0, 0
	for b.Loop() {
		t := all[i%len(all)]
		i++
		spans += len(t.Spans)
		p := extractor.Extract(t)
		began := time.Now()
		tally.Observe(p)
		middle := time.Now()
		c.Ingest(t)
		counted += middle.Sub(began)
		whole += time.Since(middle)
	}
	b.ReportMetric(float64(counted.Nanoseconds())/float64(spans), "tally-ns/span")
	b.ReportMetric(float64(whole.Nanoseconds())/float64(spans), "ingest-ns/span")
	b.ReportMetric(100*float64(counted)/float64(whole-counted), "tally-%")
}
