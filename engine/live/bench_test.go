package live

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/bench/fixtures/tracegen"
	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/trace"
)

// BenchmarkTake measures the way from an export request to group statistics, including the journal. Requests have about
// 512 spans with 10 attributes each. The IDs of traces change every time.
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
		for k := range bodies { // the next turn sends other traces
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
