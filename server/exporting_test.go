package server

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// backend is a tracing backend that records spans.
type backend struct {
	url   string
	mu    sync.Mutex // guards spans and keys
	spans []ptrace.Span
	keys  []string // values of the header X-Key
}

func newBackend(t *testing.T) *backend {
	b := &backend{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		request := ptraceotlp.NewExportRequest()
		if err != nil || q.URL.Path != "/v1/traces" || request.UnmarshalProto(body) != nil {
			t.Errorf("%s: %d bytes, %v", q.URL, len(body), err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.keys = append(b.keys, q.Header.Get("X-Key"))
		for _, r := range request.Traces().ResourceSpans().All() {
			for _, s := range r.ScopeSpans().All() {
				for _, span := range s.Spans().All() {
					b.spans = append(b.spans, span)
				}
			}
		}
	}))
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// names returns the names of the received spans.
func (b *backend) names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, s := range b.spans {
		names = append(names, s.Name())
	}
	return names
}

// Only exemplars of open problems are exported, each once.
func TestExemplarsAreExported(t *testing.T) {
	to, dir := newBackend(t), t.TempDir()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(store.Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	table := &trace.Table{}
	for i, group := range []analysis.Hash{{Lo: 1}, {Lo: 2}} {
		x, err := tracetext.Parse("a shop \"GET /cart\" server 0..100\n  b shop db client 10..50\n", table)
		if err != nil {
			t.Fatal(err)
		}
		x.ID = trace.ID{15: byte(i + 1)}
		body, err := tracegen.Protobuf([]*trace.Trace{x}, table)
		if err != nil {
			t.Fatal(err)
		}
		sample := store.Exemplar{Trace: x.ID, Root: x.Spans[0].ID, Duration: 100}
		for _, err := range []error{
			kept.Traces.Put(x.ID, body),
			kept.Exemplars.Put(group, &store.Exemplars{Slow: []store.Exemplar{sample}}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &config.Config{
		Export: config.Endpoint{URL: to.url, Headers: []config.Header{{Name: "X-Key", ValueFile: key}}},
	}
	o, err := newOutbound(outboundTenant(t, c, kept, dir))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() { o.exporting.run(ctx) })
	for range 3 {
		o.exporting.epoch([]detect.Problem{{ID: analysis.Hash{Lo: 7}, Group: analysis.Hash{Lo: 1}}})
		eventually(t, "the exemplar is exported", func() bool {
			return len(to.names()) >= 2 && len(o.exporting.open) == 0
		})
	}
	stop()
	running.Wait()
	if names := to.names(); len(names) != 2 || names[0] != "critical path" || to.keys[0] != "secret" {
		t.Errorf("%q with keys %q", names, to.keys)
	}
	for _, s := range to.spans {
		problem, _ := s.Attributes().Get("sibyl.problem")
		if problem.Str() != (analysis.Hash{Lo: 7}).String() || s.TraceID() != [16]byte{15: 1} {
			t.Errorf("trace %s, problem %q", s.TraceID(), problem.Str())
		}
	}
	if n := o.exporting.exporter.Counts(); n.Sent != 1 || n.Failed+n.Dropped != 0 {
		t.Errorf("%+v", n)
	}
}

// A replaced key takes effect with the next request. Without a key nothing is sent.
func TestHeaderFilesAreReread(t *testing.T) {
	to, key := newBackend(t), filepath.Join(t.TempDir(), "key")
	transport, err := newHeaderTransport(&config.Endpoint{
		URL: to.url, Headers: []config.Header{{Name: "X-Key", ValueFile: key}},
	})
	if err == nil {
		t.Error("no error for a missing file")
	}
	client := &http.Client{Transport: transport}
	for _, value := range []string{"old", "new"} {
		if err := os.WriteFile(key, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := client.Post(to.url+"/v1/traces", "application/x-protobuf", strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if r, err := client.Post(to.url+"/v1/traces", "application/x-protobuf", strings.NewReader("")); err == nil {
		r.Body.Close()
		t.Error("a request was sent without the key")
	}
	if !slices.Equal(to.keys, []string{"old", "new"}) {
		t.Errorf("keys %q", to.keys)
	}
}

// API requests and epochs are traced; received traces aren't.
func TestSelfTracing(t *testing.T) {
	to := newBackend(t)
	env := volatile(t.TempDir())
	env["SIBYL_SELF_TRACING_OTLP"] = to.url
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	s := started(t, e, &slog.LevelVar{}, io.Discard)
	at := s.Addresses()
	r, err := http.Post("http://"+at.HTTP.String()+"/v1/traces", "application/json", strings.NewReader(`{}`))
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r, err)
	}
	r.Body.Close()
	if r, err = http.Get("http://" + at.API.String() + "/api/v1/status"); err != nil || r.StatusCode != http.StatusOK {
		t.Fatal(r, err)
	}
	r.Body.Close()
	eventually(t, "spans are received", func() bool {
		names := to.names()
		return slices.Contains(names, "epoch") && slices.Contains(names, "getStatus")
	})
	other := func(name string) bool { return name != "epoch" && name != "getStatus" }
	if i := slices.IndexFunc(to.names(), other); i >= 0 {
		t.Errorf("spans: %q", to.names())
	}
}

// Every metric in an alert rule is served.
func TestAlertMetrics(t *testing.T) {
	jaeger := httptest.NewServer(http.NotFoundHandler())
	defer jaeger.Close()
	env := volatile(t.TempDir())
	env["SIBYL_JAEGER_QUERY"] = `[{url: "` + jaeger.URL + `"}]`
	env["SIBYL_WEBHOOKS"] = `[{name: hook, url: "https://hook.invalid/"}]`
	env["SIBYL_EXPORT_OTLP"] = "http://tempo.invalid:4318"
	e, err := config.Load(config.Sources{Getenv: func(key string) string { return env[key] }})
	if err != nil {
		t.Fatal(err)
	}
	s := started(t, e, &slog.LevelVar{}, io.Discard)
	at := s.Addresses()
	served := make(map[string]bool)
	get := func(path string) string {
		t.Helper()
		r, err := http.Get("http://" + at.API.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatal(r.Status, err)
		}
		return string(body)
	}
	r, err := http.Post("http://"+at.HTTP.String()+"/v1/traces", "application/json", strings.NewReader(`{}`))
	if err != nil || r.Body.Close() != nil {
		t.Fatal(err)
	}
	get("/api/v1/problems")
	text := get("/metrics")
	for line := range strings.Lines(text) {
		if name := regexp.MustCompile(`^sibyl_\w+`).FindString(line); name != "" {
			served[name] = true
		}
	}
	file, err := os.Open("../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	found := 0
	for in := bufio.NewScanner(file); in.Scan(); {
		for _, name := range regexp.MustCompile(`\bsibyl_\w+`).FindAllString(in.Text(), -1) {
			if found++; !served[name] {
				t.Errorf("/metrics lacks %s", name)
			}
		}
	}
	if found < 10 {
		t.Errorf("found %d metrics in the alerts, want at least 10", found)
	}
	for _, want := range []string{
		`sibyl_queue_length{queue="arrivals"}`, `sibyl_queue_length{queue="shards"}`,
		`sibyl_queue_length{queue="outbox"}`, `sibyl_queue_length{queue="export"}`,
		`sibyl_queue_capacity{queue="in_flight_bytes"}`, `sibyl_outbox_dead_letters`,
		`sibyl_webhook_calls_total{result="delivered",webhook="hook"}`,
		`sibyl_webhook_messages_given_up_total{webhook="hook"}`, `sibyl_export_traces_total{result="dropped"}`,
		`sibyl_otlp_requests_total{outcome="accepted",transport="http"}`,
		`sibyl_jaeger_queries_total{server="` + jaeger.URL + `"}`,
	} {
		if !strings.Contains(text, want+" ") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}
