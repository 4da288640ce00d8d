package live

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkTake measures the path from an export request to group statistics, including the journal. Each request has
// about 512 spans with 10 attributes each. Trace IDs change every time.
func BenchmarkTake(b *testing.B) {
	app := sim.New(sim.Config{Seed: 1, Tracepoints: 500, Messages: -1, Rate: 2000})
	var bodies [][]byte
	var batch []*trace.Trace
	var ids [][]trace.ID
	spans, perBody := 0, 0
	key := make([]trace.Symbol, 10)
	for i := range key {
		key[i] = app.Table().Symbol(fmt.Sprintf("some.attribute.key.%d", i))
	}
	values := make([]trace.Symbol, 1000)
	for i := range values {
		values[i] = app.Table().Symbol(fmt.Sprintf("a value of an attribute %d", i))
	}
	for x := range app.Requests(start, start.Add(3*time.Second), &sim.Plan{}) {
		c := &trace.Trace{ID: x.ID, Spans: append([]trace.Span(nil), x.Spans...)}
		for s := range c.Spans {
			for k := range key {
				c.Attrs = append(c.Attrs, trace.Attr{Key: key[k], Text: values[(s*7+k*13+spans)%1000], Span: int32(s)})
			}
		}
		batch = append(batch, c)
		spans += len(c.Spans)
		perBody += len(c.Spans)
		if perBody >= 512 {
			body, err := tracegen.Protobuf(batch, app.Table())
			if err != nil {
				b.Fatal(err)
			}
			bodies = append(bodies, body)
			var of []trace.ID
			for _, t := range batch {
				of = append(of, t.ID)
			}
			ids = append(ids, of)
			batch, perBody = nil, 0
		}
	}
	places := make([][]int, len(bodies)) // of trace IDs
	for k, body := range bodies {
		for _, id := range ids[k] {
			for at := 0; ; at += len(id) {
				i := bytes.Index(body[at:], id[:])
				if i < 0 {
					break
				}
				at += i
				places[k] = append(places[k], at)
			}
		}
	}
	total := 0
	for _, x := range bodies {
		total += len(x)
	}
	b.Logf("%d requests, %d spans, %d traces/request, %d bytes a span", len(bodies), spans, len(ids[0]), total/spans)
	r := run(b, b.TempDir(), &clock{}, func(o *Options) { o.Clock = time.Now; o.Core.Learning = time.Second })
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	began := time.Now()
	n := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		done := make(chan error, 8)
		for w := range 8 {
			go func() {
				var err error
				for k := w; k < len(bodies); k += 8 {
					for err = error(errBusy); errors.Is(err, errBusy); {
						_, _, err = r.Take(context.Background(), bodies[k], journal.Protobuf)
						if errors.Is(err, errBusy) {
							time.Sleep(time.Millisecond)
						}
					}
				}
				done <- err
			}()
		}
		for range 8 {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		n += int64(spans)
		for k := range bodies { // the next round sends other traces
			for _, at := range places[k] {
				binary.BigEndian.PutUint32(bodies[k][at:], uint32(n))
			}
		}
	}
	took := time.Since(began)
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(float64(n)/took.Seconds()/1e3, "kspans/s")
	b.ReportMetric(cpu.Seconds()/(float64(n)/1e6), "CPU-s/Mspans")
	b.Logf("%+v busy %d journal %+v", r.counts.Open(), r.counts.Refused.Busy.Load(), r.journal.Stats())
	r.end()
}

// BenchmarkCheckpoint measures how much a checkpoint with 10,000 request types of eleven places each slows down the
// intake. It reports the longest acknowledgement time of four senders while an epoch ends and a checkpoint is made, and
// at other times for comparison. It also measures a restart with this state.
//
// The state is taken after a few minutes or after four weeks. The latter takes long to create.
func BenchmarkCheckpoint(b *testing.B) {
	b.Run("minutes", func(b *testing.B) { benchmarkCheckpoint(b, 0) })
	b.Run("month", func(b *testing.B) { benchmarkCheckpoint(b, 28*24*time.Hour) })
}

func benchmarkCheckpoint(b *testing.B, past time.Duration) {
	dir := b.TempDir()
	c := &clock{}
	c.set(start)
	options := engine.DefaultOptions()
	options.Learning = time.Minute
	r := run(b, dir, c, nil) // creates the databases
	r.stop()
	state := broadState(options, past)
	err := errors.Join(<-r.stopped, r.store.Checkpoints.Save(&store.Checkpoint{At: start, State: state}, 0),
		r.journal.Close(), r.store.Close())
	if err != nil {
		b.Fatal(err)
	}
	opened := time.Now()
	r = run(b, dir, c, func(o *Options) {
		o.Core, o.Checkpoint = options, time.Hour
		o.Clock = func() time.Time { return c.Now().Add(time.Since(opened)) }
	})
	defer r.end()
	restart := time.Since(opened)
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	var saving atomic.Bool
	var longest [2]atomic.Int64 // ns until an acknowledgement, without and with a checkpoint
	var sent atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var senders sync.WaitGroup
	for sender := range 4 {
		senders.Go(func() {
			x := &endless{traces: uint64(sender) << 40}
			for ctx.Err() == nil {
				x.at = c.at()
				body := x.request(b, 10)
				during, began := saving.Load(), time.Now()
				if _, _, err := r.Take(ctx, body, journal.Protobuf); err != nil && ctx.Err() == nil {
					b.Error(err)
				}
				took := int64(time.Since(began))
				at := &longest[0]
				if during || saving.Load() {
					at = &longest[1]
				}
				for most := at.Load(); took > most && !at.CompareAndSwap(most, took); most = at.Load() {
				}
				sent.Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	var whole, stopped time.Duration
	for b.Loop() {
		time.Sleep(2 * time.Second)
		saving.Store(true)
		began, saved := time.Now(), r.Counts().Checkpoints.Load()
		for c.add(time.Hour); r.Counts().Checkpoints.Load() == saved; {
			time.Sleep(time.Millisecond)
		}
		whole += time.Since(began)
		stopped += time.Duration(r.Counts().Encoded.Load())
		saving.Store(false)
	}
	cancel()
	senders.Wait()
	b.ReportMetric(float64(longest[1].Load())/1e6, "longest-ack-ms")
	b.ReportMetric(float64(longest[0].Load())/1e6, "longest-ack-without-ms")
	b.ReportMetric(whole.Seconds()*1e3/float64(b.N), "epoch+checkpoint-ms")
	b.ReportMetric(stopped.Seconds()*1e3/float64(b.N), "core-stopped-ms")
	// The core waits for the windows of the last period.
	b.ReportMetric(float64(r.Counts().Downsampled.Load())/1e6, "windows-ms")
	b.ReportMetric(restart.Seconds()*1e3, "restart-ms")
	b.ReportMetric(float64(memory.HeapAlloc)/1e6, "heap-MB")
	b.ReportMetric(float64(len(state))/1e6, "state-MB")
	b.ReportMetric(float64(len(s2.Encode(nil, state)))/1e6, "stored-MB")
	b.ReportMetric(float64(sent.Load())/float64(b.N), "requests/op")
}

// broadState returns the state of a core with 10,000 request types after a past with one request per hour and type, and
// after five busy minutes.
func broadState(options engine.Options, past time.Duration) []byte {
	table := &trace.Table{}
	core := engine.NewCore(table, options)
	types := broadTypes(table)
	n := uint64(0)
	step := func(now trace.Nanos) {
		for _, x := range types {
			n++
			stamp(x, n, now)
			core.Ingest(x)
		}
		core.Epoch(now.Add(options.Epoch))
	}
	busy := start - 5*trace.Nanos(time.Minute)
	for now := busy.Add(-past); now < busy; now = now.Add(time.Hour) {
		step(now)
	}
	for now := busy; now < start; now = now.Add(options.Epoch) {
		step(now)
	}
	return core.AppendState(nil)
}

// broadTypes returns one trace for each of 10,000 request types. Each trace has eleven calls in eleven services.
func broadTypes(table *trace.Table) []*trace.Trace {
	types := make([]*trace.Trace, 10_000)
	for i := range types {
		x := &trace.Trace{Spans: make([]trace.Span, 11)}
		for k := range x.Spans {
			service := table.Symbol(fmt.Sprint("service", (i+k)%50))
			op := table.Op(service, table.Symbol(fmt.Sprintf("op%d-%d", i, k)), trace.Server)
			x.Spans[k] = trace.Span{ID: trace.SpanID(k + 1), Parent: 1, Service: service, Kind: trace.Server, Op: op}
		}
		x.Spans[0].Parent = 0
		types[i] = x
	}
	return types
}

// stamp gives x the ID of trace n and makes its times start at now.
func stamp(x *trace.Trace, n uint64, now trace.Nanos) {
	x.ID = trace.ID{1: 1}
	binary.BigEndian.PutUint64(x.ID[8:], trace.Mix(n, 1))
	length := time.Duration(n%997) * time.Microsecond
	for k := range x.Spans {
		s := &x.Spans[k]
		s.Start = now.Add(time.Duration(k) * time.Millisecond)
		s.End = s.Start.Add(length)
	}
	x.Spans[0].End = x.Spans[0].End.Add(20 * time.Millisecond)
}
