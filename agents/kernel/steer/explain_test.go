//go:build linux && (amd64 || arm64)

package steer

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	sender "github.com/sibyl-trace/sibyl/agents/kernel/otlp"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// handled is a request that a thread of a service has handled. Times are in ns since 1970.
type handled struct {
	Trace      [16]byte
	Start, End int64
}

func writeLines(lines <-chan handled) {
	out := json.NewEncoder(os.Stdout)
	for r := range lines {
		if out.Encode(&r) != nil {
			os.Exit(0)
		}
	}
}

// serve handles requests until the process ends.
func (c *faultCase) serve(faulty *atomic.Bool, lines chan<- handled) {
	runtime.LockOSThread()
	if c.yields {
		prioritize(0, yieldingPriority)
	}
	work, err := c.open(faulty)
	if err != nil {
		panic(err)
	}
	for {
		r := handled{Trace: randomTrace(), Start: time.Now().UnixNano()}
		label(r.Trace)
		nap(time.Duration(800+rand.IntN(400)) * time.Microsecond)
		err := work()
		r.End = time.Now().UnixNano()
		pprof.SetGoroutineLabels(context.Background())
		if err != nil {
			panic(err)
		}
		lines <- r
		nap(betweenRequests)
	}
}

// betweenRequests is the pause of a thread.
const betweenRequests = 15 * time.Millisecond

// connect returns a blocking connection to a peer that answers each byte after a millisecond, or much later if faulty.
func connect(faulty *atomic.Bool) (*os.File, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}
		for b := make([]byte, 1); ; {
			if _, err := c.Read(b); err != nil {
				return
			}
			time.Sleep(time.Millisecond + faultTime(faulty))
			_, _ = c.Write(b)
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn).File() // unlike c itself, its descriptor blocks the thread
}

const (
	epochTime = time.Second // on the machine, for an epoch of the engine, which is
	epoch     = 10 * time.Second
	late      = 3 * time.Second // after this time, all waits of a request have arrived, even on a busy machine
)

// live runs the engine on the requests of services, connected to the kernel agent through the control plane. It
// receives the agent's spans.
type live struct {
	ptraceotlp.UnimplementedGRPCServer
	*plane
	core    *engine.Core
	epochs  int       // completed epochs
	began   time.Time // start of the current epoch
	decoder *otlp.Decoder

	mu       sync.Mutex // guards the fields below, and the table
	feedback []*search.Feedback
	waits    map[trace.ID][]trace.Span
	requests map[string][]handled // by service
}

// Export implements [ptraceotlp.GRPCServer].
func (l *live) Export(_ context.Context, request ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	data, err := request.MarshalProto()
	if err != nil {
		return ptraceotlp.NewExportResponse(), err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var batch ingest.Batch
	if err := l.decoder.Protobuf(data, &batch); err != nil {
		return ptraceotlp.NewExportResponse(), err
	}
	for i, id := range batch.Traces {
		l.waits[id] = append(l.waits[id], batch.Spans[i])
	}
	return ptraceotlp.NewExportResponse(), nil
}

// Record implements [control.Engine].
func (l *live) Record(_ context.Context, f *search.Feedback) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.feedback = append(l.feedback, f)
	return nil
}

// at converts a time of the current epoch to the engine's time.
func (l *live) at(t trace.Nanos) trace.Nanos {
	const scale = int64(epoch / epochTime)
	return trace.Nanos(1_700_000_000*time.Second) +
		trace.Nanos(int64(epoch)*int64(l.epochs)+scale*(int64(t)-l.began.UnixNano()))
}

// epoch ingests the requests of the epoch and ends it. If the plan changes, the engine's time stands still until the
// agent has applied it, however busy the machine is.
func (l *live) epoch(t *testing.T) {
	until := l.began.Add(epochTime)
	time.Sleep(time.Until(until.Add(late)))
	version := l.core.View().Searches.Plan().Version
	l.end(trace.Nanos(until.UnixNano()))
	l.epochs++
	l.began = until
	if l.core.View().Searches.Plan().Version == version {
		return
	}
	eventually(t, "the agent applies the plan", func() bool {
		agents := l.Agents()
		return len(agents) == 1 && agents[0].Version == l.core.View().Searches.Plan().Version
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = time.Now()
	for service, list := range l.requests {
		l.requests[service] = slices.DeleteFunc(list, func(r handled) bool { return r.Start < l.began.UnixNano() })
	}
}

// end ends the current epoch.
func (l *live) end(until trace.Nanos) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.feedback {
		f.At = l.at(until)
		l.core.Apply(&engine.Change{Feedback: f})
	}
	l.feedback = nil
	for service, list := range l.requests {
		n := 0
		for ; n < len(list) && list[n].End < int64(until); n++ {
			l.core.Ingest(l.traceOf(service, &list[n]))
		}
		l.requests[service] = list[n:]
	}
	l.core.Epoch(l.at(until))
	l.Publish(l.core.View().Searches.Plan(), &l.table)
}

// traceOf returns the trace of a request with its waits. The caller holds mu.
func (l *live) traceOf(service string, r *handled) *trace.Trace {
	name := l.table.Symbol(service)
	entry := trace.Span{
		ID:      1,
		Service: name,
		Host:    l.table.Symbol("b"),
		Kind:    trace.Server,
		Op:      l.table.Op(name, l.table.Symbol("POST /"+service), trace.Server),
	}
	entry.Start, entry.End = trace.Nanos(r.Start), trace.Nanos(r.End)
	t := &trace.Trace{ID: r.Trace, Spans: append([]trace.Span{entry}, l.waits[r.Trace]...)}
	for i := range t.Spans {
		s := &t.Spans[i]
		s.Start, s.End = l.at(s.Start), l.at(s.End)
	}
	delete(l.waits, r.Trace)
	return t
}

// explained returns the reasons of the explained investigations.
func (l *live) explained() (reasons []string) {
	for i := range l.core.View().Searches.State().Investigations {
		if v := &l.core.View().Searches.State().Investigations[i]; v.Status == search.Explained {
			reasons = append(reasons, v.Reason)
		}
	}
	return reasons
}

// long enables TestExplainsWaits, see make test-long.
var long = flag.Bool("long", false, "run the test that waits for the explanation of real waits")

// A real kernel agent, steered by Sibyl's engine, explains real waits of seven kinds in real processes. The engine
// enables classes of waits of each service until it finds the one that carries the problem. The waits arrive as OTLP
// spans.
func TestExplainsWaits(t *testing.T) {
	if !*long {
		t.Skip("takes half a minute, and needs a machine without other load; run it with -long")
	}
	requireProbes(t)
	l := &live{waits: make(map[trace.ID][]trace.Span), requests: make(map[string][]handled)}
	l.plane = newPlaneFor(t, l)
	l.decoder = otlp.NewDecoder(&l.table, ingest.AllKeys())
	options := engine.DefaultOptions()
	options.Learning = time.Minute
	l.core = engine.NewCore(&l.table, options)
	var pids []string
	_, start, _ := startRole(t, "neighbour")
	inputs := []io.Writer{start}
	for i := range faultCases {
		c, in, out := startRole(t, "service", "OTEL_SERVICE_NAME="+faultCases[i].service,
			caseVariable+"="+strconv.Itoa(i))
		go l.read(faultCases[i].service, out)
		pids, inputs = append(pids, pidOf(c)), append(inputs, in)
	}
	s := settings(l.url, strings.Join(pids, ","))
	s.Stacks, s.Thresholds = false, DefaultThresholds()
	exporter, err := sender.Open(serveOTLP(t, l), "", kernel.SyscallName, s.Logger)
	if err != nil {
		t.Fatal(err)
	}
	s.Send = exporter.Add
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- l.Run(ctx) }()
	go func() { ended <- Run(ctx, s) }()
	defer func() {
		stop()
		if err := errors.Join(<-ended, <-ended, exporter.Close()); err != nil {
			t.Error(err)
		}
		if c := exporter.Counts(); c.Sent == 0 || c.Dropped+c.Failed > 0 {
			t.Errorf("%+v", c)
		}
	}()
	eventually(t, "the agent registers", func() bool { return len(l.Agents()) == 1 })
	l.began = time.Now()
	const healthy, most = 12, 60       // epochs
	missing := make(map[string]string) // sentences by service
	for i := range faultCases {
		missing[faultCases[i].service] = faultCases[i].reason + " in " + faultCases[i].service
	}
	for n := 0; n < most && len(missing) > 0; n++ {
		l.epoch(t)
		if n == healthy {
			for _, in := range inputs {
				if _, err := io.WriteString(in, "fault\n"); err != nil {
					t.Fatal(err)
				}
			}
		}
		for service, want := range missing {
			named := func(reason string) bool { return strings.HasSuffix(reason, " in "+service) }
			if i := slices.IndexFunc(l.explained(), named); i >= 0 {
				reason := l.explained()[i]
				if n < healthy || !strings.HasSuffix(reason, want) {
					t.Errorf("after %d epochs: %s; want %s", n, reason, want)
				}
				t.Logf("explained %d epochs after the fault: %s", n-healthy, reason)
				delete(missing, service)
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	for i := range l.core.View().Searches.State().Investigations {
		v := &l.core.View().Searches.State().Investigations[i]
		t.Logf("%s: %s", v.Status, v.Reason)
		for k := range v.Suspects {
			t.Logf("  %s %s %.2f", l.table.OpName(v.Suspects[k].Op), l.table.Text(v.Suspects[k].Tracepoint),
				v.Suspects[k].Share)
		}
	}
	t.Errorf("not explained: %v", missing)
}

// serveOTLP serves a receiver of spans and returns its address.
func serveOTLP(t *testing.T, r ptraceotlp.GRPCServer) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(s, r)
	go func() { _ = s.Serve(listener) }() // until Stop
	t.Cleanup(s.Stop)
	return listener.Addr().String()
}

// read collects the requests of service from out, until out ends.
func (l *live) read(service string, out io.Reader) {
	for d := json.NewDecoder(out); ; {
		var r handled
		if err := d.Decode(&r); err != nil {
			return
		}
		l.mu.Lock()
		l.requests[service] = append(l.requests[service], r)
		l.mu.Unlock()
	}
}
