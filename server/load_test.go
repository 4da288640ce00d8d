package server

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"github.com/sibyl-trace/sibyl/config"
)

// Tests concurrent load, for the race detector: traces through both receivers, readers of the whole API, epochs,
// checkpoints, reloads, and a shutdown during all of this. After a restart, every acknowledged trace counts exactly
// once.
func TestEverythingAtOnce(t *testing.T) {
	length := 4 * time.Second
	if *soak {
		length = 5 * time.Minute
	}
	file := filepath.Join(t.TempDir(), "sibyl.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("learning: 1s\n")
	dir := t.TempDir()
	env := volatile(dir)
	load := func() (*config.Effective, error) {
		return config.Load(config.Sources{File: file, Getenv: func(key string) string { return env[key] }})
	}
	e, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var acked atomic.Uint64
	t.Run("load", func(t *testing.T) {
		level := &slog.LevelVar{}
		s := started(t, e, level, io.Discard)
		at := s.Addresses()
		ctx, stop := context.WithTimeout(t.Context(), length)
		var all sync.WaitGroup
		defer all.Wait()
		defer stop()

		asked := make(chan os.Signal, 1)
		r := Reloader{Server: s, Load: load, Level: level, Every: 20 * time.Millisecond, Log: s.log}
		all.Go(func() { r.Run(ctx, e, asked) })
		byGRPC, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(at.GRPC.String()),
			otlptracegrpc.WithInsecure(), otlptracegrpc.WithTimeout(patience))
		if err != nil {
			t.Fatal(err)
		}
		byHTTP, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpoint(at.HTTP.String()),
			otlptracehttp.WithInsecure(), otlptracehttp.WithTimeout(patience),
			otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
		if err != nil {
			t.Fatal(err)
		}
		var sent atomic.Uint64
		for _, exporter := range []*otlptrace.Exporter{byGRPC, byHTTP, byGRPC, byHTTP} {
			all.Go(func() {
				for ctx.Err() == nil {
					if err := exportTrace(t.Context(), exporter, sent.Add(1)); err != nil {
						t.Error(err)
						return
					}
					acked.Add(1)
				}
			})
		}
		for _, path := range []string{
			"/api/v1/problems?explain=true", "/api/v1/groups?limit=2", "/api/v1/tracepoints", "/api/v1/status",
			"/api/v1/trees", "/api/v1/decisions", "/api/v1/plan", "/api/v1/budget", "/api/v1/profile",
			"/api/v1/investigations", "/api/v1/webhooks/dead", "/api/v1/events", "/metrics", "/readyz",
		} {
			all.Go(func() { poll(ctx, t, "http://"+at.API.String()+path) })
		}
		for i := 0; ctx.Err() == nil; i++ {
			write("learning: 1s\n" + []string{"min-samples: 60\n", "budget: {tracepoints: 7}\nlog.level: debug\n"}[i%2])
			select {
			case asked <- syscall.SIGHUP:
			default:
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	if n := acked.Load(); n == 0 || t.Failed() {
		t.Fatalf("%d traces acknowledged", n)
	}
	again := started(t, e, &slog.LevelVar{}, io.Discard)
	eventually(t, "every trace is counted", func() bool { return again.requests(t) >= acked.Load() })
	if n := again.requests(t); n != acked.Load() {
		t.Errorf("got %d traces, want the %d acknowledged", n, acked.Load())
	}
}

// poll requests url until ctx is done. The only error allowed is 503, for too many concurrent requests.
func poll(ctx context.Context, t *testing.T, url string) {
	for ctx.Err() == nil {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		body, _ := io.ReadAll(answer.Body) // ends with ctx
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusServiceUnavailable &&
			ctx.Err() == nil {
			t.Errorf("%s: %d: %s", url, answer.StatusCode, body)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
