package throughput

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/sibyl-trace/sibyl/bench/fixtures/tracegen"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Shape of the load. As with Collectors, the spans of a trace arrive in several requests.
const (
	spansPerRequest     = 512
	spansPerLoadedTrace = 64
	requestsPerTrace    = 8
)

// IngestOptions configures [Ingest] and [Overload].
type IngestOptions struct {
	Options
	Program string   // path of sibyl
	Args    []string // more arguments of sibyl serve
	Senders int      // concurrent requests
	Rate    float64  // offered spans per second; 0: unlimited
}

// Ingest measures the whole service, a process of its own: from gRPC requests over loopback to durable and analysed.
// This process encodes the requests beforehand and sends them; both share the machine.
func Ingest(ctx context.Context, o IngestOptions) (*Result, error) {
	o.Options = o.withDefaults()
	load, err := newLoad(o.Options)
	if err != nil {
		return nil, err
	}
	var sent sendStats
	used, err := runServer(ctx, o.Program, []string{}, o.Args, func(s *server) (err error) {
		sent, err = load.send(ctx, s, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	r := &Result{Benchmark: "ingest", Input: fmt.Sprintf("gRPC requests of %d spans with %s each, %s per span, %d senders; server and load generator in separate processes",
		spansPerRequest, units.Plural(attributesPerSpan, "attribute"), units.Plural(load.bytes/load.spans, "byte"), o.Senders)}
	spans, seconds := float64(sent.spans), sent.duration.Seconds()
	r.add("accepted", Value{"spans_per_second", spans / seconds, millions(spans/seconds) + " spans/s"},
		Value{"spans", spans, millions(spans) + " spans"}, Value{"seconds", seconds, units.Ratio(seconds) + " s"},
		Value{"retries", float64(sent.retries), units.Count(int(sent.retries)) + " retries"})
	cpu := used.cpu.Seconds()
	r.add("server CPU", Value{"cpu_seconds_per_million_spans", cpu / spans * 1e6, units.Ratio(cpu/spans*1e6) + " s per million spans"},
		Value{"cpu_seconds", cpu, units.Ratio(cpu) + " s in total"})
	r.addPeak(used.peak)
	r.add("journal", Value{"commits", used.number("commits"), units.Count(int(used.number("commits"))) + " commits"},
		Value{"fsyncs", used.number("fsyncs"), units.Count(int(used.number("fsyncs"))) + " fsyncs"},
		Value{"journal_bytes_per_span", used.number("journal_bytes") / spans, units.Ratio(used.number("journal_bytes")/spans) + " bytes per span"})
	return r, nil
}

// addPeak adds the server's peak memory.
func (r *Result) addPeak(bytes int64) {
	r.add("peak server memory", Value{"peak_bytes", float64(bytes), mebibytes(int(bytes))})
}

// load is a list of encoded requests whose trace IDs can be changed.
type load struct {
	data         [][]byte
	ids          [][]int // offsets of trace IDs in data
	bytes, spans int
	buffers      mem.BufferPool
	offers       atomic.Uint32 // calls of offer, which reserves a range of trace IDs for each
}

// newLoad encodes requests until they fill o.Bytes.
func newLoad(o Options) (*load, error) {
	var table trace.Table
	r := rand.New(rand.NewPCG(o.Seed, 3))
	kinds := shapes(r, &table, 50, spansPerLoadedTrace)
	l := &load{}
	longest := 0
	for begin := trace.Nanos(1_700_000_000_000_000_000); l.bytes < o.Bytes; begin += 1_000_000_000 {
		for _, traces := range splitTraces(r, &table, kinds, spansPerLoadedTrace, begin) {
			data, err := tracegen.Protobuf(traces, &table)
			if err != nil {
				return nil, err
			}
			var ids []int
			for _, t := range traces {
				ids = append(ids, offsets(data, t.ID[:])...)
			}
			l.data, l.ids = append(l.data, data), append(l.ids, ids)
			l.bytes += len(data)
			l.spans += spansPerRequest
			longest = max(longest, len(data))
		}
	}
	l.buffers = mem.NewTieredBufferPool(longest)
	return l, nil
}

// splitTraces returns the contents of requests of spansPerRequest spans each: traces of n spans, each spread over
// requestsPerTrace requests, or n if that is less.
func splitTraces(r *rand.Rand, table *trace.Table, kinds []shape, n int, begin trace.Nanos) [][]*trace.Trace {
	requests := make([][]*trace.Trace, min(requestsPerTrace, n))
	for range spansPerRequest * len(requests) / n {
		t := kinds[r.IntN(len(kinds))].newTrace(r, begin)
		addAttributes(r, table, t, attributesPerSpan)
		for i, part := range split(t, len(requests)) {
			requests[i] = append(requests[i], part)
		}
	}
	return requests
}

// split distributes the spans of t, with their attributes, over n traces of the same ID, in turn.
func split(t *trace.Trace, n int) []*trace.Trace {
	parts := make([]*trace.Trace, n)
	for i := range parts {
		parts[i] = &trace.Trace{ID: t.ID}
	}
	attrs := t.Attrs
	for i, s := range t.Spans {
		p := parts[i%n]
		p.Spans = append(p.Spans, s)
		for ; len(attrs) > 0 && attrs[0].Span == int32(i); attrs = attrs[1:] {
			a := attrs[0]
			a.Span = int32(len(p.Spans) - 1)
			p.Attrs = append(p.Attrs, a)
		}
	}
	return parts
}

// offsets returns the offsets of pattern in data.
func offsets(data, pattern []byte) (at []int) {
	for from := 0; ; {
		i := bytes.Index(data[from:], pattern)
		if i < 0 {
			return at
		}
		at = append(at, from+i)
		from += i + len(pattern)
	}
}

// request returns request n of an endless sequence that repeats l. Repetitions, numbered from round, have other trace
// IDs. The caller frees the request.
func (l *load) request(n int, round uint32) mem.Buffer {
	k := n % len(l.data)
	buf := l.buffers.Get(len(l.data[k]))
	copy(*buf, l.data[k])
	for _, at := range l.ids[k] {
		binary.BigEndian.PutUint32((*buf)[at:], round+uint32(n/len(l.data)))
	}
	return mem.NewBuffer(buf, l.buffers)
}

// sendStats counts accepted requests.
type sendStats struct {
	spans    int64
	retries  int64
	duration time.Duration
}

// connections is the number of connections that the senders share, as a few Collectors would have.
const connections = 4

// send sends requests for o.Time. Each sender waits for the answer to its request before it sends the next.
func (l *load) send(ctx context.Context, s *server, o IngestOptions) (sendStats, error) {
	conns, closeAll, err := s.connect(connections)
	if err != nil {
		return sendStats{}, err
	}
	defer closeAll()
	var next, spans, retries atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, o.Senders)
	began := time.Now()
	until := began.Add(o.Time)
	for i := range o.Senders {
		wg.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil && errs[i] == nil {
				n := next.Add(1) - 1
				pace(began, n, o.Rate)
				request := l.request(int(n), 1)
				again, err := export(ctx, conns[i%connections], request)
				request.Free()
				retries.Add(again)
				spans.Add(spansPerRequest)
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return sendStats{spans.Load(), retries.Load(), time.Since(began)}, errors.Join(append(errs, ctx.Err())...)
}

// pace waits until request n is due at the given rate of spans per second; 0 means at once.
func pace(began time.Time, n int64, rate float64) {
	if rate > 0 {
		time.Sleep(time.Until(began.Add(time.Duration(float64(n*spansPerRequest) / rate * float64(time.Second)))))
	}
}
