package engine

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkObserve measures a request to an application with open problems, plus the end of an epoch divided by the
// number of requests in a second.
func BenchmarkObserve(b *testing.B) {
	options := DefaultOptions()
	options.Learning = time.Minute
	app := sim.New(sim.Config{Seed: 0, Fault: sim.Host, Tracepoints: 100, Rate: 20})
	c := NewCore(app.Table(), options)
	now := trace.Nanos(1_700_000_000_000_000_000)
	for epoch := 0; len(c.View().Problems.Open()) == 0; epoch++ {
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

// broadApp is an application of requestTypes request types. Each type has its own sites, as many in total as there is
// room for.
type broadApp struct {
	table  *trace.Table
	traces []*trace.Trace // one for each request type
	turn   uint64
	random *rand.Rand
}

const requestTypes = 1000

// newBroadApp returns an application of 50 services. The entry of each request type calls nine operations of other
// services. Each operation is the site of the call and of the border, and the entry has a site of its own.
func newBroadApp() *broadApp {
	a := &broadApp{table: &trace.Table{}, random: rand.New(rand.NewPCG(1, 2))}
	service := func(i int) trace.Symbol { return a.table.Symbol(fmt.Sprintf("service%d", i%50)) }
	for i := range requestTypes {
		x := &trace.Trace{}
		add := func(service trace.Symbol, name string, kind trace.Kind, parent trace.SpanID) {
			x.Spans = append(x.Spans, trace.Span{
				ID:      trace.SpanID(len(x.Spans) + 1),
				Parent:  parent,
				Service: service,
				Kind:    kind,
				Op:      a.table.Op(service, a.table.Symbol(name), kind),
			})
		}
		add(service(i), fmt.Sprintf("entry%d", i), trace.Server, 0)
		add(service(i), fmt.Sprintf("work%d", i), trace.Internal, 1)
		for k := range 9 {
			add(service(i+k+1), fmt.Sprintf("op%d-%d", i, k), trace.Server, 1)
		}
		a.traces = append(a.traces, x)
	}
	return a
}

// request returns the next request of requestType. Its calls run one after the other and take 1 to 2 ms, times factor.
// The request is valid until the next one of its type.
func (a *broadApp) request(requestType int, at trace.Nanos, factor float64) *trace.Trace {
	x := a.traces[requestType]
	a.turn++
	binary.BigEndian.PutUint64(x.ID[:], trace.Mix(1, a.turn))
	binary.BigEndian.PutUint64(x.ID[8:], a.turn)
	x.Spans[0].Start = at
	for i := 1; i < len(x.Spans); i++ {
		x.Spans[i].Start = at
		at = at.Add(time.Duration(factor * (1 + a.random.Float64()) * 1e6))
		x.Spans[i].End = at
	}
	x.Spans[0].End = at
	return x
}

// catalogue returns two tracepoints below each operation.
func (a *broadApp) catalogue() (list []cct.Tracepoint) {
	for _, x := range a.traces {
		for i := range x.Spans {
			for k := range 2 {
				s := &x.Spans[i]
				op := a.table.Op(s.Service, a.table.Symbol(fmt.Sprintf("tracepoint%d", k)), trace.Internal)
				list = append(list,
					cct.Tracepoint{ID: trace.Symbol(trace.Mix(uint64(s.Op), uint64(k)) | 1), Op: op, Owner: s.Op})
			}
		}
	}
	return list
}

// BenchmarkEpoch measures the end of an epoch with 1,000 open problems and as many sites as there is room for. After a
// quarter of an hour, the requests of all types become slower at once.
func BenchmarkEpoch(b *testing.B) {
	options := DefaultOptions()
	a := newBroadApp()
	c := NewCore(a.table, options)
	now := trace.Nanos(1_700_000_000_000_000_000)
	c.Announce(now, a.catalogue())
	play := func(factor float64) {
		for i := range requestTypes {
			for range 2 {
				c.Ingest(a.request(i, now.Add(time.Duration(a.random.Int64N(int64(options.Epoch)))), factor))
			}
		}
		now = now.Add(options.Epoch)
	}
	for end := now.Add(15 * time.Minute); now < end; {
		play(1)
		c.Epoch(now)
	}
	for epochs := 0; len(c.View().Problems.Open()) < requestTypes; epochs++ {
		if epochs > 60 {
			b.Fatalf("%d problems, want %d", len(c.View().Problems.Open()), requestTypes)
		}
		play(3)
		c.Epoch(now)
	}
	b.ReportAllocs()
	var used time.Duration
	for b.Loop() {
		b.StopTimer()
		play(3)
		before := cpuTime(b)
		b.StartTimer()
		c.Epoch(now)
		used += cpuTime(b) - before
	}
	b.ReportMetric(used.Seconds()*1e3/float64(b.N), "cpu-ms/op")
	b.ReportMetric(float64(c.View().History.Len()), "sites")
	b.ReportMetric(float64(len(c.View().Problems.Open())), "problems")
	b.ReportMetric(float64(len(c.View().Incidents.All())), "incidents")
}

// cpuTime returns the CPU time of the process, which depends little on other load on the machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkTally alternates between ingesting a trace, which includes counting its calls by site and instance, and
// counting only.
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
	extractor, tally := critpath.NewExtractor(options.Path), history.NewTally()
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
