package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine"
)

// scratch is a directory for all tests.
var scratch string

// TestMain creates scratch before the tests and removes it after them.
func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "sibyl-test-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch) // the system cleans up its temporary directory
	os.Exit(code)
}

// built builds the sibyl program once for all tests, and returns its path.
var built = sync.OnceValues(func() (string, error) {
	name := filepath.Join(scratch, "sibyl")
	build := exec.Command("go", "build", "-o", name, "github.com/sibyl-trace/sibyl/cmd/sibyl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build: Pebble then allocates from the heap
	out, err := build.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return name, nil
})

// program returns the path of the sibyl program.
func program(t *testing.T) string {
	t.Helper()
	name, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// patience is the timeout for events that should happen at once. The default timeout of exporters is too short for a
// busy machine.
const patience = time.Minute

// freeAddress returns an unused loopback address. Its port is below those that Linux gives to connections and to
// listeners on port 0, so that no other program gets it until the test listens on it.
func freeAddress(t *testing.T) string {
	t.Helper()
	const lowest, ephemeral = 10_000, 32_768
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(ephemeral-lowest))
		if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address); err == nil {
			_ = l.Close() // it was never used
			return address
		}
	}
	t.Fatal("a hundred ports are in use")
	return ""
}

// process is a server in its own process.
type process struct {
	t         *testing.T
	program   string
	dir       string
	grpc, api string
	http      string // empty if off
	log       *os.File
	more      []string // further arguments
	files     int      // limit on open files; 0 for the limit of this process
	cgroup    string   // the file that the process enters a cgroup by; empty for the cgroup of this process
	cmd       *exec.Cmd
}

// newProcess returns a server with its data in dir. It isn't started.
func newProcess(t *testing.T, dir string) *process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return &process{t: t, program: program(t), dir: dir, grpc: freeAddress(t), api: freeAddress(t), log: log}
}

func (v *process) start() {
	v.t.Helper()
	v.cmd = exec.Command(v.program, append([]string{
		"serve", "--data-dir", v.dir, "--otlp-grpc", v.grpc, "--otlp-http", cmp.Or(v.http, "off"), "--http", v.api,
		"--epoch", "1s", "--learning", "5s",
	}, v.more...)...)
	if v.files > 0 {
		limited := fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, v.files)
		v.cmd.Args = append([]string{"sh", "-c", limited, v.cmd.Path}, v.cmd.Args[1:]...)
		v.cmd.Path = "/bin/sh"
	}
	if v.cgroup != "" {
		enter := []string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, v.cgroup, v.cmd.Path}
		v.cmd.Args = append(enter, v.cmd.Args[1:]...)
		v.cmd.Path = "/bin/sh"
	}
	v.cmd.Stderr = v.log
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
}

// ready waits until the server accepts requests, and returns how long that took.
func (v *process) ready() time.Duration {
	v.t.Helper()
	began := time.Now()
	for time.Since(began) < patience {
		if r, err := http.Get("http://" + v.api + "/readyz"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return time.Since(began)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	v.t.Fatalf("not ready a minute after the start:\n%s", v.logged())
	return 0
}

// logged returns the end of the server's log.
func (v *process) logged() string {
	v.t.Helper()
	text, err := os.ReadFile(v.log.Name())
	if err != nil {
		v.t.Fatal(err)
	}
	return string(text[max(0, len(text)-4000):])
}

func (v *process) end(signal os.Signal) {
	v.t.Helper()
	if err := v.cmd.Process.Signal(signal); err != nil {
		v.t.Fatal(err)
	}
	_ = v.cmd.Wait() // the log contains the error, unless the server was killed
}

// exportTrace exports the trace with number n in two requests, the children before the root, and returns when both are
// acknowledged.
func exportTrace(ctx context.Context, e *otlptrace.Exporter, n uint64) error {
	for _, spans := range traceOf(n) {
		if err := e.ExportSpans(ctx, spans.Snapshots()); err != nil {
			return err
		}
	}
	return nil
}

// traceOf returns the spans of the trace with number n that two requests export: the children, then the root.
func traceOf(n uint64) [2]tracetest.SpanStubs {
	var id oteltrace.TraceID
	binary.BigEndian.PutUint64(id[8:], n+1)
	begin := time.Now() // of all spans: a child that ended before its parent started would be a separate request
	context := func(k byte) oteltrace.SpanContext {
		return oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
			TraceID: id, SpanID: oteltrace.SpanID{7: k}, TraceFlags: oteltrace.FlagsSampled,
		})
	}
	span := func(k, parent byte, kind oteltrace.SpanKind, name string, from, to time.Duration) tracetest.SpanStub {
		stub := tracetest.SpanStub{
			Name:        name,
			SpanKind:    kind,
			StartTime:   begin.Add(from),
			EndTime:     begin.Add(to),
			SpanContext: context(k),
			Resource:    resource.NewSchemaless(attribute.String("service.name", "shop")),
		}
		if parent != 0 {
			stub.Parent = context(parent)
		}
		return stub
	}
	children := tracetest.SpanStubs{
		span(2, 1, oteltrace.SpanKindClient, "call", 10*time.Millisecond, 90*time.Millisecond),
		span(3, 2, oteltrace.SpanKindInternal, "work", 20*time.Millisecond, 80*time.Millisecond),
	}
	root := tracetest.SpanStubs{span(1, 0, oteltrace.SpanKindServer, "GET /", 0, 100*time.Millisecond)}
	return [2]tracetest.SpanStubs{children, root}
}

// Every acknowledged trace counts exactly once, even if the server is killed many times.
func TestKilled(t *testing.T) {
	t.Parallel()
	kills := 15
	switch {
	case *soak:
		kills = 500
	case *long:
		kills = 50
	case testing.Short():
		kills = 5
	}
	v := newProcess(t, t.TempDir())
	v.start()
	v.ready()

	var sent, failed atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	reconnect := grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.5, MaxDelay: 100 * time.Millisecond},
	}
	retry := otlptracegrpc.RetryConfig{
		Enabled:         true,
		InitialInterval: 5 * time.Millisecond,
		MaxInterval:     50 * time.Millisecond,
		MaxElapsedTime:  patience,
	}
	var senders sync.WaitGroup
	for range 8 {
		e, err := otlptracegrpc.New(t.Context(),
			otlptracegrpc.WithEndpoint(v.grpc), otlptracegrpc.WithInsecure(), otlptracegrpc.WithCompressor("gzip"),
			otlptracegrpc.WithTimeout(patience), otlptracegrpc.WithRetry(retry),
			otlptracegrpc.WithDialOption(grpc.WithConnectParams(reconnect)))
		if err != nil {
			t.Fatal(err)
		}
		senders.Go(func() {
			for ctx.Err() == nil {
				if err := exportTrace(t.Context(), e, sent.Add(1)); err != nil {
					failed.Add(1)
					t.Log(err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	slowest := time.Duration(0)
	for range kills {
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		v.end(os.Kill)
		v.start()
		if r.IntN(3) > 0 { // otherwise it is killed while it starts
			slowest = max(slowest, v.ready())
		}
	}
	v.ready()
	stop()
	senders.Wait()
	acked := sent.Load() - failed.Load()
	time.Sleep(12 * time.Second) // traces close once they have settled
	eventually(t, "the acknowledged traces are counted", func() bool { return v.groups() >= acked })
	v.end(os.Interrupt)

	// A trace that wasn't acknowledged may still be counted.
	if n := requestsIn(t, v.dir); n < acked || n > sent.Load() {
		t.Errorf("got %d traces, %d of %d acknowledged; the server's log:\n%s", n, acked, sent.Load(), v.logged())
	}
	if n := failed.Load(); n > sent.Load()/100 {
		t.Errorf("%d of %d traces were not acknowledged", n, sent.Load())
	}
	t.Logf("%d traces, %d kills, slowest restart %v", sent.Load(), kills, slowest)
}

// requestsIn returns the number of requests in the statistics in a data directory.
func requestsIn(t *testing.T, dir string) (n uint64) {
	t.Helper()
	e, err := config.Load(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	c := e.Config
	c.DataDir, c.OTLP.GRPC, c.OTLP.HTTP, c.HTTP = dir, "", "", "127.0.0.1:0"
	c.Epoch, c.Learning = time.Second, 5*time.Second
	s, err := New(&c, Build{}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.main.live.Run(ctx) }()
	<-s.main.live.Started()
	n = s.requests(t)
	stop()
	if err := fmt.Sprint(<-done, s.Close()); err != "<nil> <nil>" {
		t.Fatal(err)
	}
	return n
}

// requests returns the number of requests in the statistics.
func (s *Server) requests(t *testing.T) (n uint64) {
	t.Helper()
	err := s.main.live.Ask(t.Context(), func(core *engine.View) {
		for _, g := range core.Groups.Groups() {
			if g.Level == group.LevelRequestType {
				for _, w := range g.Windows() {
					n += w.Total.N
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Objectives and gates that people have set are in effect after a kill.
func TestEditsSurviveKill(t *testing.T) {
	v := newProcess(t, t.TempDir())
	v.start()
	v.ready()
	do := func(method, path, body string) string {
		t.Helper()
		url := "http://" + v.api + "/api/v1" + path
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode >= http.StatusMultipleChoices {
			t.Fatalf("%s %s: %d: %s, %v", method, path, answer.StatusCode, text, err)
		}
		return string(text)
	}
	do(http.MethodPost, "/objectives", `{"entry":"shop","errors":0.01}`)
	do(http.MethodPut, "/gates", `{"growth":0.3}`)
	v.end(os.Kill)
	v.start()
	defer v.end(os.Kill)
	v.ready()
	if got := do(http.MethodGet, "/objectives", ""); !strings.Contains(got, `"entry":"shop"`) {
		t.Errorf("after the kill: %s", got)
	}
	if got := do(http.MethodGet, "/gates", ""); !strings.Contains(got, `"growth":0.3`) {
		t.Errorf("after the kill: %s", got)
	}
	eventually(t, "the metrics have the objective", func() bool {
		r, err := http.Get("http://" + v.api + "/metrics")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		return bytes.Contains(text, []byte(`sibyl_objective_burning{below="",entry="shop"`))
	})
}
