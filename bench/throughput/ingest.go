package throughput

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Shape of the load. The spans of a trace arrive in several requests, as from Collectors.
const (
	spansPerRequest     = 512
	spansPerLoadedTrace = 64
	requestsPerTrace    = 8
)

// IngestOptions configures [Ingest] and [Overload].
type IngestOptions struct {
	Options
	Program string   // path of sibyl
	Against string   // path of another build to compare with; may be empty
	Args    []string // more arguments of sibyl serve
	Senders int      // concurrent requests
	Rate    float64  // offered spans per second; 0: no limit
}

// Ingest measures the whole service, a separate process: from gRPC requests over loopback to durable and analysed. It
// measures once the service has learned, and waits until no trace is open. With o.Against it measures a second build at
// the same time, with the same requests. This process encodes the requests beforehand and sends them. All processes
// share the machine.
func Ingest(ctx context.Context, o IngestOptions) (*Result, error) {
	o.Options = o.withDefaults()
	load, err := newLoad(o.Options)
	if err != nil {
		return nil, err
	}
	programs := []string{o.Program}
	if o.Against != "" {
		programs = append(programs, o.Against)
	}
	args := append([]string{"--learning", loadLearning.String()}, o.Args...)
	var m *sustained
	used, err := runServers(ctx, programs, args, nil, func(servers []*server) (err error) {
		m, err = load.sustain(ctx, servers, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	r := &Result{Benchmark: "ingest", Input: fmt.Sprintf("gRPC requests of %d spans with %s each, %s "+
		"per span, %d senders, after %s of learning; server and load generator in separate processes",
		spansPerRequest, units.Plural(attributesPerSpan, "attribute"),
		units.Plural(load.bytes/load.spans, "byte"), o.Senders, units.Duration(m.learned))}
	m.report(r, 0, "", used[0])
	if o.Against != "" {
		m.report(r, 1, "against: ", used[1])
		m.compare(r)
	}
	return r, nil
}

// runServers runs a server of each program, and calls use while all run. It returns the usage of each.
func runServers(ctx context.Context, programs, args []string,
	running []*server, use func([]*server) error,
) (all []*usage, err error) {
	if len(programs) == 0 {
		return nil, use(running)
	}
	used, err := runServer(ctx, programs[0], []string{}, args, func(s *server) (err error) {
		all, err = runServers(ctx, programs[1:], args, append(running, s), use)
		return err
	})
	return append([]*usage{used}, all...), err
}

// addPeak adds the server's peak memory.
func (r *Result) addPeak(bytes int64) {
	r.add("peak server memory", Value{"peak_bytes", float64(bytes), mebibytes(int(bytes))})
}

// load is a list of encoded requests whose trace IDs and times can be changed.
type load struct {
	data         [][]byte
	ids, times   [][]int // offsets of trace IDs and of times in data
	bytes, spans int
	moves        moves
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
			times, err := timesIn(data)
			if err != nil {
				return nil, err
			}
			l.data, l.ids, l.times = append(l.data, data), append(l.ids, ids), append(l.times, times)
			l.bytes += len(data)
			l.spans += spansPerRequest
			longest = max(longest, len(data))
		}
	}
	l.buffers = mem.NewTieredBufferPool(longest)
	return l, nil
}

// splitTraces returns the contents of requests of spansPerRequest spans each. They contain n traces, each spread over
// requestsPerTrace requests, or over n if that is less.
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

// split distributes the spans of t, with their attributes, in turn over n traces of the same ID.
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

// request returns request n of an endless sequence that repeats l. Each repetition has other trace IDs; repetitions are
// numbered from round. Traces start when the first of their requests is asked for. The caller frees the request.
func (l *load) request(n int, round uint32) mem.Buffer {
	k := n % len(l.data)
	buf := l.buffers.Get(len(l.data[k]))
	copy(*buf, l.data[k])
	for _, at := range l.ids[k] {
		binary.BigEndian.PutUint32((*buf)[at:], round+uint32(n/len(l.data)))
	}
	move := l.moves.of(n/requestsPerTrace, (*buf)[l.times[k][0]:])
	for _, at := range l.times[k] {
		field := (*buf)[at:]
		binary.LittleEndian.PutUint64(field, binary.LittleEndian.Uint64(field)+move)
	}
	return mem.NewBuffer(buf, l.buffers)
}

// pace waits until request n is due at the given rate of spans per second; 0 means at once.
func pace(began time.Time, n int64, rate float64) {
	if rate > 0 {
		time.Sleep(time.Until(began.Add(time.Duration(float64(n*spansPerRequest) / rate * float64(time.Second)))))
	}
}
