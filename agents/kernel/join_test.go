//go:build linux

package kernel

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/join"
	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
	"github.com/sibyl-trace/sibyl/agents/tracepoint"
)

var joinedWaits = flag.Int("waits", 6000, "number of waits of the Go service in TestNoWrongTrace")

// concurrentRequests is the number of requests at a time in TestNoWrongTrace.
const concurrentRequests = 64

// call is a system call that a goroutine waits in, as the goroutine sees it. Both identities are zero if the
// goroutine works for no sampled span.
type call struct {
	TID      int64
	From, To int64 // of the monotonic clock
	Trace    [16]byte
	Span     [8]byte
}

// requestsWorkload is a Go service with concurrent requests. Each request waits in its span, in a child span, in a
// child span on another goroutine, and after the request. It writes all calls.
func requestsWorkload(in *bufio.Reader, out io.Writer) error {
	agent, err := tracepoint.Connect(context.Background(), tracepoint.WithService("requests"),
		tracepoint.WithEndpoint("http://127.0.0.1:1"), tracepoint.WithGoroutineLabels())
	if err != nil {
		return err
	}
	defer agent.Close()
	inner := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.8))))
	tracer := tracepoint.Provider(inner,
		tracepoint.WithBaseline(trace.SpanKindServer, trace.SpanKindInternal)).Tracer("requests")
	fmt.Fprintln(out, "ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Getenv("SIBYL_KERNEL_WAITS"))
	if err != nil {
		return err
	}
	calls := make([][]call, concurrentRequests)
	var done sync.WaitGroup
	for i := range calls {
		done.Go(func() {
			for len(calls[i]) < n/concurrentRequests+1 {
				calls[i] = append(calls[i], serveRequest(tracer)...)
			}
		})
	}
	done.Wait()
	all := slices.Concat(calls...)
	fmt.Fprintln(out, len(all))
	if err := binary.Write(out, binary.LittleEndian, all); err != nil {
		return err
	}
	_, _ = in.ReadString('\n')
	return nil
}

// serveRequest serves a request and returns its calls.
func serveRequest(tracer trace.Tracer) []call {
	ctx := context.Background()
	if rand.N(2) == 0 { // other labels before, between and after
		ctx = pprof.WithLabels(ctx, pprof.Labels("a", "1", "spam_id", "0123456789abcdef", "z", "2"))
	}
	ctx, entry := tracer.Start(ctx, "GET /", trace.WithSpanKind(trace.SpanKindServer))
	calls := []call{waitIn(ctx)}
	below, query := tracer.Start(ctx, "query")
	calls = append(calls, waitIn(below))
	other := make(chan call)
	go func() { other <- waitIn(below) }()
	calls = append(calls, <-other)
	query.End()
	calls = append(calls, waitIn(ctx))
	entry.End()
	return append(calls, waitIn(context.Background()))
}

// waitIn waits in a system call for the span of ctx.
func waitIn(ctx context.Context) call {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := call{TID: int64(unix.Gettid())}
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() {
		c.Trace, c.Span = sc.TraceID(), sc.SpanID()
	}
	moment := unix.Timespec{Nsec: 20e3 + rand.Int64N(400e3)}
	c.From = clock()
	if moment.Nsec%2 == 0 {
		_ = unix.Nanosleep(&moment, nil)
	} else {
		_, _ = unix.Ppoll(nil, &moment, nil)
	}
	c.To = clock()
	return c
}

// No wait of a Go service with concurrent requests gets the span of another request, and every wait without a span has
// a reason.
func TestNoWrongTrace(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("goroutines are read on amd64 only")
	}
	p := open(t, Options{RingBytes: 1 << 24})
	t.Setenv("SIBYL_KERNEL_WAITS", strconv.Itoa(*joinedWaits))
	w := start(t, "requests")
	joiner := join.NewJoiner("/proc", "", "here")
	joiner.Inspector.Patience = time.Minute // the machine may be busy
	target := everything
	target.Stacks = false
	var err error
	joiner.Service(w.pid)
	if target.Context, _, err = joiner.Context(w.pid); err != nil { // the library publishes the service
		t.Fatal(err)
	}
	var thresholds waits.Thresholds
	for c := range thresholds {
		thresholds[c] = 1
	}
	apply(t, p, w.pid, target, thresholds)
	w.goOn()
	calls, events := collectCalls(t, p, w)
	byThread := make(map[uint32][]call)
	for _, c := range calls {
		byThread[uint32(c.TID)] = append(byThread[uint32(c.TID)], c)
	}
	for _, list := range byThread {
		slices.SortFunc(list, func(a, b call) int { return cmp.Compare(a.From, b.From) })
	}
	known := make(map[[16]byte]bool)
	for _, c := range calls {
		known[c.Trace] = true
	}
	var right, none, suspended, elsewhere, lacking int
	for i := range events {
		e := &events[i]
		joined, ok := joiner.Join(e)
		c := callAt(byThread[e.TID], int64(e.End-e.WaitNs-e.RunqNs))
		switch {
		case c == nil: // a wait of the runtime
			if ok {
				elsewhere++
				if !known[joined.Trace] {
					t.Errorf("a wait has the unknown trace %x", joined.Trace)
				}
			}
		case ok && (joined.Trace != c.Trace || joined.Parent != c.Span):
			t.Errorf("a wait of %x %x has the span %x %x", c.Trace, c.Span, joined.Trace, joined.Parent)
		case ok:
			right++
		case c.Trace == [16]byte{}:
			none++
		case e.Found == waits.NoGoroutine &&
			(e.Class == waits.Futex || e.Class == waits.RunQueue || e.Class == waits.Preempted):
			suspended++ // the goroutine waits for one of Go's processors after the call
		default:
			lacking++
		}
	}
	counts := joiner.Joins()
	t.Logf("%d calls, %d events: %d with the right span, %d rightly without, %d after their call, %d lack theirs; "+
		"%d of the runtime within spans",
		len(calls), len(events), right, none, suspended, lacking, elsewhere)
	missing := counts.Exact
	for reason, n := range counts.Missing {
		missing += n
		t.Logf("%s: %d", waits.Reason(reason), n)
	}
	if missing != uint64(len(events)) {
		t.Errorf("%d of %d events are counted", missing, len(events))
	}
	// The kernel refuses memory for the state of a thread while another CPU changes the same storage. It is asked
	// again at the next switch.
	if l, err := p.Losses(); err != nil || l.Events+l.Limited+l.Sums != 0 || l.Threads > uint64(len(events)/1000) {
		t.Errorf("losses %+v, %v", l, err)
	}
	if right < len(calls)/2 || lacking*100 > right || none == 0 {
		t.Error("want nearly all waits of sampled spans to have them, and others none")
	}
}

// collectCalls reads events until the workload has ended.
func collectCalls(t *testing.T, p *Probes, w *workload) (calls []call, events []waits.Event) {
	t.Helper()
	finished := make(chan error, 1)
	go func() {
		text, err := w.out.ReadString('\n')
		if err != nil {
			finished <- err
			return
		}
		n, err := strconv.Atoi(text[:len(text)-1])
		if err != nil {
			finished <- err
			return
		}
		calls = make([]call, n)
		finished <- binary.Read(w.out, binary.LittleEndian, calls)
	}()
	read := func() {
		if err := p.Events(func(e waits.Event) { events = append(events, e) }); err != nil {
			t.Fatal(err)
		}
		if err := p.Renew(); err != nil {
			t.Fatal(err)
		}
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case err := <-finished:
			if err != nil {
				t.Fatal(err)
			}
			read()
			return calls, events
		case <-ticker.C:
			read()
		}
	}
}

// callAt returns the call that was running at time at, or nil. calls are the calls of one thread, in order.
func callAt(calls []call, at int64) *call {
	i, found := slices.BinarySearchFunc(calls, at, func(c call, at int64) int { return cmp.Compare(c.From, at) })
	if !found {
		i--
	}
	if i < 0 || at > calls[i].To {
		return nil
	}
	return &calls[i]
}

// recordLibrary contains the pointer to the record of each thread.
const recordLibrary = `
struct record;
__attribute__((visibility("default"))) __thread struct record *otel_thread_ctx_v1;
void attach(struct record *r) { otel_thread_ctx_v1 = r; }
`

// recordProgram is a C program with a thread for each digit. Each thread waits in a span whose IDs consist of the
// digit, and prints its thread number. The first thread has an unsampled span, the second has a record that is being
// written, and the third has no record. The optional argument is a library to load.
const recordProgram = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct record { unsigned char trace[16], span[8], valid, flags; unsigned short size; } __attribute__((packed, aligned(2)));
__thread int other[3] = {1};
#ifdef LOAD
static void (*attach)(struct record *);
#else
void attach(struct record *);
#endif
static pthread_barrier_t begun;
static int numbers[16];

static void *work(void *p)
{
	long i = (long)p;
	struct record r = {.valid = 1, .flags = 1};
	memset(r.trace, i, 16);
	memset(r.span, i, 8);
	if (i == 1) r.flags = 0;
	if (i == 2) r.valid = 0;
	if (i != 3) attach(&r);
	numbers[i] = gettid();
	pthread_barrier_wait(&begun);
	for (;;) {
		struct timespec t = {.tv_nsec = 1000000};
		clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0);
	}
}

int main(int n, char **arguments)
{
	char line[8];
	pthread_t t;
#ifdef LOAD
	void *library = dlopen(arguments[1], RTLD_NOW);
	if (!library || !(attach = dlsym(library, "attach"))) return 2;
#endif
	pthread_barrier_init(&begun, 0, 16);
	for (long i = 1; i < 16; i++) pthread_create(&t, 0, work, (void *)i);
	pthread_barrier_wait(&begun);
	for (int i = 1; i < 16; i++) printf("%d ", numbers[i]);
	puts("");
	fflush(stdout);
	return !fgets(line, sizeof line, stdin);
}
`

// Threads that publish the record of OTEP 4947 get their own spans, and only these, whether the program itself, a
// linked library or a loaded library has the record.
func TestThreadRecord(t *testing.T) {
	p := open(t, Options{})
	folder := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(folder, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	source, library := write("main.c", recordProgram), write("record.c", recordLibrary)
	shared, old := filepath.Join(folder, "librecord.so.1"), filepath.Join(folder, "libold.so")
	build := func(arguments ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "cc", arguments...).CombinedOutput(); err != nil {
			t.Skipf("%v\n%s", err, out)
		}
	}
	build("-shared", "-fPIC", "-mtls-dialect=gnu2", "-o", shared, library)
	build("-shared", "-fPIC", "-mtls-dialect=gnu", "-o", old, library)
	for _, c := range []struct {
		name    string
		build   []string
		run     []string
		refused string
	}{
		{"program", []string{"-rdynamic", source, library}, nil, ""},
		{"linked library", []string{source, shared}, nil, ""},
		{"loaded library", []string{"-DLOAD", source}, []string{shared}, ""},
		{
			"library without descriptor",
			[]string{source, old},
			nil, "libold.so: it accesses otel_thread_ctx_v1 without a TLS descriptor",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			program := filepath.Join(folder, "main")
			build(append([]string{"-pthread", "-o", program}, c.build...)...)
			checkRecords(t, p, exec.CommandContext(t.Context(), program, c.run...), folder, c.refused)
		})
	}
}

// checkRecords runs a program with records, and compares the spans of its threads.
func checkRecords(t *testing.T, p *Probes, c *exec.Cmd, libraries, refused string) {
	t.Helper()
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries)
	in, out := startPiped(t, c)
	defer func() { _, _ = in.Close(), c.Wait() }() // fails without a line
	digits := make(map[uint32]byte)
	for i := byte(1); i < 16; i++ {
		var tid uint32
		if _, err := fmt.Fscan(out, &tid); err != nil {
			t.Fatal(err)
		}
		digits[tid] = i
	}
	pid := uint32(c.Process.Pid)
	joiner := join.NewJoiner("/proc", "records", "here")
	joiner.Inspector.Patience = time.Minute // the machine may be busy
	joiner.Service(pid)
	target := everything
	target.Events = waits.Set(0).With(waits.Sleep)
	kind, _, err := joiner.Context(pid)
	target.Context = kind
	if refused != "" {
		if err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("%v, want %s", err, refused)
		}
		return
	}
	if err != nil && runtime.GOARCH != "amd64" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	apply(t, p, pid, target, waits.Thresholds{waits.Sleep: 1})
	right := make(map[byte]int)
	for len(right) < 12 {
		err := p.Events(func(e waits.Event) {
			i := digits[e.TID]
			w, ok := joiner.Join(&e)
			switch {
			case ok && (i <= 3 || w.Trace[0] != i || w.Trace[15] != i || w.Parent[0] != i || w.Parent[7] != i):
				t.Errorf("thread %d has the span %x %x", i, w.Trace, w.Parent)
			case ok:
				right[i]++
			case i == 1 && e.Found != waits.Unsampled || (i == 2 || i == 3) && e.Found != waits.NoSpan:
				if e.Found != waits.NotSought { // the wait was there before the probes
					t.Errorf("thread %d: %d", i, e.Found)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A process that runs another program isn't read as if it were still the first program.
func TestExecEndsContext(t *testing.T) {
	p := open(t, Options{})
	c := exec.CommandContext(t.Context(), "sh", "-c", "read line; exec sleep 60")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Process.Kill(), c.Wait() }() // killed
	pid := uint32(c.Process.Pid)
	target := everything
	target.Context = join.Context{Kind: join.ThreadRecord, TLS: -8}
	apply(t, p, pid, target, waits.Thresholds{})
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	for running := false; !running; {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		running = bytes.Contains(text, []byte("(sleep) S "))
	}
	all, err := p.targets()
	if err != nil {
		t.Fatal(err)
	}
	if kind := all[pid].Context.Kind; len(all) != 1 || kind != uint32(join.None) {
		t.Errorf("%d targets, context %d", len(all), kind)
	}
}

// A process that executes its own program again publishes its spans again.
func TestExecOfSameProgram(t *testing.T) {
	p := open(t, Options{})
	c := exec.CommandContext(t.Context(), "sh", "-c", "read line; exec sh -c 'echo; read line'")
	in, out := startPiped(t, c)
	defer func() { _, _, _ = in.Close(), c.Process.Kill(), c.Wait() }() // killed
	pid := uint32(c.Process.Pid)
	target := everything
	target.Context = join.Context{Kind: join.ThreadRecord, TLS: -8}
	apply(t, p, pid, target, waits.Thresholds{})
	before := p.Changes()
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if p.Changes() == before {
		t.Error("the agent does not notice")
	}
	apply(t, p, pid, target, waits.Thresholds{})
	all, err := p.targets()
	if err != nil {
		t.Fatal(err)
	}
	if kind := all[pid].Context.Kind; kind != uint32(join.ThreadRecord) {
		t.Errorf("context %d", kind)
	}
}
