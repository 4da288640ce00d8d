package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine"
)

// lines is a log in memory.
type lines struct {
	mu  sync.Mutex // guards all
	all bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// eventually waits until condition returns true. It fails the test with name after patience.
func eventually(t *testing.T, name string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", name)
		}
	}
}

// started runs a whole service in this process until the test ends. It logs to log.
func started(t *testing.T, e *config.Effective, level *slog.LevelVar, log io.Writer) *Server {
	t.Helper()
	handler := slog.NewTextHandler(log, &slog.HandlerOptions{Level: level})
	s, err := New(&e.Config, Build{Version: "v1"}, slog.New(handler), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := fmt.Sprint(<-served, s.Close()); err != "<nil> <nil>" {
			t.Error(err)
		}
	})
	<-s.main.live.Started()
	return s
}

// volatile returns the configuration that tests share, as environment variables.
func volatile(dir string) map[string]string {
	return map[string]string{
		"SIBYL_DATA_DIR": dir, "SIBYL_HTTP": "127.0.0.1:0",
		"SIBYL_OTLP_HTTP": "127.0.0.1:0", "SIBYL_OTLP_GRPC": "127.0.0.1:0",
		"SIBYL_EPOCH": "1s", "SIBYL_ASSEMBLY_TIMEOUT": "200ms",
	}
}

// A changed file is applied, except for keys that need a restart. An invalid file changes nothing. The file is mounted
// like in Kubernetes: through a symlink to a directory, which is replaced.
func TestReload(t *testing.T) {
	called := make(chan struct{}, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called <- struct{}{} }))
	defer hook.Close()
	jaeger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		called <- struct{}{}
		_, _ = w.Write([]byte(`{"services":[]}`))
	}))
	defer jaeger.Close()

	mount, version := t.TempDir(), 0
	put := func(text string) {
		t.Helper()
		version++
		dir := fmt.Sprint("version", version)
		for _, err := range []error{
			os.Mkdir(filepath.Join(mount, dir), 0o700),
			os.WriteFile(filepath.Join(mount, dir, "sibyl.yaml"), []byte(text), 0o600),
			os.Symlink(dir, filepath.Join(mount, "next")),
			os.Rename(filepath.Join(mount, "next"), filepath.Join(mount, "data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	put("min-samples: 50\n")
	env := volatile(t.TempDir())
	sources := config.Sources{
		File:   filepath.Join(mount, "data", "sibyl.yaml"),
		Getenv: func(key string) string { return env[key] },
	}
	load := func() (*config.Effective, error) { return config.Load(sources) }
	e, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var log lines
	level := &slog.LevelVar{}
	s := started(t, e, level, &log)
	asked := make(chan os.Signal, 1)
	var reloading sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	r := Reloader{Server: s, Load: load, Level: level, Every: 20 * time.Millisecond, Log: s.log}
	reloading.Go(func() { r.Run(ctx, e, asked) })
	defer reloading.Wait()
	defer stop()
	settings := func() (x engine.Settings) {
		err := s.main.live.Ask(t.Context(), func(core *engine.View) { o := core.Options; x = o.Settings() })
		if err != nil {
			t.Error(err)
		}
		return x
	}

	put(`
min-samples: 60
thresholds: {cov: 3}
budget: {tracepoints: 12}
strategy: hierarchical
objectives: [{entry: shop, latency: {percentile: 99, below: 1s}, errors: 1%}]
gates: {growth: 30%}
log.level: debug
retention: {age: 2d, exemplars: 1}
sampling: {default: 0.5}
learning: 3m
trace-url: [{name: Jaeger, url: "https://jaeger.example/trace/{trace_id}"}]
webhooks: [{name: hook, url: "` + hook.URL + `", allow-private: true}]
jaeger: {query: [{url: "` + jaeger.URL + `", interval: 1s, lookback: 1m}]}
`)
	reloads := func() int { return strings.Count(log.String(), "configuration reloaded") }
	eventually(t, "the file is applied", func() bool { return reloads() > 0 })
	if x := settings(); x.Watch.MinSamples != 60 || x.Watch.Chronic.CoV != 3 ||
		x.Budget.Tracepoints != 12 || x.Strategy != "hierarchical" {
		t.Errorf("settings: %+v", x)
	}
	if x := settings(); len(x.Objectives) != 2 || x.Gates.Growth != 0.3 || x.Gates.Score != 0.02 {
		t.Errorf("objectives and gates: %+v", x)
	}
	rates, kept := s.main.outbound.rates.Load(), s.main.applied.Load().Retention
	if level.Level() != slog.LevelDebug || rates.Default != 0.5 || kept.Age != 48*time.Hour {
		t.Errorf("level %v, rates %+v, retention %+v", level.Level(), *rates, kept)
	}
	if text := log.String(); !strings.Contains(text, "need a restart") || !strings.Contains(text, "keys=[learning]") {
		t.Errorf("the log does not say that shards need a restart:\n%s", text)
	}
	if _, there := s.main.outbound.notifier.Counts()["hook"]; !there {
		t.Error("the webhook is unknown")
	}
	<-called // by the fetcher for Jaeger

	put("min-samples: 60\nepoch: never\n")
	eventually(t, "the error is logged", func() bool { return strings.Contains(log.String(), "invalid configuration") })
	if text := log.String(); !strings.Contains(text, "sibyl.yaml:2") || settings().Budget.Tracepoints != 12 {
		t.Errorf("after an invalid file:\n%s", text)
	}

	before := reloads()
	put("min-samples: 70\n")
	eventually(t, "another file is applied", func() bool { return reloads() > before })
	x, fetchers := settings(), len(s.main.outbound.fetching.all())
	if x.Watch.MinSamples != 70 || x.Budget.Tracepoints != 1000 || level.Level() != slog.LevelInfo || fetchers != 0 {
		t.Errorf("removed keys do not have their defaults: %+v, level %v, %d servers", x, level.Level(), fetchers)
	}
	asked <- syscall.SIGHUP
	eventually(t, "the file is reloaded on SIGHUP", func() bool { return reloads() > before+1 })
	page, err := s.main.audit.List(t.Context(), audit.Query{Limit: 10})
	if err != nil || len(page.Entries) != 3 {
		t.Fatalf("audit log: %+v, %v", page, err)
	}
	for i, via := range []string{"signal", "file", "file"} {
		e := page.Entries[i]
		if e.Via != via || e.Status != http.StatusOK || strings.Contains(e.Detail, "min-samples") != (via == "file") {
			t.Errorf("audit log: %+v, want an entry by %s", e, via)
		}
	}
}

// A configuration that can't be used changes nothing, not even settings that are valid.
func TestApplyAllOrNothing(t *testing.T) {
	env := volatile(t.TempDir())
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	s := started(t, e, new(slog.LevelVar), io.Discard)
	next := e.Config
	next.Budget.Tracepoints = 7
	hook := config.Webhook{Name: "hook", URL: "https://hooks.example", Format: "sibyl"}
	next.Webhooks = []config.Webhook{hook, hook}
	if err := s.Apply(t.Context(), &next); err == nil || !strings.Contains(err.Error(), "used twice") {
		t.Fatalf("got %v, want an error for two webhooks of the same name", err)
	}
	err = s.main.live.Ask(t.Context(), func(core *engine.View) {
		if n := core.Options.Budget.Tracepoints; n != e.Config.Budget.Tracepoints {
			t.Errorf("the budget is %d tracepoints, want %d as before", n, e.Config.Budget.Tracepoints)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// Attempts to apply a configuration have one entry in the audit log for the first failure, and one for the success.
func TestRetriesAreAuditedOnce(t *testing.T) {
	env := volatile(t.TempDir())
	load := func() (*config.Effective, error) {
		return config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	}
	e, err := load()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(&e.Config, Build{}, slog.New(slog.DiscardHandler), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := Reloader{Server: s, Load: load, Level: new(slog.LevelVar), Log: s.log}
	env["SIBYL_MIN_SAMPLES"] = "60" // can't be applied before the service runs
	for again := range 3 {
		if _, retry := r.reload(t.Context(), e, false, again > 0); !retry {
			t.Error("the configuration was applied")
		}
	}
	delete(env, "SIBYL_MIN_SAMPLES")
	r.reload(t.Context(), e, false, true)
	page, err := s.main.audit.List(t.Context(), audit.Query{Limit: 10})
	if err != nil || len(page.Entries) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	if last, first := page.Entries[0], page.Entries[1]; last.Status != http.StatusOK ||
		first.Status != http.StatusInternalServerError || first.Detail != "changed=min-samples" {
		t.Errorf("%+v", page.Entries)
	}
}

// An override of a tracepoint survives a kill right after it, and the server still reloads its configuration.
func TestOverrideSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	file, log := filepath.Join(dir, "sibyl.yaml"), filepath.Join(dir, "log")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("assembly: {timeout: 200ms}\n")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	v := &process{
		t:       t,
		program: program(t),
		dir:     t.TempDir(),
		grpc:    freeAddress(t),
		http:    freeAddress(t),
		api:     freeAddress(t),
		log:     out,
		more:    []string{"--config", file, "--learning", "1s"},
	}
	v.start()
	v.ready()
	call := func(method, path, body string, into any) int {
		t.Helper()
		url := "http://" + v.api + "/api/v1" + path
		q, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if r.StatusCode == http.StatusOK {
			if err := json.NewDecoder(r.Body).Decode(into); err != nil {
				t.Fatal(err)
			}
		}
		return r.StatusCode
	}
	const request = `{"resourceSpans":[{
		"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]},
		"scopeSpans":[{"spans":[{
			"traceId":"%032x","spanId":"0000000000000001","name":"GET /cart","kind":2,
			"startTimeUnixNano":"%d","endTimeUnixNano":"%d"
		},{
			"traceId":"%032[1]x","spanId":"0000000000000002","parentSpanId":"0000000000000001","name":"price","kind":1,
			"startTimeUnixNano":"%[2]d","endTimeUnixNano":"%[3]d",
			"attributes":[{"key":"sibyl.tracepoint.id","value":{"stringValue":"cart.price"}}]
		}]}]
	}]}`
	var list contract.TracepointList
	eventually(t, "a tracepoint is known", func() bool {
		now := time.Now().UnixNano()
		body := fmt.Sprintf(request, now, now-1e6, now)
		r, err := http.Post("http://"+v.http+"/v1/traces", "application/json", strings.NewReader(body))
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatal(r, err)
		}
		r.Body.Close()
		time.Sleep(100 * time.Millisecond)
		call(http.MethodGet, "/tracepoints?state=off", "", &list)
		return len(list.Items) > 0
	})
	var x contract.Tracepoint
	path := "/tracepoints/" + list.Items[0].ID
	if code := call(http.MethodPut, path, `{"kind":"pin"}`, &x); code != http.StatusOK || x.Override == nil {
		t.Fatalf("%d: %+v", code, x)
	}
	v.end(os.Kill)
	v.start()
	v.ready()
	x = contract.Tracepoint{}
	code := call(http.MethodGet, path, "", &x)
	if code != http.StatusOK || x.Override == nil || x.Override.Kind != contract.OverrideKindPin {
		t.Errorf("after a kill: %d, %+v", code, x)
	}
	write("assembly: {timeout: 200ms}\nbudget: {tracepoints: 5}\n")
	if err := v.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	var budget contract.BudgetUse
	eventually(t, "the budget has changed", func() bool {
		call(http.MethodGet, "/budget", "", &budget)
		return budget.Total.Tracepoints == 5
	})
	v.end(os.Interrupt)
	if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "changed=[budget.tracepoints]") {
		t.Errorf("the log (%v):\n%s", err, text)
	}
}
