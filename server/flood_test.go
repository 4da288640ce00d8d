package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/api/access"
)

// flood fills requests with things that are never seen again. Each kind makes Sibyl remember something for each.
type flood struct {
	name string
	fill func(*filler, ptrace.Traces) // nil: agents register
}

// filler creates the spans of one sender.
type filler struct {
	rng   *rand.Rand
	first uint64 // distinguishes senders and runs
	n     uint64
}

// perRequest is the number of spans of a request.
const perRequest = 2000

func (f *filler) unique(prefix string) string {
	f.n++
	return prefix + "-" + strconv.FormatUint(f.first+f.n, 36) + "-" + strings.Repeat("x", 100)
}

// service adds spans of a service to a request.
func (f *filler) service(request ptrace.Traces, name string) ptrace.SpanSlice {
	resource := request.ResourceSpans().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", name)
	return resource.ScopeSpans().AppendEmpty().Spans()
}

// span adds a span that takes a millisecond. It is the root of a trace if parent is zero.
func (f *filler) span(spans ptrace.SpanSlice, trace pcommon.TraceID, parent pcommon.SpanID, name string) ptrace.Span {
	s := spans.AppendEmpty()
	s.SetTraceID(trace)
	s.SetSpanID(f.spanID())
	s.SetParentSpanID(parent)
	s.SetName(name)
	s.SetKind(ptrace.SpanKindServer)
	now := time.Now()
	s.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Millisecond)))
	s.SetEndTimestamp(pcommon.NewTimestampFromTime(now))
	return s
}

func (f *filler) traceID() (id pcommon.TraceID) {
	binary.BigEndian.PutUint64(id[:], f.rng.Uint64())
	binary.BigEndian.PutUint64(id[8:], f.rng.Uint64())
	return id
}

func (f *filler) spanID() (id pcommon.SpanID) {
	binary.BigEndian.PutUint64(id[:], f.rng.Uint64())
	return id
}

var floods = []flood{
	{"names", func(f *filler, r ptrace.Traces) {
		spans := f.service(r, "flood")
		for range perRequest {
			f.span(spans, f.traceID(), pcommon.SpanID{}, f.unique("op"))
		}
	}},
	{"services", func(f *filler, r ptrace.Traces) {
		for range perRequest / 4 {
			f.span(f.service(r, f.unique("service")), f.traceID(), pcommon.SpanID{}, "GET /")
		}
	}},
	// Few names, but each request takes another way through them.
	{"structures", func(f *filler, r ptrace.Traces) {
		spans := f.service(r, "flood")
		for range perRequest / 20 {
			id := f.traceID()
			parents := []pcommon.SpanID{f.span(spans, id, pcommon.SpanID{}, "GET /").SpanID()}
			for range 19 {
				s := f.span(spans, id, parents[f.rng.IntN(len(parents))], "step "+strconv.Itoa(f.rng.IntN(50)))
				parents = append(parents, s.SpanID())
			}
		}
	}},
	{"attributes", func(f *filler, r ptrace.Traces) {
		spans := f.service(r, "flood")
		for range perRequest / 10 {
			s := f.span(spans, f.traceID(), pcommon.SpanID{}, "GET /")
			for i := range 10 {
				s.Attributes().PutStr(f.unique("key"), f.unique("value"))
				s.Attributes().PutStr("key-"+strconv.Itoa(i), f.unique("value"))
			}
			s.Attributes().PutStr("http.route", f.unique("/route"))
			s.Attributes().PutStr("server.address", f.unique("host"))
		}
	}},
	// Their roots never arrive.
	{"open traces", func(f *filler, r ptrace.Traces) {
		spans := f.service(r, "flood")
		for range perRequest {
			f.span(spans, f.traceID(), f.spanID(), "step")
		}
	}},
	{"big requests", func(f *filler, r ptrace.Traces) {
		spans := f.service(r, "flood")
		text := strings.Repeat("x", 500<<f.rng.IntN(5)) // 1 to 16 MB, since the limit depends on the memory
		for range perRequest {
			f.span(spans, f.traceID(), pcommon.SpanID{}, "GET /").Attributes().PutStr("text", text)
		}
	}},
	{"agents", nil},
}

// registration returns an agent of a service of its own, with as many tracepoints as a page of a catalogue has.
func (f *filler) registration() protocol.Registration {
	service := f.unique("service")
	tracepoints := make([]protocol.Tracepoint, protocol.PageSize)
	for i := range tracepoints {
		name := f.unique("method")
		tracepoints[i] = protocol.Tracepoint{
			ID:        service + "/" + name,
			Layer:     protocol.App,
			Kind:      protocol.SpanPoint,
			Service:   service,
			Operation: name,
		}
	}
	protocol.SortCatalogue(tracepoints)
	return protocol.Registration{
		Protocol:     protocol.Version,
		Session:      "1",
		Resource:     map[string]string{"service.name": service},
		Capabilities: []protocol.Capability{protocol.CanSpan},
		Catalogue:    protocol.Catalogue{Hash: protocol.HashCatalogue(tracepoints), Size: len(tracepoints)},
		Page:         &protocol.Page{Tracepoints: tracepoints},
	}
}

// ask sends the next request of the flood.
func (x *flood) ask(ctx context.Context, f *filler, to *process, token string) (*http.Response, error) {
	if x.fill == nil {
		body, _ := json.Marshal(f.registration())
		url := "http://" + to.api + protocol.Path + strconv.FormatUint(f.rng.Uint64(), 36) + "?session=1"
		return ask(ctx, http.MethodPut, url, token, "application/json", body)
	}
	request := ptrace.NewTraces()
	x.fill(f, request)
	body, _ := ptraceotlp.NewExportRequestFromTraces(request).MarshalProto()
	return ask(ctx, http.MethodPost, "http://"+to.http+"/v1/traces", token, "application/x-protobuf", body)
}

// send floods the server with a token, or "" for none, until ctx ends. It returns the numbers of requests that were
// accepted and refused.
func (x *flood) send(ctx context.Context, to *process, token string, senders int) (accepted, refused uint64) {
	var a, r atomic.Uint64
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			f := &filler{rng: rand.New(rand.NewPCG(rand.Uint64(), 1)), first: rand.Uint64()}
			for ctx.Err() == nil {
				answer, err := x.ask(ctx, f, to, token)
				if err != nil {
					time.Sleep(50 * time.Millisecond)
					continue
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
				if answer.StatusCode < 300 {
					a.Add(1)
				} else {
					r.Add(1)
					time.Sleep(50 * time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	return a.Load(), r.Load()
}

// These environment variables make TestFloodFromElsewhere a sender.
const (
	floodAddress = "SIBYL_TEST_FLOOD_ADDRESS"
	floodAPI     = "SIBYL_TEST_FLOOD_API"
	floodToken   = "SIBYL_TEST_FLOOD_TOKEN"
	floodLength  = "SIBYL_TEST_FLOOD_LENGTH"
)

// TestFloodFromElsewhere is the process of floodFromElsewhere.
func TestFloodFromElsewhere(t *testing.T) {
	to := &process{http: os.Getenv(floodAddress), api: os.Getenv(floodAPI)}
	if to.http == "" {
		t.Skip("another test runs it in a process of its own")
	}
	length, err := time.ParseDuration(os.Getenv(floodLength))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var all sync.WaitGroup
	for i := range floods {
		all.Go(func() {
			accepted, refused := floods[i].send(ctx, to, os.Getenv(floodToken), 2)
			t.Logf("%s: %d requests accepted, %d refused", floods[i].name, accepted, refused)
		})
	}
	all.Wait()
}

// floodFromElsewhere sends all floods from a process of the lowest priority. It takes the processors only while the
// server doesn't need them, as if it ran on another machine.
func (v *process) floodFromElsewhere(token string, length time.Duration) {
	v.t.Helper()
	self, err := os.Executable()
	if err != nil {
		v.t.Fatal(err)
	}
	sender := exec.CommandContext(v.t.Context(), "nice", "-n", "19",
		self, "-test.run", "^TestFloodFromElsewhere$", "-test.v")
	sender.Env = append(os.Environ(),
		floodAddress+"="+v.http, floodAPI+"="+v.api, floodToken+"="+token, floodLength+"="+length.String())
	out, err := sender.CombinedOutput()
	if err != nil {
		v.t.Errorf("the flood: %v", err)
	}
	v.t.Logf("%s", out)
}

func ask(ctx context.Context, method, url, token, contentType string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return http.DefaultClient.Do(r)
}

// limitedMemory creates a cgroup with the given limit in bytes, and returns the file that processes enter it by.
func limitedMemory(t *testing.T, limit int64) (procs string) {
	t.Helper()
	root, file := "/sys/fs/cgroup", "memory.max"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		root, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes" // version 1
	}
	dir, err := os.MkdirTemp(root, "sibyl-test-*") //nolint:usetesting // a cgroup is not a folder for files
	if err == nil {
		t.Cleanup(func() { _ = os.Remove(dir) })
		err = os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(limit, 10)), 0)
	}
	if err != nil {
		t.Skipf("needs a writable memory cgroup: %v", err)
	}
	return filepath.Join(dir, "cgroup.procs")
}

// TestFloods: a process with little memory survives senders of things that are never seen again, in a container whose
// limit is a quarter above memory. It starts again after it was killed in the middle.
func TestFloods(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 40 s")
	}
	kinds := [][]flood{floods}
	sizes, senders, length := []int64{512}, 1, 10*time.Second
	if *soak {
		for _, x := range floods {
			kinds = append(kinds, []flood{x})
		}
		sizes, senders, length = []int64{64, 128, 256, 1024}, 2, 30*time.Second
	}
	for _, size := range sizes {
		for _, kind := range kinds {
			name := kind[0].name
			if len(kind) > 1 {
				name = "all"
			}
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				v := newProcess(t, t.TempDir())
				v.http, v.more = freeAddress(t), []string{"--memory", fmt.Sprint(size, "MiB")}
				v.cgroup = limitedMemory(t, size<<20/4*5)
				for range 3 {
					v.start()
					v.ready()
					v.flood(kind, "", senders, length)
					v.end(os.Kill)
				}
				v.start()
				t.Logf("ready after %s", v.ready().Round(time.Millisecond))
				v.end(os.Kill)
			})
		}
	}
}

// TestFloodsOfNewTenants: tenants that were created while the process runs don't end it, although the default tenant
// keeps its share of the memory until the next start. If the default tenant has filled the memory, the service refuses
// them, and they have to be created while it is stopped. All tenants flood, except for the last one, which has all
// spans that were acknowledged. The next start needs no more memory.
func TestFloodsOfNewTenants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 20 s")
	}
	names, size, length := []string{"a", "quiet"}, int64(256), 5*time.Second
	if *soak { // as many as there is room for
		names, size, length = []string{"a", "b", "c", "d", "e", "quiet"}, 512, time.Minute
	}
	v := newProcess(t, t.TempDir())
	v.http, v.more = freeAddress(t), []string{"--memory", fmt.Sprint(size, "MiB")}
	v.cgroup = limitedMemory(t, size<<20/4*5)
	tokens := []string{v.token(access.Token{Role: access.Admin})}
	v.start()
	t.Cleanup(func() { v.end(os.Kill) })
	v.ready()
	v.flood(floods, tokens[0], 1, length) // the default tenant takes what it may
	stopped := false
	for _, name := range names {
		if !stopped && !v.createTenant(name, tokens[0]) {
			t.Logf("the tenant %s is refused: restart", name)
			v.end(os.Interrupt)
			stopped = true
		}
		if stopped {
			if err := CreateTenant(v.dir, Tenant{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		tokens = append(tokens, v.token(access.Token{Role: access.Operator, Tenant: name}))
	}
	if stopped {
		v.start()
		v.ready()
	}
	quiet := tokens[len(names)]
	var all, beside sync.WaitGroup
	for _, token := range tokens[:len(names)] {
		all.Go(func() { v.floodFromElsewhere(token, length) })
	}
	over := make(chan struct{})
	accepted := 0
	beside.Go(func() { accepted = v.trickle(quiet, over) })
	all.Wait()
	close(over)
	beside.Wait()
	if v.zombie() {
		t.Fatalf("the process was killed; the end of its log:\n%s", v.logged())
	}
	if n := v.spans("quiet", quiet); n != accepted || n == 0 {
		t.Errorf("the quiet tenant has %d spans, want %d", n, accepted)
	}
	t.Logf("peak memory %d MiB", peakMemory(t, v.cmd.Process.Pid)>>20)
	v.end(os.Kill)
	v.start()
	t.Logf("ready after %s", v.ready().Round(time.Millisecond))
}

// token creates a token and returns its secret.
func (v *process) token(x access.Token) string {
	v.t.Helper()
	secret, _, err := access.Open(v.dir).Create(x, time.Now())
	if err != nil {
		v.t.Fatal(err)
	}
	return secret
}

// createTenant creates a tenant in the running service. It returns false if the service has no memory for it.
func (v *process) createTenant(name, admin string) bool {
	v.t.Helper()
	answer, err := ask(v.t.Context(), http.MethodPost, "http://"+v.api+"/api/v1/tenants", admin, "application/json",
		[]byte(`{"name":"`+name+`"}`))
	if err != nil {
		v.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusConflict && strings.Contains(string(text), "--data-dir") {
		return false
	}
	if answer.StatusCode != http.StatusNoContent {
		v.t.Fatalf("create a tenant: %s %s", answer.Status, text)
	}
	return true
}

// trickle sends a span every 20 ms until it is told to end, and returns the number of those that were accepted.
func (v *process) trickle(token string, end <-chan struct{}) (accepted int) {
	refused, why := 0, []byte(nil)
	for {
		answer, err := ask(v.t.Context(), http.MethodPost, "http://"+v.http+"/v1/traces", token,
			"application/x-protobuf", oneSpan(v.t))
		if err != nil {
			v.t.Error(err)
			return accepted
		}
		if answer.StatusCode == http.StatusOK {
			accepted++
		} else {
			refused++
			why, _ = io.ReadAll(answer.Body)
		}
		answer.Body.Close()
		select {
		case <-end:
			v.t.Logf("quiet: %d requests accepted, %d refused: %s", accepted, refused, why)
			return accepted
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// flood sends floods with a token from the given number of senders each, and fails the test if the process ends.
func (v *process) flood(floods []flood, token string, senders int, length time.Duration) {
	v.t.Helper()
	ctx, stop := context.WithTimeout(v.t.Context(), length)
	defer stop()
	var all sync.WaitGroup
	for i := range floods {
		all.Go(func() {
			accepted, refused := floods[i].send(ctx, v, token, senders)
			v.t.Logf("%s: %d requests accepted, %d refused", floods[i].name, accepted, refused)
		})
	}
	all.Wait()
	if v.cmd.Process.Signal(syscall.Signal(0)) != nil || v.zombie() {
		v.t.Fatalf("the process was killed; the end of its log:\n%s", v.logged())
	}
	v.t.Logf("peak memory %d MiB", peakMemory(v.t, v.cmd.Process.Pid)>>20)
}

// zombie reports whether the process has ended.
func (v *process) zombie() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", v.cmd.Process.Pid))
	_, state, _ := strings.Cut(string(text), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}
