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

// recorder is a control.Engine that stores all feedback, or fails.
type recorder struct {
	mu      sync.Mutex // guards the fields below
	all     []search.Feedback
	failing bool
}

func (e *recorder) Record(_ context.Context, f *search.Feedback) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failing {
		return errors.New("not durable")
	}
	e.all = append(e.all, *f)
	return nil
}

// reports returns the feedback so far.
func (e *recorder) reports() []search.Feedback {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// catalogues returns the number of tracepoints by service according to the feedback so far.
func (e *recorder) catalogues() string {
	services := make(map[string]int)
	for _, f := range e.reports() {
		for _, c := range f.Catalogues {
			services[c.Service] = len(c.Tracepoints)
			if len(c.Tracepoints) == 0 {
				delete(services, c.Service)
			}
		}
	}
	return fmt.Sprint(services)
}

// harness is a running control plane in a synctest bubble.
type harness struct {
	plane  *control.Plane
	t      *testing.T
	engine *recorder
	table  trace.Table
	plan   search.Plan
	http   http.Handler
}

// newHarness starts a plane that runs until the test ends.
func newHarness(t *testing.T, known ...string) *harness {
	w := &harness{t: t, engine: &recorder{}}
	w.plane = control.New(w.engine, control.Options{
		Lease: 90 * time.Second, MaxBuffered: 64 << 20, Log: slog.New(slog.DiscardHandler),
	})
	w.http = w.plane.Handler(func(r *http.Request) (control.Identity, error) {
		return control.Identity{Token: r.Header.Get("Authorization")}, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		w.plane.Begin(known)
		if err := w.plane.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	synctest.Wait()
	return w
}

// on publishes a plan with the tracepoints ids in one arm, whose name isn't in the table.
func (w *harness) on(ids ...string) {
	w.plan = search.Plan{
		Version: w.plan.Version + 1, Arms: []search.Arm{{Name: trace.SymbolOf([]byte(search.ArmNames[0])), Share: 1}},
	}
	for _, id := range ids {
		w.plan.Leases = append(w.plan.Leases, search.Lease{Tracepoint: w.table.Symbol(id)})
	}
	w.plane.Publish(&w.plan, &w.table)
}

// points returns n tracepoints of service.
func points(service string, n int) []protocol.Tracepoint {
	list := make([]protocol.Tracepoint, n)
	for i := range list {
		list[i] = protocol.Tracepoint{
			ID: fmt.Sprintf("%s/%06d", service, i), Layer: protocol.App, Kind: protocol.SpanPoint, Service: service,
			Operation: fmt.Sprintf("step %d", i),
			Owner:     "GET /",
			OwnerKind: protocol.Server,
			CostNanos: 1000,
			Bytes:     200,
		}
	}
	return list
}

func registration(service, session string, all []protocol.Tracepoint, page int) *protocol.Registration {
	r := &protocol.Registration{
		Protocol: protocol.Version, Session: session, Resource: map[string]string{"service.name": service},
		Capabilities: []protocol.Capability{protocol.CanSpan},
		Catalogue:    protocol.Catalogue{Hash: protocol.HashCatalogue(all), Size: len(all)},
	}
	if page >= 0 {
		from, to := r.Catalogue.Page(page)
		r.Page = &protocol.Page{Number: page, Tracepoints: all[from:to]}
	}
	return r
}

// call sends a request. Its body is body as JSON, or empty if body is nil.
func (w *harness) call(method, path string, body any, header ...string) *httptest.ResponseRecorder {
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

// register registers the agent with the given id and the catalogue `all`, which must fit into one page.
func (w *harness) register(id, session, service string, all []protocol.Tracepoint) {
	w.t.Helper()
	a := w.call(http.MethodPut, id, registration(service, session, all, 0))
	if a.Code != http.StatusOK || strings.Contains(a.Body.String(), "missing") {
		w.t.Fatalf("registering %s: %d %s", id, a.Code, a.Body)
	}
}

// report sends outcomes of the current plan from the agent with the given id, in session 1.
func (w *harness) report(id string, outcomes ...protocol.Outcome) {
	w.t.Helper()
	s := protocol.Status{Protocol: 1, Session: "1", Version: w.plan.Version, Tracepoints: outcomes}
	if a := w.call(http.MethodPost, id+"/status", s); a.Code != http.StatusNoContent {
		w.t.Fatalf("%d %s", a.Code, a.Body)
	}
}

// fetch requests the plan of the agent with the given id and returns it with the status of the answer. The plan is nil
// unless the status is 200.
func (w *harness) fetch(id, query, has string) (*protocol.Plan, int) {
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

// An agent receives its own part of the plan as soon as it changes, and 304 as long as it doesn't change.
func TestPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		if _, code := w.fetch("a", "", ""); code != http.StatusNotFound {
			t.Errorf("unknown agent: status %d, want 404", code)
		}
		w.register("a", "1", "shop", points("shop", 3))
		w.register("b", "1", "bank", points("bank", 3))
		empty, code := w.fetch("a", "wait=30s", "")
		if code != http.StatusOK || empty.Version != 0 || len(empty.Arms) != 0 {
			t.Fatalf("first plan: status %d, %+v", code, empty)
		}
		began := time.Now()
		if _, code := w.fetch("a", "wait=30s", empty.Hash); code != http.StatusNotModified ||
			time.Since(began) < 27*time.Second || time.Since(began) > 30*time.Second {
			t.Errorf("unchanged plan: status %d after %v", code, time.Since(began))
		}
		began = time.Now()
		time.AfterFunc(time.Second, func() { w.on("shop/000001", "bank/000002", "other/1") })
		plan, code := w.fetch("a", "wait=30s", empty.Hash)
		if code != http.StatusOK || time.Since(began) != time.Second ||
			!slices.Equal(ids(plan), []string{"shop/000001"}) || plan.Version != 1 || plan.LeaseSeconds != 90 {
			t.Errorf("changed plan: status %d, %+v after %v", code, plan, time.Since(began))
		}
		if plan, _ := w.fetch("b", "", ""); !slices.Equal(ids(plan), []string{"bank/000002"}) || plan.Version != 1 {
			t.Errorf("plan of the other agent: %+v", plan)
		}
		time.AfterFunc(time.Second, w.plane.Close)
		began = time.Now()
		if _, code := w.fetch("a", "wait=30s", plan.Hash); code != http.StatusNotModified ||
			time.Since(began) != time.Second {
			t.Errorf("poll during Close: status %d after %v", code, time.Since(began))
		}
	})
}

// The pages of a large catalogue arrive in any order, each once for all agents. The engine receives the complete
// catalogue.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
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
			t.Errorf("first agent: missing pages %v, want all", m)
		}
		if m := missing("b", -1); len(m) != 0 {
			t.Errorf("second agent: missing pages %v, want none", m)
		}
		missing("a", 2)
		missing("a", 0)
		w.on("shop/000001")
		before, _ := w.fetch("b", "", "")
		if len(ids(before)) != 0 {
			t.Errorf("plan before the catalogue is complete: %v, want it empty", ids(before))
		}
		time.AfterFunc(2*time.Second, func() { missing("a", 1) })
		after, code := w.fetch("b", "wait=30s", before.Hash)
		if code != http.StatusOK || !slices.Equal(ids(after), []string{"shop/000001"}) {
			t.Errorf("plan after the catalogue is complete: status %d, %+v", code, after)
		}
		time.Sleep(2 * time.Second)
		if got := w.engine.catalogues(); got != "map[shop:4001]" {
			t.Errorf("catalogues in the engine: %s", got)
		}
		if s := w.plane.Summary(); s.Agents != 2 || s.Catalogues != 1 || s.Tracepoints != 4001 {
			t.Errorf("%+v", s)
		}
	})
}

// Pages that an agent fails to send are requested from another agent.
func TestPagesOfALostAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		all := points("shop", protocol.PageSize+1)
		w.call(http.MethodPut, "a", registration("shop", "1", all, -1))
		w.call(http.MethodPut, "b", registration("shop", "1", all, -1))
		if _, code := w.fetch("b", "", ""); code != http.StatusOK {
			t.Errorf("while the first agent has time to send pages: status %d", code)
		}
		time.Sleep(6 * time.Second)
		if _, code := w.fetch("b", "", ""); code != http.StatusNotFound {
			t.Errorf("after that time: status %d, want 404", code)
		}
		a := w.call(http.MethodPut, "b", registration("shop", "1", all, -1))
		if !strings.Contains(a.Body.String(), `"missing":[0,1]`) {
			t.Errorf("second registration: %s, want pages 0 and 1 missing", a.Body)
		}
	})
}

// While an agent polls, another session with its ID receives 409. Once the agent is gone, the other session gets the
// ID, and the first one receives 409 when it returns.
func TestSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		list := points("shop", 2)
		w.register("a", "1", "shop", list)
		second := registration("shop", "2", list, 0)
		has, _ := w.fetch("a", "", "")
		for range 5 {
			go func() {
				_, _ = w.plane.Wait(t.Context(), control.Caller{ID: "a", Session: "1"}, has.Hash, 30*time.Second)
			}()
			synctest.Wait()
			a := w.call(http.MethodPut, "a", second)
			if a.Code != http.StatusConflict || a.Header().Get("Retry-After") == "" {
				t.Fatalf("registration of a second agent: %d %s, want 409", a.Code, a.Body)
			}
			if _, code := w.fetch("a", "session=2", ""); code != http.StatusConflict {
				t.Errorf("plan of the second agent: status %d, want 409", code)
			}
			if _, code := w.fetch("a", "session=1", ""); code != http.StatusOK {
				t.Errorf("plan of the first agent: status %d", code)
			}
			time.Sleep(3 * time.Second)
		}
		if all := w.plane.Agents(); len(all) != 1 || all[0].Conflicts != 10 {
			t.Errorf("%+v", all)
		}
		time.Sleep(35 * time.Second)
		if a := w.call(http.MethodPut, "a", second); a.Code != http.StatusOK {
			t.Errorf("registration after the first agent is gone: %d %s", a.Code, a.Body)
		}
		if _, code := w.fetch("a", "session=1", ""); code != http.StatusConflict {
			t.Errorf("return of the first agent: status %d, want 409", code)
		}
		if a := w.call(http.MethodPut, "a", second, "Authorization", "another token"); a.Code != http.StatusConflict {
			t.Errorf("registration with another token: status %d, want 409", a.Code)
		}
	})
}

// A service has the tracepoints of both versions during a deployment, and soon afterwards only the tracepoints of the
// new version. A service without agents keeps its catalogue for a while.
func TestDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t, "old", "shop")
		before, after := points("shop", 5), points("shop", 9)[2:]
		w.register("a", "1", "shop", before)
		time.Sleep(2 * time.Second)
		if got := w.engine.catalogues(); got != "map[shop:5]" {
			t.Errorf("before the deployment: %s", got)
		}
		w.register("b", "1", "shop", after)
		time.Sleep(2 * time.Second)
		if got := w.engine.catalogues(); got != "map[shop:9]" {
			t.Errorf("during the deployment: %s", got)
		}
		w.on("shop/000001", "shop/000003")
		if p, _ := w.fetch("b", "", ""); !slices.Equal(ids(p), []string{"shop/000003"}) {
			t.Errorf("plan of the new version: %v", ids(p))
		}
		has, _ := w.fetch("a", "", "")
		began := time.Now()
		time.AfterFunc(2*time.Second, func() { w.register("a", "1", "shop", after) })
		if p, code := w.fetch("a", "wait=30s", has.Hash); code != http.StatusOK || time.Since(began) != 2*time.Second ||
			!slices.Equal(ids(p), []string{"shop/000003"}) {
			t.Errorf("poll during a change of the catalogue: status %d after %v", code, time.Since(began))
		}
		time.Sleep(2 * time.Second)
		if got := w.engine.catalogues(); got != "map[shop:7]" {
			t.Errorf("after the deployment: %s", got)
		}
		time.Sleep(5 * time.Minute) // without messages
		if got, s := w.engine.catalogues(), w.plane.Summary(); got != "map[shop:7]" || s.Agents != 0 {
			t.Errorf("5 min after the last message: %s, %+v", got, s)
		}
		time.Sleep(9 * time.Minute)
		withdrawn := slices.ContainsFunc(w.engine.reports(), func(f search.Feedback) bool {
			return slices.ContainsFunc(f.Catalogues, func(c search.Catalogue) bool {
				return c.Service == "old" && c.Tracepoints == nil
			})
		})
		if got := w.engine.catalogues(); got != "map[]" || !withdrawn {
			t.Errorf("14 min after the last message: %s", got)
		}
	})
}

// The owner and the parent of a tracepoint are unknown if agents of the service report different ones.
func TestOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		one, other, third := points("shop", 3), points("shop", 3), points("shop", 3)
		other[1].Owner = "GET /other"
		third[2].Owner, third[2].OwnerKind = "", ""
		for _, list := range [][]protocol.Tracepoint{one, other, third} {
			list[1].Parent = list[0].ID
		}
		one[2].Parent, other[2].Parent = one[0].ID, one[0].ID
		w.register("a", "1", "shop", one)
		w.register("b", "1", "shop", other)
		w.register("c", "1", "shop", third)
		time.Sleep(2 * time.Second)
		var owners []string
		for _, f := range w.engine.reports() {
			for _, c := range f.Catalogues {
				owners = nil
				for i := range c.Tracepoints {
					owners = append(owners, fmt.Sprint(c.Tracepoints[i].Owner, "|", c.Tracepoints[i].OwnerSpan, "|",
						c.Tracepoints[i].Parent))
				}
			}
		}
		none := fmt.Sprint("|", trace.Internal, "|")
		want := []string{fmt.Sprint("GET /|", trace.Server, "|"), none + one[0].ID, none}
		if !slices.Equal(owners, want) {
			t.Errorf("owners and parents %q, want %q", owners, want)
		}
	})
}

// Measurements of agents are added up and reported when they change, as are tracepoints that most agents can't enable.
func TestMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
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
					{ID: "shop/000001", State: protocol.Failed, Reason: "no such function"},
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
		var unavailable []search.Unavailable
		var measured search.Measured
		for _, f := range w.engine.reports() {
			costs, unavailable = append(costs, f.Costs...), append(unavailable, f.Unavailable...)
			if f.Measured != nil {
				measured = *f.Measured
			}
		}
		usage := search.Measured{Plan: 1, Hits: 300, Bytes: 150_000, CPU: measured.CPU}
		if measured != usage || math.Abs(measured.CPU-6e-4) > 1e-9 {
			t.Errorf("measured %+v, want %+v and a CPU time of 600 µs", measured, usage)
		}
		cost := search.Cost{ID: "shop/000000", CPU: 2 * time.Microsecond, Bytes: 500}
		if !slices.Contains(costs, cost) || len(costs) != 2 {
			t.Errorf("costs %+v", costs)
		}
		if want := []search.Unavailable{{ID: "shop/000001", For: 30 * time.Minute}}; !slices.Equal(unavailable, want) {
			t.Errorf("unavailable %+v, want %+v", unavailable, want)
		}
		all := w.plane.Agents()
		if len(all) != 3 || all[1].Failed != 1 || all[1].Problem != "shop/000001: no such function" ||
			all[0].Problem != "" || all[1].State != control.Current || all[0].Applied != 2 || all[0].Hits != 3000+3e6 {
			t.Errorf("%+v", all)
		}
		w.on("shop/000001")
		s := protocol.Status{Protocol: 1, Session: "1", Version: 2, Tracepoints: []protocol.Outcome{
			{ID: "shop/000000", State: protocol.Applied, Hits: 9000, Nanos: 2000, Bytes: 500},
			{ID: "shop/000001", State: protocol.Applied},
		}}
		if w.call(http.MethodPost, "a/status", s); w.plane.Agents()[0].Applied != 1 {
			t.Errorf("a tracepoint of the former plan counts: %+v", w.plane.Agents()[0])
		}
		s.Version = 0
		if w.call(http.MethodPost, "a/status", s); w.plane.Agents()[0].Applied != 0 {
			t.Errorf("a tracepoint of the former plan counts after the lease: %+v", w.plane.Agents()[0])
		}
		for _, id := range []string{"a", "b", "c"} {
			w.register(id, "1", "shop", list[:3])
		}
		time.Sleep(2 * time.Second)
		if !slices.ContainsFunc(w.engine.reports(), func(f search.Feedback) bool {
			return len(f.Catalogues) == 1 && slices.Equal(f.Unavailable, []search.Unavailable{{ID: "shop/000001"}})
		}) {
			t.Error("the tracepoint remains unavailable in a new version of the program")
		}
	})
}

// Hits of an agent whose counters were reset count from its next report on.
func TestCounterReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.register("a", "1", "shop", points("shop", 1))
		w.on("shop/000000")
		for _, hits := range []uint64{0, 1000, 10, 2010, 2010} {
			w.report("a", protocol.Outcome{
				ID:    "shop/000000",
				State: protocol.Applied,
				Hits:  hits,
				Nanos: 2000,
				Bytes: 500,
			})
			time.Sleep(10 * time.Second)
		}
		var rates []float64
		for _, f := range w.engine.reports() {
			if f.Measured != nil && (len(rates) == 0 || rates[len(rates)-1] != f.Measured.Hits) {
				rates = append(rates, f.Measured.Hits)
			}
		}
		if want := []float64{100, 0, 200, 0}; !slices.Equal(rates, want) {
			t.Errorf("hits per second %v, want %v", rates, want)
		}
	})
}

// A tracepoint is unavailable once more agents failed to enable it than succeeded.
func TestUnavailableForMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.on("shop/000000")
		applied := protocol.Outcome{ID: "shop/000000", State: protocol.Applied}
		failed := protocol.Outcome{ID: "shop/000000", State: protocol.Failed, Reason: "no such function"}
		for _, c := range []struct {
			agent   string
			outcome protocol.Outcome
			want    int
		}{{"a", applied, 0}, {"b", failed, 0}, {"c", failed, 1}} {
			w.register(c.agent, "1", "shop", points("shop", 1))
			w.report(c.agent, c.outcome)
			time.Sleep(10 * time.Second)
			var unavailable []search.Unavailable
			for _, f := range w.engine.reports() {
				unavailable = append(unavailable, f.Unavailable...)
			}
			if len(unavailable) != c.want {
				t.Errorf("after %s reported %s: unavailable %+v, want %d",
					c.agent, c.outcome.State, unavailable, c.want)
			}
		}
	})
}

// One agent with incomplete records makes a tracepoint unavailable for a while: its machine may be the slow one.
func TestIncomplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.on("shop/000000")
		for _, id := range []string{"a", "b", "c"} {
			w.register(id, "1", "shop", points("shop", 1))
			w.report(id, protocol.Outcome{ID: "shop/000000", State: protocol.Applied})
		}
		incomplete := protocol.Outcome{
			ID: "shop/000000", State: protocol.Applied, Incomplete: true, Reason: "the ring buffer is full",
		}
		w.report("c", incomplete)
		time.Sleep(10 * time.Second)
		want := search.Unavailable{ID: "shop/000000", For: 2 * time.Minute}
		count := func() (n int) {
			for _, f := range w.engine.reports() {
				for _, u := range f.Unavailable {
					if u != want {
						t.Errorf("%+v, want %+v", u, want)
					}
					n++
				}
			}
			return n
		}
		if n := count(); n != 1 {
			t.Errorf("reported %d times, want once", n)
		}
		if a := w.plane.Agents()[2]; a.Problem != "shop/000000: the ring buffer is full" {
			t.Errorf("%+v", a)
		}
		time.Sleep(2 * time.Minute)
		if n := count(); n != 2 {
			t.Errorf("reported %d times, want again after two minutes", n)
		}
	})
}

// If an agent that observes other processes falls silent, its probes become unavailable, since the requests of those
// processes continue. The tracepoints of an agent within its own process stay available.
func TestSilentAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		probes := points("shop", 1)
		probes[0].Kind = protocol.ProbePoint
		w.on("shop/000000", "cart/000000")
		w.register("kernel", "1", "sibyl-agent-kernel", probes)
		w.register("app", "1", "cart", points("cart", 1))
		w.report("kernel", protocol.Outcome{ID: "shop/000000", State: protocol.Applied})
		w.report("app", protocol.Outcome{ID: "cart/000000", State: protocol.Applied})
		time.Sleep(12 * time.Second) // the agents no longer poll
		var unavailable []search.Unavailable
		for _, f := range w.engine.reports() {
			unavailable = append(unavailable, f.Unavailable...)
		}
		if want := []search.Unavailable{{ID: "shop/000000", For: 2 * time.Minute}}; !slices.Equal(unavailable, want) {
			t.Errorf("%+v, want %+v", unavailable, want)
		}
	})
}

// A silent agent does no harm if another agent on its machine has taken its place.
func TestReplacedAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		probes := points("shop", 1)
		probes[0].Kind = protocol.ProbePoint
		w.on("shop/000000")
		begin := func(id string) {
			r := registration("sibyl-agent-kernel", "1", probes, 0)
			r.Resource["host.name"] = "b"
			if a := w.call(http.MethodPut, id, r); a.Code != http.StatusOK {
				t.Fatalf("%d %s", a.Code, a.Body)
			}
		}
		begin("former")
		w.report("former", protocol.Outcome{ID: "shop/000000", State: protocol.Applied})
		begin("present")
		for range 10 {
			time.Sleep(3 * time.Second)
			w.report("present", protocol.Outcome{ID: "shop/000000", State: protocol.Applied})
		}
		for _, f := range w.engine.reports() {
			if len(f.Unavailable) > 0 {
				t.Errorf("%+v", f.Unavailable)
			}
		}
	})
}

// Outcomes of tracepoints outside the catalogue are ignored. Tracepoints that aren't in the plan don't count towards
// its cost.
func TestUnknownTracepoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.register("a", "1", "shop", points("shop", 2))
		w.on("shop/000000")
		s := protocol.Status{Protocol: 1, Session: "1", Version: 1, Tracepoints: []protocol.Outcome{
			{ID: "shop/000000", State: protocol.Applied}, {
				ID: "shop/000001", State: protocol.Applied, Nanos: 1e9,
			}, // not in the plan
		}}
		for i := range 1000 {
			s.Tracepoints = append(s.Tracepoints, protocol.Outcome{
				ID: fmt.Sprintf("unknown/%d", i), State: protocol.Failed, Hits: 1000, Nanos: 1e9,
			})
		}
		for range 3 {
			s.Tracepoints[1].Hits += 50
			if a := w.call(http.MethodPost, "a/status", s); a.Code != http.StatusNoContent {
				t.Fatalf("%d %s", a.Code, a.Body)
			}
			time.Sleep(10 * time.Second)
		}
		for _, f := range w.engine.reports() {
			if len(f.Costs) > 1 || len(f.Unavailable) > 0 || f.Measured != nil {
				t.Errorf("%d costs, %d unavailable, %+v", len(f.Costs), len(f.Unavailable), f.Measured)
			}
		}
		if all := w.plane.Agents(); len(all) != 1 || all[0].Applied != 1 || all[0].Failed != 0 {
			t.Errorf("%+v", all)
		}
	})
}

// Clients that send bodies slowly don't prevent others from being served.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
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
				_ = body.Close() // ends the write
				answers <- a.Code
			}()
			go func() {
				_, _ = send.Write(large)
				time.Sleep(time.Hour)
				_ = send.Close()
			}()
		}
		synctest.Wait()
		refused := len(answers)
		if refused == 0 || refused == slow {
			t.Errorf("%d of %d bodies refused, want some", refused, slow)
		}
		for range refused {
			if code := <-answers; code != http.StatusServiceUnavailable {
				t.Errorf("refused with status %d, want 503", code)
			}
		}
		before := time.Now()
		w.register("a", "1", "shop", points("shop", 2))
		if d := time.Since(before); d != 0 {
			t.Errorf("another agent was served after %s, want at once", d)
		}
		time.Sleep(2 * time.Hour)
	})
}

// Feedback that couldn't be recorded is repeated.
func TestFailingEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.engine.mu.Lock()
		w.engine.failing = true
		w.engine.mu.Unlock()
		w.register("a", "1", "shop", points("shop", 2))
		time.Sleep(5 * time.Second)
		w.engine.mu.Lock()
		w.engine.failing = false
		w.engine.mu.Unlock()
		time.Sleep(2 * time.Second)
		if got := w.engine.catalogues(); got != "map[shop:2]" || len(w.engine.reports()) != 1 {
			t.Errorf("%s in %d reports, want 1", got, len(w.engine.reports()))
		}
	})
}

// Agents that send no messages become lost after a lease, and are removed later.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.register("a", "1", "shop", points("shop", 2))
		for _, step := range []struct {
			after time.Duration
			want  control.State
		}{{0, control.Current}, {91 * time.Second, control.Lost}, {95 * time.Second, ""}} {
			time.Sleep(step.after)
			all := w.plane.Agents()
			if step.want == "" && len(all) > 0 || step.want != "" && (len(all) != 1 || all[0].State != step.want) {
				t.Errorf("after %v: %+v, want %s", step.after, all, step.want)
			}
		}
		if _, code := w.fetch("a", "", ""); code != http.StatusNotFound {
			t.Errorf("poll of a removed agent: status %d, want 404", code)
		}
	})
}

// Invalid messages are refused with a problem that gives the reason.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
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
			body               any // a string is sent as it is
			header             []string
			want               int
		}{
			{"another hash", http.MethodPut, "a", wrong, nil, 422},
			{"no service", http.MethodPut, "a", nameless, nil, 422},
			{"another version", http.MethodPut, "a", map[string]int{"protocol": 2}, nil, 422},
			{"not JSON", http.MethodPut, "a", "nothing", nil, 400},
			{"a page of another type", http.MethodPut, "a", `{"protocol":1,"page":7}`, nil, 400},
			{"a form", http.MethodPut, "a", "x=y", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
			{"brotli", http.MethodPut, "a", "{}", []string{"Content-Encoding", "br"}, 415},
			{"not gzip", http.MethodPut, "a", "{}", []string{"Content-Encoding", "gzip"}, 400},
			{"too large", http.MethodPut, "a", packed(protocol.MaxBody + 1), []string{"Content-Encoding", "gzip"}, 413},
			{"a long ID", http.MethodPut, strings.Repeat("a", 300), wrong, nil, 404},
			{"an ID that is not printable", http.MethodPut, "a%1b%5b31m", wrong, nil, 404},
			{"an ID that is not UTF-8", http.MethodPut, "a%ff", wrong, nil, 404},
			{"not a duration", http.MethodGet, "a/plan?wait=x", nil, nil, 400},
			{
				"status of an unknown agent",
				http.MethodPost,
				"a/status",
				protocol.Status{Protocol: 1, Session: "1"},
				nil,
				404,
			},
			{
				"status with an unknown state",
				http.MethodPost,
				"a/status",
				protocol.Status{Protocol: 1, Session: "1", Tracepoints: []protocol.Outcome{{ID: "x", State: "on"}}},
				nil,
				422,
			},
			{"another method", http.MethodDelete, "a", nil, nil, 404},
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
			err := json.Unmarshal(a.Body.Bytes(), &p)
			if err != nil || a.Code != c.want || p.Error == "" ||
				a.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %d %s, want %d", c.name, a.Code, a.Body, c.want)
			}
		}
		if s := w.plane.Summary(); s.Agents != 0 || s.Catalogues != 0 || s.Tracepoints != 0 {
			t.Errorf("state after refused messages: %+v", s)
		}
	})
}

// Agents with equal catalogues share one catalogue and one encoded plan.
func TestSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		list := points("shop", 100)
		for i := range 200 {
			w.register(fmt.Sprint(i), "1", "shop", list)
		}
		w.on("shop/000001")
		var first []byte
		for i := range 200 {
			answer, err := w.plane.Plan(control.Caller{ID: fmt.Sprint(i)}, "")
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = answer.JSON
			}
			if &answer.JSON[0] != &first[0] {
				t.Fatal("the encoded plan is not shared")
			}
		}
		if s := w.plane.Summary(); s.Catalogues != 1 || s.Tracepoints != 100 {
			t.Errorf("%+v", s)
		}
	})
}
