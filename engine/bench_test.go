package engine

import (
	"testing"
	"time"

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
