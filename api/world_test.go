package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/bench/fixtures/tracegen"
	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// world is a handler before a real core that a simulated application was played to, until there were problems and investigations.
type world struct {
	*API
	core    *engine.Core
	counts  live.Counts
	mu      sync.Mutex // guards core
	past    memory
	now     trace.Nanos
	clock   func() time.Time
	app     *sim.App
	outbox  *store.Outbox
	letters int                // that died
	mark    func(*trace.Trace) // changes each trace before the core gets it; nil: none
}

// Ask implements Engine.
func (w *world) Ask(_ context.Context, read func(*engine.Core)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	read(w.core)
	return nil
}

// Change implements Engine.
func (w *world) Change(_ context.Context, x engine.Change) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.core.Apply(&x), nil
}

// Ready implements Engine.
func (w *world) Ready() bool { return true }

// Counts implements Engine.
func (w *world) Counts() *live.Counts { return &w.counts }

// memory is a Past.
type memory struct {
	mu        sync.Mutex // guards decisions
	decisions []search.Decision
	group     analysis.Hash
	exemplar  *trace.Trace
	request   []byte
}

func (m *memory) Decisions(from, to trace.Nanos, limit int, newest bool) ([]search.Decision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []search.Decision
	for _, d := range m.decisions {
		if d.At >= from && d.At < to {
			found = append(found, d)
		}
	}
	if first := len(found) - limit; newest && first > 0 {
		for first > 0 && found[first-1].At == found[first].At {
			first--
		}
		found = found[first:]
	}
	return found, nil
}

func (m *memory) Exemplars(group analysis.Hash) (*store.Exemplars, error) {
	if group != m.group {
		return &store.Exemplars{}, nil
	}
	s := &m.exemplar.Spans[0]
	return &store.Exemplars{Slow: []store.Exemplar{{Trace: m.exemplar.ID, Start: s.Start, Duration: int64(s.Duration())}}}, nil
}

func (m *memory) Trace(id trace.ID) ([]byte, error) {
	if m.exemplar == nil || id != m.exemplar.ID {
		return nil, nil
	}
	return m.request, nil
}

// crowd is two agents.
type crowd struct{ counts control.Counts }

func (*crowd) Agents() []control.Agent {
	seen := time.Unix(0, int64(begin)).Add(10 * time.Minute)
	return []control.Agent{
		{
			ID: "b2", Service: "bank", Transport: "opamp", State: control.Lost, Since: seen.Add(-time.Hour), Seen: seen.Add(-5 * time.Minute), Incomplete: true,
			Tracepoints: 4000, Capabilities: []protocol.Capability{},
		},
		{
			ID: "c1", Service: "cart", Transport: "http", State: control.Behind, Resource: map[string]string{"host.name": "web-3", "service.version": "1.4"},
			Capabilities: []protocol.Capability{protocol.CanSpan, protocol.CanVariable}, Since: seen.Add(-time.Hour), Seen: seen, Tracepoints: 120, Version: 7,
			Problem: "no such arm", Applied: 3, Failed: 1, Conflicts: 2, Hits: 12345, Drops: 6, Usage: search.Usage{Hits: 10, Bytes: 2000, CPU: 1e-5},
		},
	}
}

func (*crowd) Summary() control.Summary {
	return control.Summary{Agents: 2, Lost: 1, Behind: 1, Catalogues: 2, Tracepoints: 4120, Polls: 1}
}

func (c *crowd) Counts() *control.Counts { return &c.counts }

// begin is when worlds begin: a whole number of epochs.
const begin = trace.Nanos(1_700_000_000_000_000_000)

// newWorld returns a world without any request.
func newWorld(t testing.TB) *world {
	t.Helper()
	dir := t.TempDir()
	app := sim.New(sim.Config{Tracepoints: 100, Seed: 3, Fault: sim.ThirdParty})
	options := engine.DefaultOptions()
	options.Learning, options.Seed = time.Minute, 3
	w := &world{core: engine.NewCore(app.Table(), options), now: begin, app: app}
	w.core.Announce(begin, app.Catalogue())
	w.clock = func() time.Time { return time.Unix(0, int64(w.now)) }
	notes, err := OpenNotes(dir)
	if err != nil {
		t.Fatal(err)
	}
	link, err := notify.NewLink("Jaeger", "http://jaeger.invalid/trace/{trace_id}")
	if err != nil {
		t.Fatal(err)
	}
	w.outbox = newOutbox(t)
	w.API, err = New(w, &w.past, access.Open(dir), notes, Options{
		Version: "test", Go: "go", Links: []notify.Link{link},
		Clock: func() time.Time { return w.clock() }, Log: slog.New(slog.DiscardHandler),
		Queues: func() []Size { return []Size{{"arrivals", 1, 2}} }, Bytes: func() []Size { return []Size{{"journal", 1, 2}} }, Agents: &crowd{},
		Webhooks: func() []notify.Webhook {
			return []notify.Webhook{{Name: "oncall", Format: "slack", Origin: "https://hooks.example", Events: []notify.Type{notify.Test}, Count: notify.Count{Delivered: 2, Failed: 1, Last: begin}, Waiting: 3, Dead: 1}}
		},
		Letters: w.outbox, Resend: func(number uint64) error { _, err := w.outbox.Resend(number, w.now); return err },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// newOutbox returns an empty outbox.
func newOutbox(t testing.TB) *store.Outbox {
	t.Helper()
	dir := t.TempDir()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	o, err := s.OpenOutbox(store.DefaultOutboxLimits())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// die lets a webhook fail for good, and returns the number of the dead letter.
func (w *world) die(t testing.TB) string {
	t.Helper()
	w.letters++
	_, err := w.outbox.Put(w.now, []store.Message{{
		ID: fmt.Sprint("event", w.letters), Endpoint: "oncall", Event: string(notify.ProblemOpened), Format: "sibyl", Problem: w.core.Problems()[0].ID, At: w.now, Body: []byte(`{"a":1}`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	due, _, err := w.outbox.Take("oncall", w.now, 1)
	if err != nil || len(due) != 1 {
		t.Fatal(due, err)
	}
	if err := w.outbox.MoveToDeadLetters(&due[0], "404 Not Found"); err != nil {
		t.Fatal(err)
	}
	return decimal(due[0].Number)
}

// play plays epochs until the core says enough, at most so many.
func (w *world) play(t testing.TB, most int, enough func() bool) {
	t.Helper()
	for range most {
		if enough() {
			return
		}
		w.epoch(t)
	}
	if !enough() {
		t.Fatalf("not enough happened in %d epochs", most)
	}
}

// epoch plays one epoch.
func (w *world) epoch(t testing.TB) {
	t.Helper()
	next := w.now.Add(10 * time.Second)
	for x := range w.app.Requests(w.now, next, w.plan()) {
		if w.mark != nil {
			w.mark(x)
		}
		w.mu.Lock()
		w.core.Ingest(x)
		w.mu.Unlock()
		if w.past.exemplar == nil {
			w.keep(t, x)
		}
	}
	w.end(next)
}

// end ends an epoch.
func (w *world) end(at trace.Nanos) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = at
	made := w.core.Epoch(at)
	w.past.mu.Lock()
	w.past.decisions = append(w.past.decisions, made...)
	w.past.mu.Unlock()
	w.Epoch(w.core, made)
}

// keep keeps a trace.
func (w *world) keep(t testing.TB, x *trace.Trace) {
	t.Helper()
	kept := &trace.Trace{ID: x.ID}
	kept.Append(x)
	request, err := tracegen.Protobuf([]*trace.Trace{kept}, w.app.Table())
	if err != nil {
		t.Fatal(err)
	}
	w.past.exemplar, w.past.request = kept, request
}

func (w *world) plan() *sim.Plan {
	p := w.core.Plan()
	plan := &sim.Plan{Version: p.Version}
	for i, a := range p.Arms {
		arm := sim.Arm{Name: a.Name, Share: a.Share, On: make(map[trace.Symbol]bool)}
		for _, l := range p.Leases {
			if int(l.Arm) == i {
				arm.On[l.Tracepoint] = true
			}
		}
		plan.Arms = append(plan.Arms, arm)
	}
	return plan
}

// run has spans of a version of a service arrive at a time.
func (w *world) run(service, version string, at trace.Nanos) {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := w.core.Table()
	seen := ingest.ServiceVersion{Service: names.Symbol(service), Version: names.Symbol(version)}
	w.core.ObserveVersions([]engine.VersionSeen{{ServiceVersion: seen, First: at, Last: at}})
}

// troubled returns a world with a problem that is investigated, with evidence, after two services were deployed.
func troubled(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	w.run("cart", "1.4", w.now)
	w.run("bank", "7", w.now)
	w.play(t, 8, w.core.Learned)
	w.run("bank", "8", w.now.Add(-5*time.Second))
	w.run("cart", "1.5", w.now)
	w.app.Inject(w.now)
	w.play(t, 40, func() bool {
		return slices.ContainsFunc(w.core.Problems(), func(p detect.Problem) bool {
			v := w.core.State().Investigation(p.ID)
			return v != nil && len(v.Evidence) > 0 && len(v.Requested) > 0
		})
	})
	w.past.group = w.core.Problems()[0].Group
	return w
}

// call calls the API from this machine, holds the answer against the contract, and returns it.
func (w *world) call(t testing.TB, method, path string, body any, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	var data io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.NewReader(text)
	}
	r := httptest.NewRequest(method, "http://localhost:8321"+path, data)
	r.RemoteAddr = "127.0.0.1:4711"
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	w.ServeHTTP(out, r)
	w.check(t, r, out)
	return out
}

// callUnchecked calls the API from this machine.
func (w *world) callUnchecked(method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:8321"+path, nil)
	r.RemoteAddr = "127.0.0.1:4711"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	w.ServeHTTP(out, r)
	return out
}

// check holds an answer against the contract.
func (w *world) check(t testing.TB, r *http.Request, out *httptest.ResponseRecorder) {
	t.Helper()
	path, under := strings.CutPrefix(r.URL.Path, prefix)
	if out.Code >= 400 {
		var e struct {
			Type, Title, Detail, Instance *string
			Status                        int
		}
		if err := json.Unmarshal(out.Body.Bytes(), &e); err != nil || e.Status != out.Code || e.Type == nil || e.Title == nil || e.Detail == nil || e.Instance == nil {
			t.Errorf("%s %s: %d without a problem: %s", r.Method, r.URL, out.Code, out.Body)
		}
		if got := out.Header().Get("Content-Type"); got != refusal.ProblemType {
			t.Errorf("%s %s: %d as %s", r.Method, r.URL, out.Code, got)
		}
	}
	if !under || out.Code == http.StatusNotModified || out.Header().Get("Content-Encoding") != "" {
		return
	}
	for pattern, item := range w.doc.Paths.Map() {
		params, ok := match(pattern, path)
		op := item.GetOperation(r.Method)
		if !ok || op == nil {
			continue
		}
		input := &openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{
				Request: r, PathParams: params, Route: &routers.Route{Spec: w.doc, Path: pattern, PathItem: item, Method: r.Method, Operation: op},
			},
			Status: out.Code, Header: out.Header(), Options: &openapi3filter.Options{IncludeResponseStatus: true},
		}
		input.SetBodyBytes(out.Body.Bytes())
		if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
			t.Errorf("%s %s: the answer breaks the contract: %v", r.Method, r.URL, err)
		}
	}
}

// match returns the parameters of a path, and whether it fits a pattern.
func match(pattern, path string) (map[string]string, bool) {
	a, b := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(a) != len(b) {
		return nil, false
	}
	params := make(map[string]string)
	for i := range a {
		switch {
		case strings.HasPrefix(a[i], "{"):
			params[strings.Trim(a[i], "{}")] = b[i]
		case a[i] != b[i]:
			return nil, false
		}
	}
	return params, true
}

// decode reads an answer.
func decode[T any](t testing.TB, out *httptest.ResponseRecorder) T {
	t.Helper()
	var x T
	if out.Code != http.StatusOK {
		t.Fatalf("%d: %s", out.Code, out.Body)
	}
	if err := json.Unmarshal(out.Body.Bytes(), &x); err != nil {
		t.Fatal(err)
	}
	return x
}
