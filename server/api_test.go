package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/trace"
)

// The API of a whole service counts the traces sent to it.
func TestAPI(t *testing.T) {
	env := volatile(t.TempDir())
	env["SIBYL_API_BASE_PATH"] = "/sibyl"
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(&e.Config, Build{Version: "v1"}, slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	at := s.Addresses()
	base := "http://" + at.API.String() + "/sibyl"
	get := func(path string, into any) int {
		r, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if into != nil && r.StatusCode == http.StatusOK {
			if err := json.NewDecoder(r.Body).Decode(into); err != nil {
				t.Fatal(err)
			}
		}
		return r.StatusCode
	}
	for get("/readyz", nil) != http.StatusOK {
		time.Sleep(10 * time.Millisecond)
	}
	for _, path := range []string{"/readyz", "/api/v1/status", "/"} { // like a proxy that removes the base path
		r, err := http.Get("http://" + at.API.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK || r.Request.URL.Path != path {
			t.Errorf("%s without its base: %s at %s", path, r.Status, r.Request.URL)
		}
	}
	app := sim.New(sim.Config{Tracepoints: 50})
	now := trace.Nanos(time.Now().UnixNano())
	sent := 0
	var traces []*trace.Trace
	for x := range app.Requests(now, now.Add(2*time.Second), nil) {
		kept := &trace.Trace{ID: x.ID}
		kept.Append(x)
		traces = append(traces, kept)
		sent++
	}
	body, err := tracegen.Protobuf(traces, app.Table())
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Post("http://"+at.HTTP.String()+"/v1/traces", "application/x-protobuf", bytes.NewReader(body))
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r, err)
	}
	r.Body.Close()
	for _, path := range []string{"/v1/traces", "/api/v2/spans"} {
		r, err := http.NewRequest(http.MethodPost, "http://"+at.HTTP.String()+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "http://evil.example")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("a page of another site sent to %s: %s", path, answer.Status)
		}
	}
	spans := fmt.Sprintf(`[{
		"traceId":"1","id":"2","kind":"SERVER","name":"get /","timestamp":%d,"duration":9000,
		"localEndpoint":{"serviceName":"zipkin"}
	},{"traceId":"x"}]`, now/1000)
	if r, err = http.Post("http://"+at.HTTP.String()+"/api/v2/spans", "application/json",
		strings.NewReader(spans)); err != nil || r.StatusCode != http.StatusAccepted {
		t.Fatal(r, err)
	}
	r.Body.Close()
	sent++
	counted := int64(0)
	deadline := time.Now().Add(time.Minute)
	for ; counted < int64(sent) && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var list contract.GroupList
		get("/api/v1/groups?level=request_type", &list)
		counted = 0
		for _, g := range list.Items {
			counted += g.Count
		}
	}
	if counted < int64(sent) || sent == 0 {
		t.Errorf("got %d requests from %d traces", counted, sent)
	}
	var status contract.Status
	if code := get("/api/v1/status", &status); code != http.StatusOK || status.Version != "v1" ||
		status.Ingest.Spans == 0 || status.Ingest.RejectedSpans != 1 || status.Closed["complete"] != int64(sent) {
		t.Errorf("%d: %+v", code, status)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// An open event stream doesn't delay a shutdown.
func TestShutdownWithEventStream(t *testing.T) {
	v := newProcess(t, t.TempDir())
	v.start()
	v.ready()
	r, err := http.Get("http://" + v.api + "/api/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, err := r.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Wait(); err != nil { // a connection that isn't drained is an error
		t.Errorf("%v\n%s", err, v.logged())
	}
}

// If http is off, nothing listens for the API, but the receivers work.
func TestWithoutAPI(t *testing.T) {
	env := volatile(t.TempDir())
	env["SIBYL_HTTP"] = "off"
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	s := started(t, e, new(slog.LevelVar), io.Discard)
	at := s.Addresses()
	if at.API != nil || s.http != nil {
		t.Errorf("the API listens on %v", at.API)
	}
	r, err := http.Post("http://"+at.HTTP.String()+"/v1/traces", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Error(r.Status)
	}
}

// A client that opens many connections starves neither the databases of files nor senders of traces. Idle connections
// don't block requests to the API.
func TestTooManyConnections(t *testing.T) {
	v := newProcess(t, t.TempDir())
	sampling := freeAddress(t)
	v.http, v.more, v.files = freeAddress(t), []string{"--sampling-http", sampling}, 400
	v.start()
	v.ready()
	defer v.end(os.Kill)
	for _, address := range []string{v.api, sampling, v.http, v.grpc} {
		if address == v.grpc { // last, because it closes no idle connections
			e, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(v.grpc), otlptracegrpc.WithInsecure(),
				otlptracegrpc.WithTimeout(patience))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(exportTrace(t.Context(), e, 1), e.Shutdown(t.Context())); err != nil {
				t.Error(err)
			}
		}
		for range v.files {
			c, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
	}
	r, err := http.Get("http://" + v.api + "/readyz")
	if err != nil || r.Body.Close() != nil || r.StatusCode != http.StatusOK {
		t.Error(err)
	}
	if code, _, answer := v.post("{}"); code != http.StatusOK {
		t.Error(code, answer)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", v.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if most := v.files * 3 / 4; len(open) > most {
		t.Errorf("%d files are open, want at most %d", len(open), most)
	}
}

// If an address is in use, Listen returns an error and leaves no other address open.
func TestListenInUse(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	env := volatile(t.TempDir())
	env["SIBYL_OPAMP"] = taken.Addr().String() // the last one that Listen opens
	opened := []string{"SIBYL_HTTP", "SIBYL_OTLP_HTTP", "SIBYL_OTLP_GRPC", "SIBYL_SAMPLING_HTTP", "SIBYL_SAMPLING_GRPC"}
	for _, key := range opened {
		env[key] = freeAddress(t)
	}
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(&e.Config, Build{Version: "v1"}, slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Listen(t.Context()); err == nil {
		t.Error("no error although an address is in use")
	}
	for _, key := range opened {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", env[key])
		if err != nil {
			t.Errorf("%s is still open: %v", key, err)
			continue
		}
		l.Close()
	}
}
