package control_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// told is an engine that remembers what it was told.
type told struct {
	mu   sync.Mutex // guards all and deaf
	all  []search.Feedback
	deaf bool
}

func (e *told) Record(_ context.Context, f *search.Feedback) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deaf {
		return errors.New("deaf")
	}
	e.all = append(e.all, *f)
	return nil
}

// heard returns all that was told.
func (e *told) heard() []search.Feedback {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// catalogues returns how many tracepoints each service has, by what was told so far.
func (e *told) catalogues() string {
	services := make(map[string]int)
	for _, f := range e.heard() {
		for _, c := range f.Catalogues {
			services[c.Service] = len(c.Tracepoints)
			if len(c.Tracepoints) == 0 {
				delete(services, c.Service)
			}
		}
	}
	return fmt.Sprint(services)
}

// world is a control plane with its clock, inside a synctest bubble.
type world struct {
	*control.Plane
	t      *testing.T
	engine *told
	table  trace.Table
	plan   search.Plan
	http   http.Handler
}

// newWorld returns a plane that runs until the test ends.
func newWorld(t *testing.T, known ...string) *world {
	w := &world{t: t, engine: &told{}}
	w.Plane = control.New(w.engine, control.Options{Lease: 90 * time.Second, Reading: 64 << 20, Log: slog.New(slog.DiscardHandler)})
	w.http = w.Handler(func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil })
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		w.Begin(known)
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	synctest.Wait()
	return w
}

// on publishes a plan with the given tracepoints in one arm, whose name the table does not know.
func (w *world) on(ids ...string) {
	w.plan = search.Plan{Version: w.plan.Version + 1, Arms: []search.Arm{{Name: trace.SymbolOf([]byte(search.ArmNames[0])), Share: 1}}}
	for _, id := range ids {
		w.plan.Leases = append(w.plan.Leases, search.Lease{Tracepoint: w.table.Symbol(id)})
	}
	w.Publish(&w.plan, &w.table)
}

// points returns n tracepoints of a service.
func points(service string, n int) []protocol.Tracepoint {
	list := make([]protocol.Tracepoint, n)
	for i := range list {
		list[i] = protocol.Tracepoint{
			ID: fmt.Sprintf("%s/%06d", service, i), Layer: protocol.App, Kind: protocol.SpanPoint, Service: service,
			Operation: fmt.Sprintf("step %d", i), Owner: "GET /", OwnerKind: protocol.Server, CostNanos: 1000, Bytes: 200,
		}
	}
	return list
}

func registration(service, session string, all []protocol.Tracepoint, page int) *protocol.Registration {
	r := &protocol.Registration{
		Protocol: protocol.Version, Session: session, Resource: map[string]string{"service.name": service},
		Capabilities: []protocol.Capability{protocol.CanSpan}, Catalogue: protocol.Catalogue{Hash: protocol.HashCatalogue(all), Size: len(all)},
	}
	if page >= 0 {
		from, to := r.Catalogue.Page(page)
		r.Page = &protocol.Page{Number: page, Tracepoints: all[from:to]}
	}
	return r
}

// call sends a request; body, if it is not nil, as JSON.
func (w *world) call(method, path string, body any, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	var content io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		content = bytes.NewReader(data)
	}
	r := httptest.NewRequest(method, protocol.Path+path, content)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a := httptest.NewRecorder()
	w.http.ServeHTTP(a, r)
	return a
}

// register registers an agent with a catalogue of one page.
func (w *world) register(id, session, service string, all []protocol.Tracepoint) {
	w.t.Helper()
	if a := w.call(http.MethodPut, id, registration(service, session, all, 0)); a.Code != http.StatusOK || strings.Contains(a.Body.String(), "missing") {
		w.t.Fatalf("registering %s: %d %s", id, a.Code, a.Body)
	}
}

// report has an agent of session 1 report outcomes of the present plan.
func (w *world) report(id string, outcomes ...protocol.Outcome) {
	w.t.Helper()
	s := protocol.Status{Protocol: 1, Session: "1", Version: w.plan.Version, Tracepoints: outcomes}
	if a := w.call(http.MethodPost, id+"/status", s); a.Code != http.StatusNoContent {
		w.t.Fatalf("%d %s", a.Code, a.Body)
	}
}

// fetch returns the plan that an agent is told, and how it was answered.
func (w *world) fetch(id, query, has string) (*protocol.Plan, int) {
	w.t.Helper()
	a := w.call(http.MethodGet, id+"/plan?"+query, nil, "If-None-Match", `"`+has+`"`)
	if a.Code != http.StatusOK {
		return nil, a.Code
	}
	plan, err := protocol.DecodePlan(a.Body.Bytes())
	if err != nil {
		w.t.Fatal(err)
	}
	if etag := a.Header().Get("ETag"); etag != `"`+plan.Hash+`"` {
		w.t.Errorf("ETag %s of plan %s", etag, plan.Hash)
	}
	return plan, a.Code
}

func ids(p *protocol.Plan) []string {
	var list []string
	for _, a := range p.Arms {
		for _, t := range a.Tracepoints {
			list = append(list, t.ID)
		}
	}
	return list
}

// An agent is told its own part of the plan, at once when it changes, and that nothing changed otherwise.
func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if _, code := w.fetch("a", "", ""); code != http.StatusNotFound {
			t.Errorf("an agent that is not known: %d", code)
		}
		w.register("a", "1", "shop", points("shop", 3))
		w.register("b", "1", "bank", points("bank", 3))
		empty, code := w.fetch("a", "wait=30s", "")
		if code != http.StatusOK || empty.Version != 0 || len(empty.Arms) != 0 {
			t.Fatalf("the first plan: %d %+v", code, empty)
		}
		began := time.Now()
		if _, code := w.fetch("a", "wait=30s", empty.Hash); code != http.StatusNotModified || time.Since(began) < 27*time.Second || time.Since(began) > 30*time.Second {
			t.Errorf("nothing changed: %d after %v", code, time.Since(began))
		}
		began = time.Now()
		time.AfterFunc(time.Second, func() { w.on("shop/000001", "bank/000002", "other/1") })
		plan, code := w.fetch("a", "wait=30s", empty.Hash)
		if code != http.StatusOK || time.Since(began) != time.Second || !slices.Equal(ids(plan), []string{"shop/000001"}) || plan.Version != 1 || plan.LeaseSeconds != 90 {
			t.Errorf("a change: %d %+v after %v", code, plan, time.Since(began))
		}
		if plan, _ := w.fetch("b", "", ""); !slices.Equal(ids(plan), []string{"bank/000002"}) || plan.Version != 1 {
			t.Errorf("the other agent: %+v", plan)
		}
		time.AfterFunc(time.Second, w.Close)
		began = time.Now()
		if _, code := w.fetch("a", "wait=30s", plan.Hash); code != http.StatusNotModified || time.Since(began) != time.Second {
			t.Errorf("closing: %d after %v", code, time.Since(began))
		}
	})
}

// A large catalogue comes in pages, in any order, each once, however many agents have it, and the engine is told it when it is whole.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		all := points("shop", 2*protocol.PageSize+1)
		missing := func(id string, page int) []int {
			t.Helper()
			a := w.call(http.MethodPut, id, registration("shop", "1", all, page))
			var r protocol.Registered
			if err := json.Unmarshal(a.Body.Bytes(), &r); err != nil || a.Code != http.StatusOK {
				t.Fatalf("%d %s %v", a.Code, a.Body, err)
			}
			return r.Missing
		}
		if m := missing("a", -1); !slices.Equal(m, []int{0, 1, 2}) {
			t.Errorf("the first agent is to send %v", m)
		}
		if m := missing("b", -1); len(m) != 0 {
			t.Errorf("the second agent is to send %v, too", m)
		}
		missing("a", 2)
		missing("a", 0)
		w.on("shop/000001")
		before, _ := w.fetch("b", "", "")
		if len(ids(before)) != 0 {
			t.Errorf("a plan of what is not known yet: %v", ids(before))
		}
		time.AfterFunc(2*time.Second, func() { missing("a", 1) })
		if after, code := w.fetch("b", "wait=30s", before.Hash); code != http.StatusOK || !slices.Equal(ids(after), []string{"shop/000001"}) {
			t.Errorf("when the catalogue is whole: %d %+v", code, after)
		}
		time.Sleep(2 * time.Second)
		if got := w.engine.catalogues(); got != "map[shop:4001]" {
			t.Errorf("the engine knows %s", got)
		}
		if s := w.Summary(); s.Agents != 2 || s.Catalogues != 1 || s.Tracepoints != 4001 {
			t.Errorf("%+v", s)
		}
	})
}

// An agent that was to send pages and is gone leaves them to others.
func TestPagesOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		all := points("shop", protocol.PageSize+1)
		w.call(http.MethodPut, "a", registration("shop", "1", all, -1))
		w.call(http.MethodPut, "b", registration("shop", "1", all, -1))
		if _, code := w.fetch("b", "", ""); code != http.StatusOK {
			t.Errorf("while another sends pages: %d", code)
		}
		time.Sleep(6 * time.Second)
		if _, code := w.fetch("b", "", ""); code != http.StatusNotFound {
			t.Errorf("when it did not: %d", code)
		}
		if a := w.call(http.MethodPut, "b", registration("shop", "1", all, -1)); !strings.Contains(a.Body.String(), `"missing":[0,1]`) {
			t.Errorf("then another is told %s", a.Body)
		}
	})
}

// Two agents with one id are told apart: the one that is there keeps it, and the other is told to take another. When it is gone the other
// gets it, and if it was not gone it is told so.
func TestSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list := points("shop", 2)
		w.register("a", "1", "shop", list)
		second := registration("shop", "2", list, 0)
		has, _ := w.fetch("a", "", "")
		for range 5 {
			go func() { _, _ = w.Wait(t.Context(), control.Caller{ID: "a", Session: "1"}, has.Hash, 30*time.Second) }()
			synctest.Wait()
			if a := w.call(http.MethodPut, "a", second); a.Code != http.StatusConflict || a.Header().Get("Retry-After") == "" {
				t.Fatalf("a second agent: %d %s", a.Code, a.Body)
			}
			if _, code := w.fetch("a", "session=2", ""); code != http.StatusConflict {
				t.Errorf("its plan: %d", code)
			}
			if _, code := w.fetch("a", "session=1", ""); code != http.StatusOK {
				t.Errorf("the plan of the first: %d", code)
			}
			time.Sleep(3 * time.Second)
		}
		if all := w.Agents(); len(all) != 1 || all[0].Conflicts != 10 {
			t.Errorf("%+v", all)
		}
		time.Sleep(35 * time.Second)
		if a := w.call(http.MethodPut, "a", second); a.Code != http.StatusOK {
			t.Errorf("when the first is gone: %d %s", a.Code, a.Body)
		}
		if _, code := w.fetch("a", "session=1", ""); code != http.StatusConflict {
			t.Errorf("the first comes back: %d", code)
		}
		if a := w.call(http.MethodPut, "a", second, "Authorization", "another token"); a.Code != http.StatusConflict {
			t.Errorf("with the token of another: %d", a.Code)
		}
	})
}

// A deployment changes what there is: both versions are known while both run, the old one is gone soon after its last agent, and a service
// that nobody answers for keeps what it has for a while.
func TestDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "old", "shop")
		before, after := points("shop", 5), points("shop", 9)[2:]
		w.register("a", "1", "shop", before)
		time.Sleep(2 * time.Second)
		if got := w.engine.catalogues(); got != "map[shop:5]" {
			t.Errorf("before: %s", got)
		}
		w.register("b", "1", "shop", after)
		time.Sleep(2 * time.Second)
		if got := w.engine.catalogues(); got != "map[shop:9]" {
			t.Errorf("while both run: %s", got)
		}
		w.on("shop/000001", "shop/000003")
		if p, _ := w.fetch("b", "", ""); !slices.Equal(ids(p), []string{"shop/000003"}) {
			t.Errorf("the new version is told %v", ids(p))
		}
		has, _ := w.fetch("a", "", "")
		began := time.Now()
		time.AfterFunc(2*time.Second, func() { w.register("a", "1", "shop", after) })
		if p, code := w.fetch("a", "wait=30s", has.Hash); code != http.StatusOK || time.Since(began) != 2*time.Second || !slices.Equal(ids(p), []string{"shop/000003"}) {
			t.Errorf("an agent that waits while its catalogue changes: %d after %v", code, time.Since(began))
		}
		time.Sleep(2 * time.Second)
		if got := w.engine.catalogues(); got != "map[shop:7]" {
			t.Errorf("after: %s", got)
		}
		time.Sleep(5 * time.Minute) // cut off
		if got, s := w.engine.catalogues(), w.Summary(); got != "map[shop:7]" || s.Agents != 0 {
			t.Errorf("while nobody answers: %s, %+v", got, s)
		}
		time.Sleep(9 * time.Minute)
		if got := w.engine.catalogues(); got != "map[]" || !slices.ContainsFunc(w.engine.heard(), func(f search.Feedback) bool {
			return slices.ContainsFunc(f.Catalogues, func(c search.Catalogue) bool { return c.Service == "old" && c.Tracepoints == nil })
		}) {
			t.Errorf("after a long time: %s", got)
		}
	})
}

// Where agents of a service say of a place that it runs in different spans, nobody knows in which.
func TestOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one, other, third := points("shop", 3), points("shop", 3), points("shop", 3)
		other[1].Owner = "GET /other"
		third[2].Owner, third[2].OwnerKind = "", ""
		w.register("a", "1", "shop", one)
		w.register("b", "1", "shop", other)
		w.register("c", "1", "shop", third)
		time.Sleep(2 * time.Second)
		var owners []string
		for _, f := range w.engine.heard() {
			for _, c := range f.Catalogues {
				owners = nil
				for i := range c.Tracepoints {
					owners = append(owners, fmt.Sprint(c.Tracepoints[i].Owner, "|", c.Tracepoints[i].OwnerSpan))
				}
			}
		}
		none := fmt.Sprint("|", trace.Internal)
		if want := []string{fmt.Sprint("GET /|", trace.Server), none, none}; !slices.Equal(owners, want) {
			t.Errorf("owners %q, want %q", owners, want)
		}
	})
}

// What agents measure is added up, told when it differs, and what most of them cannot switch on is told, too.
func TestMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list := points("shop", 4)
		list[3].Baseline = true
		for _, id := range []string{"a", "b", "c"} {
			w.register(id, "1", "shop", list)
		}
		w.on("shop/000000", "shop/000001")
		for n := range uint64(4) {
			for _, id := range []string{"a", "b", "c"} {
				s := protocol.Status{Protocol: 1, Session: "1", Version: 1, Tracepoints: []protocol.Outcome{
					{ID: "shop/000000", State: protocol.Applied, Hits: 1000 * n, Nanos: 2000, Bytes: 500},
					{ID: "shop/000001", State: protocol.Failed, Reason: "no such place"},
					{ID: "shop/000003", State: protocol.Applied, Hits: 1e6 * n, Nanos: 2000, Bytes: 500},
				}}
				if id == "a" {
					s.Tracepoints[1].State = protocol.Applied
				}
				if a := w.call(http.MethodPost, id+"/status", s); a.Code != http.StatusNoContent {
					t.Fatalf("%d %s", a.Code, a.Body)
				}
			}
			time.Sleep(10 * time.Second)
		}
		var costs []search.Cost
		var broken []search.Unavailable
		var measured search.Measured
		for _, f := range w.engine.heard() {
			costs, broken = append(costs, f.Costs...), append(broken, f.Unavailable...)
			if f.Measured != nil {
				measured = *f.Measured
			}
		}
		if want := (search.Measured{Plan: 1, Hits: 300, Bytes: 150_000, CPU: 6e-4}); math.Abs(measured.CPU-want.CPU) > 1e-9 || measured.Hits != want.Hits || measured.Bytes != want.Bytes || measured.Plan != 1 {
			t.Errorf("measured %+v, want %+v", measured, want)
		}
		if want := (search.Cost{ID: "shop/000000", CPU: 2 * time.Microsecond, Bytes: 500}); !slices.Contains(costs, want) || len(costs) != 2 {
			t.Errorf("costs %+v", costs)
		}
		if want := []search.Unavailable{{ID: "shop/000001", For: 30 * time.Minute}}; !slices.Equal(broken, want) {
			t.Errorf("broken %+v", broken)
		}
		if all := w.Agents(); len(all) != 3 || all[1].Failed != 1 || all[1].Problem != "shop/000001: no such place" || all[0].Problem != "" || all[1].State != control.Current || all[0].Applied != 2 || all[0].Hits != 3000+3e6 {
			t.Errorf("%+v", all)
		}
		w.on("shop/000001")
		s := protocol.Status{Protocol: 1, Session: "1", Version: 2, Tracepoints: []protocol.Outcome{
			{ID: "shop/000000", State: protocol.Applied, Hits: 9000, Nanos: 2000, Bytes: 500}, {ID: "shop/000001", State: protocol.Applied},
		}}
		if w.call(http.MethodPost, "a/status", s); w.Agents()[0].Applied != 1 {
			t.Errorf("what was on before counts: %+v", w.Agents()[0])
		}
		s.Version = 0
		if w.call(http.MethodPost, "a/status", s); w.Agents()[0].Applied != 0 {
			t.Errorf("what was on before counts when the lease ended: %+v", w.Agents()[0])
		}
		for _, id := range []string{"a", "b", "c"} {
			w.register(id, "1", "shop", list[:3])
		}
		time.Sleep(2 * time.Second)
		if !slices.ContainsFunc(w.engine.heard(), func(f search.Feedback) bool {
			return len(f.Catalogues) == 1 && slices.Equal(f.Unavailable, []search.Unavailable{{ID: "shop/000001"}})
		}) {
			t.Error("a new version of the program does not get another chance")
		}
	})
}

// The hits of an agent that begins to count anew cost nothing until it reports again.
func TestCounterGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.register("a", "1", "shop", points("shop", 1))
		w.on("shop/000000")
		for _, hits := range []uint64{0, 1000, 10, 2010, 2010} {
			w.report("a", protocol.Outcome{ID: "shop/000000", State: protocol.Applied, Hits: hits, Nanos: 2000, Bytes: 500})
			time.Sleep(10 * time.Second)
		}
		var rates []float64
		for _, f := range w.engine.heard() {
			if f.Measured != nil && (len(rates) == 0 || rates[len(rates)-1] != f.Measured.Hits) {
				rates = append(rates, f.Measured.Hits)
			}
		}
		if want := []float64{100, 0, 200, 0}; !slices.Equal(rates, want) {
			t.Errorf("hits per second %v, want %v", rates, want)
		}
	})
}

// A tracepoint is broken once more agents could not switch it on than could.
func TestUnavailableForMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.on("shop/000000")
		works := protocol.Outcome{ID: "shop/000000", State: protocol.Applied}
		breaks := protocol.Outcome{ID: "shop/000000", State: protocol.Failed, Reason: "no such place"}
		for _, c := range []struct {
			agent   string
			outcome protocol.Outcome
			broken  int
		}{{"a", works, 0}, {"b", breaks, 0}, {"c", breaks, 1}} {
			w.register(c.agent, "1", "shop", points("shop", 1))
			w.report(c.agent, c.outcome)
			time.Sleep(10 * time.Second)
			var broken []search.Unavailable
			for _, f := range w.engine.heard() {
				broken = append(broken, f.Unavailable...)
			}
			if len(broken) != c.broken {
				t.Errorf("when %s said %s: broken %+v", c.agent, c.outcome.State, broken)
			}
		}
	})
}

// What agents say of tracepoints that they have not is not kept, and nothing follows from it. What is not on costs the plan nothing.
func TestMadeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.register("a", "1", "shop", points("shop", 2))
		w.on("shop/000000")
		s := protocol.Status{Protocol: 1, Session: "1", Version: 1, Tracepoints: []protocol.Outcome{
			{ID: "shop/000000", State: protocol.Applied}, {ID: "shop/000001", State: protocol.Applied, Nanos: 1e9}, // which nobody wants
		}}
		for i := range 1000 {
			s.Tracepoints = append(s.Tracepoints, protocol.Outcome{ID: fmt.Sprintf("made/up%d", i), State: protocol.Failed, Hits: 1000, Nanos: 1e9})
		}
		for range 3 {
			s.Tracepoints[1].Hits += 50
			if a := w.call(http.MethodPost, "a/status", s); a.Code != http.StatusNoContent {
				t.Fatalf("%d %s", a.Code, a.Body)
			}
			time.Sleep(10 * time.Second)
		}
		for _, f := range w.engine.heard() {
			if len(f.Costs) > 1 || len(f.Unavailable) > 0 || f.Measured != nil {
				t.Errorf("%d costs, %d broken, %+v", len(f.Costs), len(f.Unavailable), f.Measured)
			}
		}
		if all := w.Agents(); len(all) != 1 || all[0].Applied != 1 || all[0].Failed != 0 {
			t.Errorf("%+v", all)
		}
	})
}

// Agents whose bodies come slowly do not keep others from being read, whatever they hold back.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const slow = 20
		large := bytes.Repeat([]byte(" "), protocol.MaxBody-1)
		answers := make(chan int, slow)
		for i := range slow {
			body, send := io.Pipe()
			r := httptest.NewRequest(http.MethodPut, fmt.Sprintf("%sslow%d", protocol.Path, i), body)
			r.Header.Set("Content-Type", "application/json")
			go func() {
				a := httptest.NewRecorder()
				w.http.ServeHTTP(a, r)
				_ = body.Close() // whoever sends notices
				answers <- a.Code
			}()
			go func() {
				_, _ = send.Write(large)
				time.Sleep(time.Hour)
				_ = send.Close()
			}()
		}
		synctest.Wait()
		busy := len(answers)
		if busy == 0 || busy == slow {
			t.Errorf("%d of %d bodies are refused", busy, slow)
		}
		for range busy {
			if code := <-answers; code != http.StatusServiceUnavailable {
				t.Errorf("refused with %d", code)
			}
		}
		before := time.Now()
		w.register("a", "1", "shop", points("shop", 2))
		if d := time.Since(before); d != 0 {
			t.Errorf("another agent waits for %s", d)
		}
		time.Sleep(2 * time.Hour)
	})
}

// An engine that takes nothing for now is told the same later.
func TestDeafEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.engine.mu.Lock()
		w.engine.deaf = true
		w.engine.mu.Unlock()
		w.register("a", "1", "shop", points("shop", 2))
		time.Sleep(5 * time.Second)
		w.engine.mu.Lock()
		w.engine.deaf = false
		w.engine.mu.Unlock()
		time.Sleep(2 * time.Second)
		if got := w.engine.catalogues(); got != "map[shop:2]" || len(w.engine.heard()) != 1 {
			t.Errorf("%s, told %d times", got, len(w.engine.heard()))
		}
	})
}

// Agents that are not heard of any more are shown as lost, and forgotten.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.register("a", "1", "shop", points("shop", 2))
		for _, step := range []struct {
			after time.Duration
			want  control.State
		}{{0, control.Current}, {91 * time.Second, control.Lost}, {95 * time.Second, ""}} {
			time.Sleep(step.after)
			all := w.Agents()
			if step.want == "" && len(all) > 0 || step.want != "" && (len(all) != 1 || all[0].State != step.want) {
				t.Errorf("after %v: %+v, want %s", step.after, all, step.want)
			}
		}
		if _, code := w.fetch("a", "", ""); code != http.StatusNotFound {
			t.Errorf("then it is told %d", code)
		}
	})
}

// What is no message of the protocol is refused with a problem that says why.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list := points("shop", 2)
		wrong := registration("shop", "1", list, 0)
		wrong.Catalogue.Hash = strings.Repeat("0", 32)
		nameless := registration("", "1", list, 0)
		packed := func(n int) string {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, _ = z.Write(bytes.Repeat([]byte(" "), n))
			_ = z.Close()
			return b.String()
		}
		for _, c := range []struct {
			name, method, path string
			body               any // text: as it is
			header             []string
			want               int
		}{
			{"another hash", http.MethodPut, "a", wrong, nil, 422},
			{"no service", http.MethodPut, "a", nameless, nil, 422},
			{"another version", http.MethodPut, "a", map[string]int{"protocol": 2}, nil, 422},
			{"no JSON", http.MethodPut, "a", "nothing", nil, 400},
			{"no JSON in the page", http.MethodPut, "a", `{"protocol":1,"page":7}`, nil, 400},
			{"a form", http.MethodPut, "a", "x=y", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
			{"brotli", http.MethodPut, "a", "{}", []string{"Content-Encoding", "br"}, 415},
			{"no gzip", http.MethodPut, "a", "{}", []string{"Content-Encoding", "gzip"}, 400},
			{"too much", http.MethodPut, "a", packed(protocol.MaxBody + 1), []string{"Content-Encoding", "gzip"}, 413},
			{"a long id", http.MethodPut, strings.Repeat("a", 300), wrong, nil, 404},
			{"an id that cannot be printed", http.MethodPut, "a%1b%5b31m", wrong, nil, 404},
			{"an id that is no UTF-8", http.MethodPut, "a%ff", wrong, nil, 404},
			{"no duration", http.MethodGet, "a/plan?wait=x", nil, nil, 400},
			{"status of nobody", http.MethodPost, "a/status", protocol.Status{Protocol: 1, Session: "1"}, nil, 404},
			{"status of an odd state", http.MethodPost, "a/status", protocol.Status{Protocol: 1, Session: "1", Tracepoints: []protocol.Outcome{{ID: "x", State: "on"}}}, nil, 422},
			{"elsewhere", http.MethodDelete, "a", nil, nil, 404},
		} {
			body := c.body
			var a *httptest.ResponseRecorder
			if text, ok := body.(string); ok {
				r := httptest.NewRequest(c.method, protocol.Path+c.path, strings.NewReader(text))
				r.Header.Set("Content-Type", "application/json")
				for i := 0; i < len(c.header); i += 2 {
					r.Header.Set(c.header[i], c.header[i+1])
				}
				a = httptest.NewRecorder()
				w.http.ServeHTTP(a, r)
			} else {
				a = w.call(c.method, c.path, body, c.header...)
			}
			var p protocol.Problem
			if err := json.Unmarshal(a.Body.Bytes(), &p); err != nil || a.Code != c.want || p.Error == "" || a.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %d %s, want %d", c.name, a.Code, a.Body, c.want)
			}
		}
		if s := w.Summary(); s.Agents != 0 || s.Catalogues != 0 || s.Tracepoints != 0 {
			t.Errorf("left behind: %+v", s)
		}
	})
}

// Many agents with one catalogue have one in memory, and one plan.
func TestSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		list := points("shop", 100)
		for i := range 200 {
			w.register(fmt.Sprint(i), "1", "shop", list)
		}
		w.on("shop/000001")
		var first []byte
		for i := range 200 {
			told, err := w.Plan(control.Caller{ID: fmt.Sprint(i)}, "")
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = told.JSON
			}
			if &told.JSON[0] != &first[0] {
				t.Fatal("a body of its own")
			}
		}
		if s := w.Summary(); s.Catalogues != 1 || s.Tracepoints != 100 {
			t.Errorf("%+v", s)
		}
	})
}
