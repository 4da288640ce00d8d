//go:build linux && (amd64 || arm64)

package steer

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// handled is a request that a thread of the shop has handled. Times are of the monotonic clock.
type handled struct {
	Trace      [16]byte
	Start, End uint64
}

// shop handles requests in two threads, which sleep and ask a peer over TCP, and writes a line for each. A line of its
// input makes the peer slow; it ends with its input.
func shop() {
	var faulty atomic.Bool
	lines := make(chan handled, 1000)
	for range 2 {
		go serve(&faulty, lines)
	}
	go func() {
		out := json.NewEncoder(os.Stdout)
		for r := range lines {
			if out.Encode(&r) != nil {
				os.Exit(0)
			}
		}
	}()
	in := bufio.NewReader(os.Stdin)
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		faulty.Store(true)
	}
}

// serve handles requests until the process ends.
func serve(faulty *atomic.Bool, lines chan<- handled) {
	runtime.LockOSThread()
	// Busy CPUs must not be the reason. Without the right the test depends on the machine.
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
	peer, err := connect(faulty)
	if err != nil {
		panic(err)
	}
	b := make([]byte, 1)
	for {
		r := handled{Trace: randomTrace(), Start: now()}
		label(r.Trace)
		nap(time.Duration(800+rand.IntN(400)) * time.Microsecond)
		_, _ = unix.Write(int(peer.Fd()), b)
		_, _ = unix.Read(int(peer.Fd()), b)
		r.End = now()
		lines <- r
		nap(3 * time.Millisecond)
	}
}

// connect returns a blocking connection to a peer, which answers each byte after a millisecond, or much later.
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
			time.Sleep(time.Millisecond)
			if faulty.Load() {
				time.Sleep(time.Duration(20+rand.IntN(20)) * time.Millisecond)
			}
			_, _ = c.Write(b)
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn).File() // its descriptor blocks the thread, other than that of c
}

func nap(d time.Duration) { _ = syscall.Nanosleep(&syscall.Timespec{Nsec: int64(d)}, nil) }

func now() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano())
}

// speed is the factor by which the engine's time passes faster: its epoch of 10 s takes a second.
const speed = 10

// live runs the engine on the requests of the shop, with the kernel agent and the control plane between them.
type live struct {
	*plane
	core  *engine.Core
	began uint64
	ended trace.Nanos // last epoch
	names struct{ service, host, root trace.Symbol }

	mu       sync.Mutex // guards the fields below
	feedback []*search.Feedback
	waits    map[trace.ID][]join.Wait
	requests []handled
}

// Record implements [control.Engine].
func (l *live) Record(_ context.Context, f *search.Feedback) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.feedback = append(l.feedback, f)
	return nil
}

// at converts the monotonic clock to the engine's time.
func (l *live) at(ns uint64) trace.Nanos {
	return trace.Nanos(1_700_000_000*time.Second) + trace.Nanos(speed*(int64(ns)-int64(l.began)))
}

// late is the time after which all waits of a request have arrived.
const late = uint64(6 * tick)

// epoch ingests the requests whose waits have arrived and ends an epoch.
func (l *live) epoch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	until := now() - late
	l.ended = l.at(now())
	for _, f := range l.feedback {
		f.At = l.ended
		l.core.Apply(&engine.Change{Feedback: f})
	}
	l.feedback = nil
	n := 0
	for ; n < len(l.requests) && l.requests[n].End < until; n++ {
		l.core.Ingest(l.traceOf(&l.requests[n]))
	}
	l.requests = l.requests[n:]
	l.core.Epoch(l.ended)
	l.Publish(l.core.Plan(), &l.table)
}

// traceOf returns the trace of a request with its waits, which it forgets. The caller holds mu.
func (l *live) traceOf(r *handled) *trace.Trace {
	span := func(id trace.SpanID, name trace.Symbol, kind trace.Kind, start, end uint64) trace.Span {
		return trace.Span{
			ID: id, Start: l.at(start), End: l.at(end), Service: l.names.service, Host: l.names.host, Kind: kind, Op: l.table.Op(l.names.service, name, kind),
		}
	}
	t := &trace.Trace{ID: r.Trace, Spans: []trace.Span{span(1, l.names.root, trace.Server, r.Start, r.End)}}
	for _, w := range l.waits[r.Trace] {
		s := span(trace.SpanID(1+len(t.Spans)), l.table.Symbol(waits.SpanName(w.Part.Class)), trace.Internal, w.Part.Start, w.Part.End)
		s.Parent, s.Tracepoint = trace.SpanID(binary.BigEndian.Uint64(w.Parent[:])), l.table.Symbol(waits.TracepointID(w.Service.Name, w.Part.Class))
		t.Spans = append(t.Spans, s)
	}
	delete(l.waits, r.Trace)
	return t
}

// explained returns the reason of an explained investigation; "" if there is none.
func (l *live) explained() string {
	for i := range l.core.State().Investigations {
		if v := &l.core.State().Investigations[i]; v.Status == search.Explained {
			return v.Reason
		}
	}
	return ""
}

// A slow peer of a real process is explained by a real kernel agent that Sibyl's engine steers: the engine enables
// classes of waits of the service until it finds the one that carries the problem.
func TestExplainsSlowNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	requireProbes(t)
	l := &live{began: now(), waits: make(map[trace.ID][]join.Wait)}
	l.plane = newPlaneFor(t, l)
	options := engine.DefaultOptions()
	options.Learning = time.Minute
	l.core = engine.NewCore(&l.table, options)
	l.names.service, l.names.host, l.names.root = l.table.Symbol("orders"), l.table.Symbol("b"), l.table.Symbol("POST /order")
	c, in, out := startRole(t, "shop", "OTEL_SERVICE_NAME=orders")
	go l.read(out)
	s := settings(l.url, pidOf(c))
	s.Stacks = false
	for class := range s.Thresholds {
		s.Thresholds[class] = 20_000
	}
	s.Send = l.take
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- l.Run(ctx) }()
	go func() { ended <- Run(ctx, s) }()
	defer func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	const healthy, most = 12, 60 // epochs
	for n := range most {
		<-ticker.C
		l.epoch()
		if n == healthy {
			if _, err := io.WriteString(in, "fault\n"); err != nil {
				t.Fatal(err)
			}
		}
		if reason := l.explained(); reason != "" {
			if n < healthy || !strings.Contains(reason, "waiting for the network in orders") {
				t.Errorf("after %d epochs: %s", n, reason)
			}
			t.Logf("explained %d epochs after the fault: %s", n-healthy, reason)
			return
		}
	}
	for i := range l.core.State().Investigations {
		v := &l.core.State().Investigations[i]
		t.Logf("%s: %s", v.Status, v.Reason)
		for k := range v.Suspects {
			t.Logf("  %s %.2f", l.table.Text(v.Suspects[k].Tracepoint), v.Suspects[k].Share)
		}
	}
	t.Error("not explained")
}

// take keeps waits until their requests end.
func (l *live) take(all []join.Wait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range all {
		l.waits[w.Trace] = append(l.waits[w.Trace], w)
	}
}

// read collects the requests of the shop.
func (l *live) read(out io.Reader) {
	for d := json.NewDecoder(out); ; {
		var r handled
		if err := d.Decode(&r); err != nil {
			return
		}
		l.mu.Lock()
		l.requests = append(l.requests, r)
		l.mu.Unlock()
	}
}
