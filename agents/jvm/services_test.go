package jvm_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

var requests = flag.Int("requests", 200, "requests of TestServices")

// Versions of OpenTelemetry's Java agent, and of the API in it.
const (
	otelVersion    = "2.31.0"
	otelAPIVersion = "1.65.0"
)

// otelAgent returns the file of OpenTelemetry's Java agent.
func otelAgent(t testing.TB) string {
	t.Helper()
	return artifact(t, "io.opentelemetry.javaagent:opentelemetry-javaagent:"+otelVersion)
}

// artifact returns the file of the artifact with the coordinates group:name:version. Maven fetches it unless its local
// repository has it.
func artifact(t testing.TB, coordinates string) string {
	t.Helper()
	parts := strings.Split(coordinates, ":")
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	name := parts[1] + "-" + parts[2] + ".jar"
	jar := filepath.Join(home, ".m2/repository", strings.ReplaceAll(parts[0], ".", "/"), parts[1], parts[2], name)
	if _, err := os.Stat(jar); err == nil {
		return jar
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		t.Skipf("Maven is missing: it fetches %s", coordinates)
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "mvn", "--batch-mode", "--quiet",
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy",
		"-Dartifact="+coordinates, "-DoutputDirectory="+dir).CombinedOutput()
	if err != nil {
		t.Skipf("Maven cannot fetch %s: %v: %s", coordinates, err, out)
	}
	return filepath.Join(dir, name)
}

// The methods of chain.Service to enable, by service.
var chainMethods = map[string][]string{
	"front":  {"Front.handle()", "Front.ask()"},
	"middle": {"Middle.handle()", "Middle.left()", "Middle.right()", "Middle.ask()"},
	"back":   {"Back.handle()", "Back.read(int)", "Back.row(int)"},
}

// chainParents holds the labels of the possible parents of each span of a request.
var chainParents = map[string]string{
	"front server": "test", "Front.handle": "front server", "Front.ask": "Front.handle",
	"front client": "Front.ask", "middle server": "front client", "Middle.handle": "middle server",
	"Middle.left": "Middle.handle", "Middle.right": "Middle.handle", "Middle.ask": "Middle.left Middle.right",
	"middle client": "Middle.ask", "back server": "middle client", "Back.handle": "back server",
	"Back.read": "Back.handle", "Back.row": "Back.read",
}

// chainCounts holds the number of spans of a request by label, if it isn't 1.
var chainCounts = map[string]int{
	"Middle.ask": 2, "middle client": 2, "back server": 2, "Back.handle": 2, "Back.read": 2, "Back.row": 2,
}

const chainSpans = 20 // of a request

// label names a span in the tables above.
func (s *span) label() string {
	if s.tracepoint != "" {
		return s.name
	}
	return s.service + " " + strings.ToLower(s.kind.String())
}

// checkTrace returns an error unless the spans belong to one request and each has the right parent.
func checkTrace(spans []span, root [8]byte) error {
	byID := map[[8]byte]string{root: "test"}
	counts := make(map[string]int)
	for i := range spans {
		label := spans[i].label()
		byID[spans[i].id] = label
		counts[label]++
	}
	for i := range spans {
		label, parent := spans[i].label(), byID[spans[i].parent]
		if parent == "" || !strings.Contains(" "+chainParents[label]+" ", " "+parent+" ") &&
			chainParents[label] != parent {
			return fmt.Errorf("the parent of %s is %q, want %q", label, parent, chainParents[label])
		}
	}
	for label := range chainParents {
		if want := max(1, chainCounts[label]); counts[label] != want {
			return fmt.Errorf("%d spans %s, want %d", counts[label], label, want)
		}
	}
	return nil
}

// traceID returns the ID of the trace of a request of the test.
func traceID(n int) (id [16]byte) {
	copy(id[:], "sibyl-jv")
	binary.BigEndian.PutUint64(id[8:], uint64(n)+1)
	return id
}

// testSpan is the ID of the span of the test that makes a request.
var testSpan = [8]byte{1, 2, 3, 4, 5, 6, 7, 8}

// traces collects the spans of each request until it is complete, and checks it.
type traces struct {
	mu       sync.Mutex
	open     map[[16]byte][]span
	complete int
	failures []error
}

func (c *traces) add(s span) {
	if string(s.trace[:8]) != "sibyl-jv" {
		return // of a request before all tracepoints were enabled
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[s.trace] = append(c.open[s.trace], s)
	if spans := c.open[s.trace]; len(spans) == chainSpans {
		if err := checkTrace(spans, testSpan); err != nil {
			c.failures = append(c.failures, err)
		}
		c.complete++
		delete(c.open, s.trace)
	}
}

// startChain starts services of testdata/chain with OpenTelemetry's Java agent, the innermost first, and returns the
// URL of the last one.
func startChain(
	t testing.TB, otel, program, dir, target, arguments string, names ...string,
) (services []*exec.Cmd, url string) {
	t.Helper()
	for _, name := range names {
		env := []string{
			"OTEL_SERVICE_NAME=" + name, "OTEL_EXPORTER_OTLP_ENDPOINT=" + target,
			"OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
			"OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none", "OTEL_BSP_SCHEDULE_DELAY=100",
			"OTEL_BSP_MAX_QUEUE_SIZE=100000", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=2000",
			"SIBYL_AGENT=" + arguments, "OTEL_JAVAAGENT_EXTENSIONS=" + filepath.Join(dir, "sibyl-agent.jar"),
		}
		var s *exec.Cmd
		s, url = start(t, env, program, "-Xmx512m", "-javaagent:"+otel, "-cp", dir, "chain.Service", name, url)
		services = append(services, s)
	}
	return services, url
}

// await waits until done returns true, but at most for five minutes.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within five minutes", what)
		}
	}
}

// Methods that Sibyl enables have spans with the right parents in three services with OpenTelemetry's Java agent,
// across threads of pools and virtual threads. No request lacks a span, and no span lacks its parent.
func TestServices(t *testing.T) {
	otel := otelAgent(t)
	programs, dir := java(t, "testdata/chain/Service.java")
	program := programs[len(programs)-1] // the newest: it has virtual threads
	p := newPlane(t, 90*time.Second)
	c := &traces{open: make(map[[16]byte][]span)}
	target := newCollector(t, c.add)

	services, url := startChain(t, otel, program, dir, target, "endpoint:"+p.URL+"#rate:1000000#debug:info", "back",
		"middle", "front")
	var ids []string
	for name, methods := range chainMethods {
		for _, m := range methods {
			ids = append(ids, name+"/chain."+m)
		}
	}
	p.enable(ids...)
	await(t, "all tracepoints are applied", func() bool {
		get(t, url)
		return p.applied() == len(ids)
	})

	if err := sendAll(t, url, *requests); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)      // a server ends its span after the answer, and we can't observe when
	for _, s := range services { // they send their last spans on exit
		if err := s.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range services {
		_ = s.Wait()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, err := range c.failures {
		if i < 5 {
			t.Error(err)
		}
	}
	for id, spans := range c.open {
		t.Errorf("request %x has %d spans, want %d: %v", id, len(spans), chainSpans, checkTrace(spans, testSpan))
		break
	}
	if c.complete != *requests || len(c.failures) > 0 {
		t.Errorf("%d of %d requests are complete, %d of them wrong", c.complete, *requests, len(c.failures))
	}
}

// sendAll sends n requests with the trace IDs of the test, 16 at a time.
func sendAll(t *testing.T, url string, n int) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	failures := make([]error, 16)
	for i := range failures {
		wg.Go(func() {
			for {
				k := int(next.Add(1)) - 1
				if k >= n || failures[i] != nil {
					return
				}
				failures[i] = send(t, client, url, traceID(k))
			}
		})
	}
	wg.Wait()
	return errors.Join(failures...)
}

func send(t *testing.T, client *http.Client, url string, id [16]byte) error {
	q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	q.Header.Set("Traceparent", fmt.Sprintf("00-%x-%x-01", id, testSpan))
	r, err := client.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK || string(body) != "18" {
		return fmt.Errorf("the response is %s %q: %w", r.Status, body, err)
	}
	return nil
}

// If the granularity is traces, requests only have spans for entering services and for methods that Sibyl enables. The
// parent of each span is the nearest enabled span, also in the next service.
func TestGranularity(t *testing.T) {
	otel := otelAgent(t)
	programs, dir := java(t, "testdata/chain/Service.java")
	p := newPlane(t, 90*time.Second)
	var mu sync.Mutex
	byTrace := make(map[[16]byte][]span)
	target := newCollector(t, func(s span) {
		mu.Lock()
		byTrace[s.trace] = append(byTrace[s.trace], s)
		mu.Unlock()
	})
	_, url := startChain(t, otel, programs[len(programs)-1], dir, target, "endpoint:"+p.URL+"#granularity:trace",
		"back", "middle")

	sent := 0
	// request sends a request, waits for its spans, and compares the labels of the spans and their parents.
	request := func(want ...string) {
		t.Helper()
		id := traceID(sent)
		sent++
		if err := send(t, http.DefaultClient, url, id); err != nil {
			t.Fatal(err)
		}
		var spans []span
		await(t, fmt.Sprintf("%d spans", len(want)), func() bool {
			mu.Lock()
			defer mu.Unlock()
			spans = byTrace[id]
			return len(spans) >= len(want)
		})
		byID := map[[8]byte]string{testSpan: "test"}
		for i := range spans {
			byID[spans[i].id] = spans[i].label()
		}
		var got []string
		for i := range spans {
			got = append(got, spans[i].label()+" < "+byID[spans[i].parent])
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("the spans are %v, want %v", got, want)
		}
	}
	coarse := []string{"back server < middle server", "back server < middle server", "middle server < test"}
	request(coarse...)
	request(coarse...)
	p.enable("middle/io.opentelemetry.java-http-client/GET", "middle/chain.Middle.ask()")
	await(t, "both tracepoints are applied", func() bool { return p.applied() == 2 })
	request("GET < Middle.ask", "GET < Middle.ask", "Middle.ask < middle server", "Middle.ask < middle server",
		"back server < GET", "back server < GET", "middle server < test")
	p.enable("middle/chain.Middle.ask()")
	await(t, "one tracepoint is applied", func() bool { return p.applied() == 1 })
	request("Middle.ask < middle server", "Middle.ask < middle server", "back server < Middle.ask",
		"back server < Middle.ask", "middle server < test")
	p.enable()
	await(t, "the services have the plan without tracepoints", p.allCurrent)
	request(coarse...)
	mu.Lock()
	defer mu.Unlock()
	if n := len(byTrace[traceID(0)]); n != len(coarse) {
		t.Errorf("the first request has %d spans, want %d", n, len(coarse))
	}
}

// A trace is wrong if it has a wrong parent, lacks a span, or has an extra span.
func TestCheckTrace(t *testing.T) {
	var spans []span
	add := func(label string, parent [8]byte) [8]byte {
		s := span{id: [8]byte{byte(len(spans) + 1)}, parent: parent, name: label, tracepoint: label}
		if service, kind, found := strings.Cut(label, " "); found {
			s.service, s.tracepoint = service, ""
			s.kind = map[string]ptrace.SpanKind{"server": ptrace.SpanKindServer, "client": ptrace.SpanKindClient}[kind]
		}
		spans = append(spans, s)
		return s.id
	}
	ask := add("front client", add("Front.ask", add("Front.handle", add("front server", testSpan))))
	handle := add("Middle.handle", add("middle server", ask))
	for _, side := range []string{"Middle.left", "Middle.right"} {
		add("Back.row", add("Back.read",
			add("Back.handle", add("back server", add("middle client", add("Middle.ask", add(side, handle)))))))
	}
	if err := checkTrace(spans, testSpan); err != nil || len(spans) != chainSpans {
		t.Errorf("%d spans: %v", len(spans), err)
	}
	if checkTrace(spans[:chainSpans-1], testSpan) == nil {
		t.Error("a missing span was not found")
	}
	spans[2].parent = [8]byte{77}
	if checkTrace(spans, testSpan) == nil {
		t.Error("an orphan was not found")
	}
	spans[2].parent = spans[0].id
	if checkTrace(spans, testSpan) == nil {
		t.Error("a wrong parent was not found")
	}
}
