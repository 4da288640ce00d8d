package throughput

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/sibyl-trace/sibyl/bench/fixtures/tracegen"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// Requests as Collectors send them: the spans of a trace come in several.
const (
	spansOfRequest  = 512
	spansOfIngested = 64 // of a trace
	requestsOfTrace = 8  // that its spans are spread over
)

// IngestOptions say how to measure [Ingest].
type IngestOptions struct {
	Options
	Program string   // that serves
	Args    []string // of it, beside those for addresses, data and log
	Senders int      // that wait for their answers at the same time
	Rate    float64  // spans per second that are offered; 0: as many as are taken
}

// Ingest measures the whole service, which runs in a process of its own: from gRPC requests over loopback to durable and analysed. The
// load is made in this process, of requests that were encoded beforehand; both share the machine.
func Ingest(ctx context.Context, o IngestOptions) (*Result, error) {
	o.Options = o.withDefaults()
	load, err := newLoad(o.Options)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sibyl-bench-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left is in the place for what may be left
	p, err := startServer(ctx, o.Program, dir, []string{}, o.Args)
	if err != nil {
		return nil, err
	}
	sent, err := load.send(ctx, p, o)
	final, stopErr := p.stop()
	if err := errors.Join(err, stopErr); err != nil {
		return nil, err
	}
	r := &Result{Benchmark: "ingest", Input: fmt.Sprintf("gRPC requests of %d spans with %s each, %s a span, %d senders, server and load in separate processes",
		spansOfRequest, units.Plural(attributesOfSpan, "attribute"), units.Plural(load.bytes/load.spans, "byte"), o.Senders)}
	spans, seconds := float64(sent.spans), sent.took.Seconds()
	r.add("taken", Value{"spans_per_second", spans / seconds, millions(spans/seconds) + " spans/s"},
		Value{"spans", spans, millions(spans) + " spans"}, Value{"seconds", seconds, units.Ratio(seconds) + " s"},
		Value{"retries", float64(sent.retries), units.Count(int(sent.retries)) + " requests sent again"})
	cpu := final.cpu.Seconds()
	r.add("server's CPU", Value{"cpu_seconds_per_million_spans", cpu / spans * 1e6, units.Ratio(cpu/spans*1e6) + " s per million spans"},
		Value{"cpu_seconds", cpu, units.Ratio(cpu) + " s in all"})
	r.add("server's memory at the peak", Value{"peak_bytes", float64(final.peak), mebibytes(int(final.peak))})
	r.add("journal", Value{"commits", final.number("commits"), units.Count(int(final.number("commits"))) + " commits"},
		Value{"fsyncs", final.number("fsyncs"), units.Count(int(final.number("fsyncs"))) + " fsyncs"},
		Value{"journal_bytes_per_span", final.number("journal_bytes") / spans, units.Ratio(final.number("journal_bytes")/spans) + " bytes a span"})
	return r, nil
}

// load is encoded requests whose trace IDs can be changed.
type load struct {
	data         [][]byte
	ids          [][]int // places in data of trace IDs
	bytes, spans int
	rounds       atomic.Uint32 // times that all of it was offered, see offer
}

// newLoad encodes requests until they fill o.Bytes.
func newLoad(o Options) (*load, error) {
	var table trace.Table
	r := rand.New(rand.NewPCG(o.Seed, 3))
	kinds := shapes(r, &table, 50, spansOfIngested)
	l := &load{}
	for begin := trace.Nanos(1_700_000_000_000_000_000); l.bytes < o.Bytes; begin += 1_000_000_000 {
		parts := make([][]*trace.Trace, requestsOfTrace)
		for range spansOfRequest * requestsOfTrace / spansOfIngested {
			t := kinds[r.IntN(len(kinds))].newTrace(r, begin)
			withAttributes(r, &table, t, attributesOfSpan)
			for i, part := range spread(t, requestsOfTrace) {
				parts[i] = append(parts[i], part)
			}
		}
		for _, traces := range parts {
			data, err := tracegen.Protobuf(traces, &table)
			if err != nil {
				return nil, err
			}
			var ids []int
			for _, t := range traces {
				ids = append(ids, places(data, t.ID[:])...)
			}
			l.data, l.ids = append(l.data, data), append(l.ids, ids)
			l.bytes += len(data)
			l.spans += spansOfRequest
		}
	}
	return l, nil
}

// spread spreads the spans of a trace over so many requests.
func spread(t *trace.Trace, n int) []*trace.Trace {
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

// places returns where in data the bytes of what are.
func places(data, what []byte) (at []int) {
	for from := 0; ; {
		i := bytes.Index(data[from:], what)
		if i < 0 {
			return at
		}
		at = append(at, from+i)
		from += i + len(what)
	}
}

// copyOf returns request k with other trace IDs in every round.
func (l *load) copyOf(buf []byte, k int, round uint32) []byte {
	buf = append(buf[:0], l.data[k]...)
	for _, at := range l.ids[k] {
		binary.BigEndian.PutUint32(buf[at:], round)
	}
	return buf
}

// sent is what became of a load.
type sent struct {
	spans   int64
	retries int64
	took    time.Duration
}

// exportMethod is the method of OTLP over gRPC.
const exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// connections is how many connections the senders share, as a few Collectors would have.
const connections = 4

// send sends requests until o.Time is over, each sender one after another.
func (l *load) send(ctx context.Context, p *served, o IngestOptions) (sent, error) {
	conns, closeAll, err := p.connect(connections)
	if err != nil {
		return sent{}, err
	}
	defer closeAll()
	var next, spans, retries atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, o.Senders)
	began := time.Now()
	until := began.Add(o.Time)
	for i := range o.Senders {
		wg.Go(func() {
			var buf []byte
			for time.Now().Before(until) && ctx.Err() == nil && errs[i] == nil {
				n := next.Add(1) - 1
				pace(began, n, o.Rate)
				buf = l.copyOf(buf, int(n)%len(l.data), uint32(int(n)/len(l.data))+1)
				again, err := export(ctx, conns[i%connections], buf)
				retries.Add(again)
				spans.Add(spansOfRequest)
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return sent{spans.Load(), retries.Load(), time.Since(began)}, errors.Join(append(errs, ctx.Err())...)
}

// dial returns a connection that sends bytes as they are.
func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
}

// pace waits until it is time for request n.
func pace(began time.Time, n int64, rate float64) {
	if rate > 0 {
		time.Sleep(time.Until(began.Add(time.Duration(float64(n*spansOfRequest) / rate * float64(time.Second)))))
	}
}

// export sends a request until it is taken, and returns how often it was sent again.
func export(ctx context.Context, conn *grpc.ClientConn, request []byte) (again int64, err error) {
	for {
		var answer []byte
		err := conn.Invoke(ctx, exportMethod, request, &answer)
		if code := status.Code(err); code != codes.Unavailable && code != codes.ResourceExhausted {
			return again, err // nil once it is taken
		}
		again++
		time.Sleep(retryPause)
	}
}

// retryPause is how long a sender waits when it was refused.
const retryPause = 100 * time.Millisecond

// errNotBytes is a mistake of whoever uses rawCodec.
var errNotBytes = errors.New("neither bytes nor a place for them")

// rawCodec sends and receives bytes as they are.
type rawCodec struct{}

// Marshal implements [encoding.CodecV2].
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errNotBytes
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal implements [encoding.CodecV2].
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errNotBytes
	}
	*b = data.Materialize()
	return nil
}

// Name implements [encoding.CodecV2].
func (rawCodec) Name() string { return "proto" }

var _ encoding.CodecV2 = rawCodec{}

// served is a server that runs in a process of its own.
type served struct {
	cmd       *exec.Cmd
	grpc, api string              // addresses
	lines     chan map[string]any // of its log; closed when that ends
	last      map[string]any      // the last line of its log
}

// startServer starts a server that keeps its data in dir, and waits until it listens and is ready. Env is its
// whole environment; not nil.
func startServer(ctx context.Context, program, dir string, env, args []string) (*served, error) {
	p := &served{lines: make(chan map[string]any, 100)}
	p.cmd = exec.CommandContext(ctx, program, append([]string{
		"serve", "--data-dir", dir, "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "off", "--http", "127.0.0.1:0", "--log-format", "json",
	}, args...)...)
	p.cmd.Env = env
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	go p.read(log)
	for line := range p.lines {
		if line["msg"] == "listening" {
			p.grpc, _ = line["otlp_grpc"].(string)
			p.api, _ = line["api"].(string)
		}
		if line["msg"] == "ready" {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the server did not start: %v: %w", p.last, p.cmd.Wait())
}

func (p *served) read(log io.Reader) {
	defer close(p.lines)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line map[string]any
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			line = map[string]any{"msg": lines.Text()}
		}
		p.last = line
		select {
		case p.lines <- line:
		default: // nobody looks at them any more
		}
	}
}

// final is what is known of a server that has ended.
type final struct {
	cpu  time.Duration
	peak int64 // bytes
	log  map[string]any
}

func (f *final) number(key string) float64 {
	n, _ := f.log[key].(float64)
	return n
}

// stop ends the server and returns what it took.
func (p *served) stop() (*final, error) {
	f := &final{peak: memoryOf(p.cmd.Process.Pid, "VmHWM:")}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	for range p.lines { // until the log ends
	}
	err := p.cmd.Wait()
	f.cpu = p.cmd.ProcessState.SystemTime() + p.cmd.ProcessState.UserTime()
	f.log = p.last
	if err != nil {
		return nil, fmt.Errorf("the server: %w: %v", err, p.last)
	}
	return f, nil
}

// memoryOf returns what the system says of the memory of a process: VmHWM is the most that it had, VmRSS what it has. 0: it does not say.
func memoryOf(pid int, what string) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if kib, ok := strings.CutPrefix(line, what); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kib), " kB"), 10, 64) // 0 if it is none
			return n << 10
		}
	}
	return 0
}
