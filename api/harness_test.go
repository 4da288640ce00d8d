package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
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
	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/api/cases"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/api/objectives"
	"github.com/sibyl-trace/sibyl/api/operating"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/pebbledb"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/simplan"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/notify"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// harness is an API for a real core that receives the traces of a simulated application.
type harness struct {
	*API
	dir         string // data directory
	core        *engine.Core
	counts      live.Counts
	lag         live.Lag
	mu          sync.Mutex // guards core
	store       *store.Store
	group       analysis.Hash // the group with the exemplar
	exemplar    *trace.Trace
	decided     trace.Nanos // end of the first epoch with decisions; 0 before
	now         trace.Nanos
	clock       func() time.Time
	app         *sim.App
	fault       sim.Fault
	change      []func(*engine.Options)
	injected    trace.Nanos // start of the fault; 0: no fault
	outbox      *store.Outbox
	deadLetters int                // number added so far
	replies     []string           // to Slack, each with its URL
	alter       func(*trace.Trace) // changes each trace, or empties it, before the core gets it; may be nil
	tracepoint  trace.Symbol       // a tracepoint that the plan enables
	configured  engine.Options
}

// Ask implements epoch.Engine.
func (w *harness) Ask(_ context.Context, read func(*engine.View)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	read(w.core.View())
	return nil
}

// Change implements epoch.Engine.
func (w *harness) Change(_ context.Context, x engine.Change) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.core.Apply(&x), nil
}

// Ready implements operating.Service.
func (w *harness) Ready() bool { return true }

// Leader implements operating.Service.
func (w *harness) Leader() string { return "" }

// Standby implements operating.Service.
func (w *harness) Standby() *refusal.Error { return nil }

func (w *harness) Space() live.Space { return live.SpaceEnough }

// Lag implements operating.Service.
func (w *harness) Lag() live.Lag { return w.lag }

// WholeTrace implements Running. No traces are kept whole.
func (w *harness) WholeTrace(trace.ID) ([]byte, error) { return nil, nil }

// Counts implements epoch.Engine.
func (w *harness) Counts() *live.Counts { return &w.counts }

// fakeAgents lists two agents.
type fakeAgents struct{ counts control.Counts }

func (*fakeAgents) Agents() []control.Agent {
	seen := time.Unix(0, int64(begin)).Add(10 * time.Minute)
	return []control.Agent{
		{
			ID:           "b2",
			Service:      "bank",
			Transport:    "opamp",
			State:        control.Lost,
			Since:        seen.Add(-time.Hour),
			Seen:         seen.Add(-5 * time.Minute),
			Incomplete:   true,
			Tracepoints:  4000,
			Capabilities: []protocol.Capability{},
		},
		{
			ID:           "c1",
			Service:      "cart",
			Transport:    "http",
			State:        control.Behind,
			Resource:     map[string]string{"host.name": "web-3", "service.version": "1.4"},
			Capabilities: []protocol.Capability{protocol.CanSpan, protocol.CanVariable},
			Since:        seen.Add(-time.Hour),
			Seen:         seen,
			Tracepoints:  120,
			Version:      7,
			Problem:      "no such arm",
			Applied:      3,
			Failed:       1,
			Conflicts:    2,
			Hits:         12345,
			Drops:        6,
			Usage:        search.Usage{Hits: 10, Bytes: 2000, CPU: 1e-5},
		},
	}
}

func (*fakeAgents) Summary() control.Summary {
	return control.Summary{Agents: 2, Lost: 1, Behind: 1, Catalogues: 2, Tracepoints: 4120, Polls: 1}
}

func (c *fakeAgents) Counts() *control.Counts { return &c.counts }

// begin is the start of the simulated time, a multiple of the epoch length.
const begin = trace.Nanos(1_700_000_000_000_000_000)

// newHarness returns a harness without any requests.
func newHarness(t testing.TB) *harness {
	t.Helper()
	return newHarnessOf(t, sim.ThirdParty)
}

// newHarnessOf returns a harness, without any requests, for an application with a fault that can be injected. The
// optional change changes the options of the core.
func newHarnessOf(t testing.TB, fault sim.Fault, change ...func(*engine.Options)) *harness {
	t.Helper()
	return newHarnessIn(t, newStore(t), fault, change...)
}

// newHarnessIn is like newHarnessOf for the store s.
func newHarnessIn(t testing.TB, s *store.Store, fault sim.Fault, change ...func(*engine.Options)) *harness {
	t.Helper()
	dir := t.TempDir()
	app := sim.New(sim.Config{Tracepoints: 100, Seed: 3, Fault: fault})
	options := engine.DefaultOptions()
	options.Learning, options.Seed = time.Minute, 3
	for _, f := range change {
		f(&options)
	}
	w := &harness{
		dir:    dir,
		core:   engine.NewCore(app.Table(), options),
		store:  s,
		now:    begin,
		app:    app,
		fault:  fault,
		change: change,
		outbox: newOutbox(t),
	}
	w.configured = options
	w.core.Announce(begin, app.Catalogue())
	w.clock = func() time.Time { return time.Unix(0, int64(w.now)) }
	notes, err := cases.OpenNotes(dir)
	if err != nil {
		t.Fatal(err)
	}
	comments, err := cases.OpenComments(dir)
	if err != nil {
		t.Fatal(err)
	}
	silences, err := cases.OpenSilences(dir)
	if err != nil {
		t.Fatal(err)
	}
	edits, err := objectives.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	views, err := operating.OpenViews(dir)
	if err != nil {
		t.Fatal(err)
	}
	link, err := directory.NewLink("Jaeger", "http://jaeger.invalid/trace/{trace_id}")
	if err != nil {
		t.Fatal(err)
	}
	const pattern = "http://logs.invalid/?service={service}&from={start_ms}&to={end_ms}&incident={incident}"
	logs, err := directory.NewServiceLink("Logs", pattern)
	if err != nil {
		t.Fatal(err)
	}
	directory := directory.Directory{
		Traces: []directory.Link{link}, Services: []directory.Link{logs},
		Owners: []directory.Owner{{Name: "Money", Contact: "#money", Services: []string{"bank", "pay*", "checkout"}}},
	}
	w.API, err = New(w, s, access.Open(dir), Options{
		Notes:     notes,
		Failing:   ingest.AllFailureRules,
		Version:   "test",
		Go:        "go",
		Directory: directory,
		Comments:  comments,
		Silences:  silences,
		Edits:     edits,
		Settings:  func() engine.Settings { return w.configured.Settings() },
		Settle:    w.settle,
		Views:     views,
		Audit:     audit.Open(dir, func() time.Time { return w.clock() }, slog.New(slog.DiscardHandler)),
		Clock:     func() time.Time { return w.clock() },
		Log:       slog.New(slog.DiscardHandler),
		Queues:    func() []operating.Size { return []operating.Size{{Name: "arrivals", Length: 1, Most: 2}} },
		Bytes:     func() []operating.Size { return []operating.Size{{Name: "journal", Length: 1, Most: 2}} },
		Agents:    &fakeAgents{},
		Tenants:   fakeTenants{},
		Webhooks: func() []notify.Webhook {
			return []notify.Webhook{{
				Name:    "oncall",
				Format:  "slack",
				Origin:  "https://hooks.example",
				Events:  []notify.Type{notify.Test},
				Count:   notify.Count{Delivered: 2, Failed: 1, Last: begin},
				Waiting: 3,
				Dead:    1,
			}}
		},
		Backup:      func() (string, error) { return "/data/backup", nil },
		DeadLetters: w.outbox,
		Reply: func(_ context.Context, url, text string) error {
			w.replies = append(w.replies, url+" "+text)
			return nil
		},
		Resend: func(number uint64) error { _, err := w.outbox.Resend(number, w.now); return err },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// settle makes the core use the objectives and gates that the API has set.
func (w *harness) settle(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.configured
	w.options.Edits.Complete(&o)
	settings := o.Settings()
	w.core.Apply(&engine.Change{Settings: &settings})
	return nil
}

// newStore returns an empty store.
func newStore(t testing.TB) *store.Store {
	t.Helper()
	return openStore(t, t.TempDir())
}

// openStore opens the store in a directory.
func openStore(t testing.TB, dir string) *store.Store {
	t.Helper()
	disk, err := pebbledb.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Options{Dir: dir, Disk: disk, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fakeTenants are the tenants of a process that can have any others.
type fakeTenants struct{}

func (fakeTenants) Tenants() []contract.Tenant { return []contract.Tenant{{Name: "default"}} }

func (fakeTenants) CreateTenant(context.Context, contract.TenantRequest) error { return nil }

func (fakeTenants) DeleteTenant(context.Context, string) error { return nil }

// newOutbox returns an empty outbox.
func newOutbox(t testing.TB) *store.Outbox {
	t.Helper()
	o, err := newStore(t).OpenOutbox(store.DefaultOutboxLimits())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// addDeadLetter adds a dead letter and returns its number.
func (w *harness) addDeadLetter(t testing.TB) string {
	t.Helper()
	w.deadLetters++
	_, err := w.outbox.Put(w.now, []store.Message{{
		ID:       fmt.Sprint("event", w.deadLetters),
		Endpoint: "oncall",
		Event:    string(notify.ProblemOpened),
		Format:   "sibyl",
		Subject:  search.OfProblem(w.problems()[0].ID),
		At:       w.now,
		Body:     []byte(`{"a":1}`),
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
	return strconv.FormatUint(due[0].Number, 10)
}

// inject activates the fault from the time `at` on.
func (w *harness) inject(at trace.Nanos) {
	w.injected = at
	w.app.Inject(at)
}

// play plays epochs until enough returns true. It fails the test if that takes more than `most` epochs.
func (w *harness) play(t testing.TB, most int, enough func() bool) {
	t.Helper()
	for range most {
		if enough() {
			return
		}
		w.epoch(t)
	}
	if !enough() {
		t.Fatalf("the condition does not hold after %d epochs", most)
	}
}

// epoch plays one epoch.
func (w *harness) epoch(t testing.TB) {
	t.Helper()
	next := w.now.Add(10 * time.Second)
	for x := range w.app.Requests(w.now, next, simplan.Of(w.core.View().Searches.Plan())) {
		if w.alter != nil {
			w.alter(x)
		}
		if len(x.Spans) == 0 {
			continue
		}
		w.mu.Lock()
		w.core.Ingest(x)
		w.mu.Unlock()
		if w.exemplar == nil {
			w.keepExemplar(t, x)
		}
	}
	w.end(next)
}

// end ends an epoch.
func (w *harness) end(at trace.Nanos) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = at
	if from, all, ended := w.core.View().EndedPeriod(at); ended {
		if err := w.store.Past.Put(store.NewPeriod(from, all)); err != nil {
			panic(err)
		}
	}
	before := w.core.View().Problems.Open()
	made := w.core.Epoch(at)
	if len(made) > 0 {
		if err := w.store.Decisions.Put(at, made); err != nil {
			panic(err)
		}
		w.decided = cmp.Or(w.decided, at)
	}
	w.Epoch(w.core.View(), before, made)
}

// publish publishes an epoch without decisions and returns its events.
func (w *harness) publish(t testing.TB) []contract.Event {
	t.Helper()
	seen := len(w.published(t))
	w.handlers.PublishEpoch(w.core.View(), nil)
	return w.published(t)[seen:]
}

// published returns all events but the first.
func (w *harness) published(t testing.TB) (all []contract.Event) {
	t.Helper()
	gone, leave := context.WithCancel(t.Context()) // a reader that has left gets the events available now
	leave()
	r := httptest.NewRequestWithContext(gone, http.MethodGet, "http://localhost"+prefix+"/events", nil)
	r.RemoteAddr = "127.0.0.1:4711"
	r.Header.Set("Last-Event-ID", strconv.FormatInt(int64(begin), 36)+"-0") // the ID of a run is its start time
	out := httptest.NewRecorder()
	w.ServeHTTP(out, r)
	for line := range strings.Lines(out.Body.String()) {
		if data, some := strings.CutPrefix(line, "data: "); some {
			var x contract.Event
			if err := json.Unmarshal([]byte(data), &x); err != nil {
				t.Fatal(err)
			}
			all = append(all, x)
		}
	}
	return all
}

// kindsOf returns the kinds of events.
func kindsOf(events []contract.Event) (all []string) {
	for i := range events {
		all = append(all, events[i].Type)
	}
	return all
}

// keepExemplar stores x, the trace of the exemplar.
func (w *harness) keepExemplar(t testing.TB, x *trace.Trace) {
	t.Helper()
	kept := &trace.Trace{ID: x.ID}
	kept.Append(x)
	request, err := tracegen.Protobuf([]*trace.Trace{kept}, w.app.Table())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.store.Traces.Put(kept.ID, request); err != nil {
		t.Fatal(err)
	}
	w.exemplar = kept
}

// assignExemplar stores the exemplar as the slowest request of group.
func (w *harness) assignExemplar(t testing.TB, group analysis.Hash) {
	t.Helper()
	root := &w.exemplar.Spans[0]
	slowest := store.Exemplar{Trace: w.exemplar.ID, Start: root.Start, Duration: int64(root.Duration())}
	if err := w.store.Exemplars.Put(group, &store.Exemplars{Slow: []store.Exemplar{slowest}}); err != nil {
		t.Fatal(err)
	}
	w.group = group
}

// learned reports whether the core's learning period is over.
func (w *harness) learned() bool { return w.core.View().Progress.Learned() }

// observeVersion passes a span from a version of a service to the core.
func (w *harness) observeVersion(service, version string, at trace.Nanos) {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := w.core.View().Table
	seen := ingest.ServiceVersion{Service: names.Symbol(service), Version: names.Symbol(version)}
	w.core.ObserveVersions([]engine.VersionSeen{{ServiceVersion: seen, First: at, Last: at}})
}

// problems returns the open problems.
func (w *harness) problems() []detect.Problem { return w.core.View().Problems.Open() }

// incidentID returns the ID of the first incident.
func (w *harness) incidentID() string { return render.Hex16(w.core.View().Incidents.All()[0].ID) }

// problem returns the open problem with the most requests.
func (w *harness) problem() detect.Problem {
	return slices.MaxFunc(w.problems(), func(a, b detect.Problem) int { return cmp.Compare(a.Requests, b.Requests) })
}

// call calls the API from the loopback address, validates the answer against the contract, and returns it.
func (w *harness) call(t testing.TB, method, path string, body any, headers ...string) *httptest.ResponseRecorder {
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

// get calls the API as call does.
func (w *harness) get(t testing.TB, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return w.call(t, http.MethodGet, path, nil, headers...)
}

// expect calls the API as call does, and checks the status of the answer.
func (w *harness) expect(t testing.TB, want int, method, path string, body any, headers ...string) {
	t.Helper()
	if out := w.call(t, method, path, body, headers...); out.Code != want {
		t.Errorf("%s %s: got %d, want %d: %s", method, path, out.Code, want, out.Body)
	}
}

// callUnchecked calls the API from the loopback address.
func (w *harness) callUnchecked(method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:8321"+path, nil)
	r.RemoteAddr = "127.0.0.1:4711"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	w.ServeHTTP(out, r)
	return out
}

// check validates an answer against the contract.
func (w *harness) check(t testing.TB, r *http.Request, out *httptest.ResponseRecorder) {
	t.Helper()
	path, under := strings.CutPrefix(r.URL.Path, prefix)
	if out.Code >= 400 {
		var e struct {
			Type, Title, Detail, Instance *string
			Status                        int
		}
		if err := json.Unmarshal(out.Body.Bytes(), &e); err != nil || e.Status != out.Code || e.Type == nil ||
			e.Title == nil || e.Detail == nil || e.Instance == nil {
			t.Errorf("%s %s: got %d without a problem object: %s", r.Method, r.URL, out.Code, out.Body)
		}
		if got := out.Header().Get("Content-Type"); got != refusal.ProblemType {
			t.Errorf("%s %s: got %d with Content-Type %s, want %s", r.Method, r.URL, out.Code, got, refusal.ProblemType)
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
				Request:    r,
				PathParams: params,
				Route:      &routers.Route{Spec: w.doc, Path: pattern, PathItem: item, Method: r.Method, Operation: op},
			},
			Status: out.Code, Header: out.Header(), Options: &openapi3filter.Options{IncludeResponseStatus: true},
		}
		input.SetBodyBytes(out.Body.Bytes())
		if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
			t.Errorf("%s %s: the answer breaks the contract: %v", r.Method, r.URL, err)
		}
	}
}

// match returns the parameters of a path, and whether the path matches a pattern.
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

// decode decodes a successful answer.
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

// fetch gets a path and decodes the successful answer.
func fetch[T any](t testing.TB, w *harness, path string) T {
	t.Helper()
	return decode[T](t, w.get(t, path))
}
