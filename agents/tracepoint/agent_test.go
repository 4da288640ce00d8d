package tracepoint_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// server implements the server side of the protocol as a RoundTripper, without a network.
type server struct {
	t *testing.T

	mu       sync.Mutex // guards the fields below
	plan     *protocol.Plan
	changed  chan struct{} // closed when plan is replaced
	down     bool          // refuses connections
	hangs    bool          // never responds
	noWait   bool          // doesn't support long polling
	agents   map[string]protocol.Registration
	pages    map[string]map[int][]protocol.Tracepoint // by hash of the catalogue
	statuses []protocol.Status
	sample   int      // seconds for which agents should sample stacks after a status
	log      []string // method and path of every request
}

func newServer(t *testing.T) *server {
	return &server{
		t:       t,
		changed: make(chan struct{}),
		agents:  make(map[string]protocol.Registration),
		pages:   make(map[string]map[int][]protocol.Tracepoint),
		plan:    hashed(planOf(0)),
	}
}

func hashed(p *protocol.Plan) *protocol.Plan {
	p.Hash = protocol.HashPlan(p)
	return p
}

// publish replaces the plan.
func (s *server) publish(p *protocol.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = hashed(p)
	close(s.changed)
	s.changed = make(chan struct{})
}

// set changes s under its lock.
func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	down, hangs := s.down, s.hangs
	path, _, _ := strings.Cut(strings.TrimPrefix(r.URL.String(), "http://sibyl"+protocol.Path), "?")
	s.log = append(s.log, r.Method+" "+path)
	s.mu.Unlock()
	if down {
		return nil, errors.New("connection refused")
	}
	if hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	switch {
	case r.Header.Get("Authorization") != "Bearer secret":
		w.WriteHeader(http.StatusUnauthorized)
	case r.Method == http.MethodPut:
		s.register(w, r)
	case r.Method == http.MethodPost:
		s.status(w, r)
	default:
		if !s.poll(w, r) {
			return nil, r.Context().Err()
		}
	}
	return w.Result(), nil
}

func read(r *http.Request, into any) error {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return err
		}
		body = z
	}
	return json.NewDecoder(body).Decode(into)
}

func agentID(r *http.Request) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, protocol.Path), "/")
	return id
}

func (s *server) register(w http.ResponseWriter, r *http.Request) {
	var reg protocol.Registration
	if err := errors.Join(read(r, &reg), reg.Validate()); err != nil {
		s.t.Errorf("registration: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, known := s.agents[agentID(r)]; known && old.Session != reg.Session {
		w.WriteHeader(http.StatusConflict)
		return
	}
	s.agents[agentID(r)] = reg
	pages := s.pages[reg.Catalogue.Hash]
	if pages == nil {
		pages = make(map[int][]protocol.Tracepoint)
		s.pages[reg.Catalogue.Hash] = pages
	}
	if reg.Page != nil {
		pages[reg.Page.Number] = reg.Page.Tracepoints
	}
	response := protocol.Registered{Protocol: protocol.Version}
	for n := range reg.Catalogue.Pages() {
		if pages[n] == nil {
			response.Missing = append(response.Missing, n)
		}
	}
	_ = json.NewEncoder(w).Encode(&response)
}

func (s *server) status(w http.ResponseWriter, r *http.Request) {
	var status protocol.Status
	if err := errors.Join(read(r, &status), status.Validate()); err != nil {
		s.t.Errorf("status: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses = append(s.statuses, status)
	if s.sample == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	_ = json.NewEncoder(w).Encode(&protocol.StatusAnswer{StackSeconds: s.sample})
}

// poll waits for a plan that the agent doesn't have. It reports whether the client is still connected.
func (s *server) poll(w http.ResponseWriter, r *http.Request) bool {
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	if err != nil {
		s.t.Error(err)
	}
	end := time.After(wait)
	for {
		s.mu.Lock()
		p, changed, noWait := s.plan, s.changed, s.noWait
		_, known := s.agents[agentID(r)]
		s.mu.Unlock()
		if !known {
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusNotFound)
			return true
		}
		if r.Header.Get("If-None-Match") != `"`+p.Hash+`"` {
			_ = json.NewEncoder(w).Encode(p)
			return true
		}
		if 3*wait > time.Duration(p.LeaseSeconds)*time.Second {
			s.t.Errorf("the agent waits %v with a lease of %d s", wait, p.LeaseSeconds)
		}
		if noWait {
			w.WriteHeader(http.StatusNotModified)
			return true
		}
		select {
		case <-end:
			w.WriteHeader(http.StatusNotModified)
			return true
		case <-changed:
		case <-r.Context().Done():
			return false
		}
	}
}

// connect connects a registry to s.
func (s *server) connect(t *testing.T, r *tracepoint.Registry, options ...tracepoint.Option) *tracepoint.Agent {
	t.Helper()
	a, err := r.Connect(t.Context(), append([]tracepoint.Option{
		tracepoint.WithEndpoint("http://sibyl"), tracepoint.WithID("one"), tracepoint.WithToken("secret"),
		tracepoint.WithHTTPClient(&http.Client{Transport: s}),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// expectEnabled waits for the agents and checks whether p is enabled.
func expectEnabled(t *testing.T, p *tracepoint.Point, want bool, when string) {
	t.Helper()
	synctest.Wait()
	if got := enabled(t, p); got != want {
		t.Errorf("%s: enabled is %v, want %v", when, got, want)
	}
}

func TestAgentAppliesPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newServer(t), tracepoint.NewRegistry("shop")
		shop.Span("work")
		a := s.connect(t, shop)
		defer a.Close()
		expectEnabled(t, shop.Span("work"), false, "before the first plan")
		s.publish(planOf(1, "shop/work", "shop/odd"))
		expectEnabled(t, shop.Span("work"), true, "with a plan")
		time.Sleep(5 * time.Minute)
		expectEnabled(t, shop.Span("work"), true, "while responses renew the lease")
		s.set(func() {
			last := s.statuses[len(s.statuses)-1]
			if last.Version != 1 || last.Hash != s.plan.Hash || len(last.Tracepoints) != 2 {
				t.Fatalf("status %+v", last)
			}
			odd, work := last.Tracepoints[0], last.Tracepoints[1]
			if odd.State != protocol.Unsupported || work.State != protocol.Applied || work.Hits != 1 || work.Nanos < 0 {
				t.Errorf("status %+v", last)
			}
		})
		s.publish(planOf(2))
		expectEnabled(t, shop.Span("work"), false, "with an empty plan")
	})
}

// The agent follows requests for as long as the answers to its statuses ask for it.
func TestAgentSamplesStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newServer(t), tracepoint.NewRegistry("shop")
		provider := shop.Provider(noop.NewTracerProvider())
		work := shop.Span("work")
		a := s.connect(t, shop)
		defer a.Close()
		request := func() {
			ctx, span := provider.Tracer("entry").Start(t.Context(), "GET /", trace.WithSpanKind(trace.SpanKindServer))
			_, end := work.Start(ctx)
			time.Sleep(time.Second)
			end()
			span.End()
		}
		stacks := func() (n int) {
			for range 60 {
				request()
			}
			s.set(func() {
				for i := range s.statuses {
					n += len(s.statuses[i].Stacks)
				}
				s.statuses = nil
			})
			return n
		}
		if n := stacks(); n > 0 {
			t.Errorf("%d stacks that nobody asked for", n)
		}
		s.set(func() { s.sample = 15 })
		if n := stacks(); n < 3 {
			t.Errorf("%d stacks in a minute, want one in each status after the first", n)
		}
		s.set(func() { s.sample = 0 })
		stacks()
		if n := stacks(); n > 0 {
			t.Errorf("%d stacks after the last request for them", n)
		}
	})
}

func TestLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newServer(t), tracepoint.NewRegistry("shop")
		shop.Span("work")
		defer s.connect(t, shop).Close()
		s.publish(planOf(1, "shop/work"))
		synctest.Wait()
		s.set(func() { s.down = true })
		time.Sleep(59 * time.Second) // the pending poll gets a response, which renews the lease of a minute once more
		expectEnabled(t, shop.Span("work"), true, "before the lease expires")
		time.Sleep(21 * time.Second)
		expectEnabled(t, shop.Span("work"), false, "after the lease has expired")
		time.Sleep(10 * time.Minute)
		s.set(func() {
			if n := len(s.log); n > 200 {
				t.Errorf("%d requests in ten minutes", n)
			}
			s.down = false
		})
		time.Sleep(45 * time.Second)
		expectEnabled(t, shop.Span("work"), true, "after the recovery")
	})
}

// TestLeaseExpiresDuringPoll checks that a lease expires on time while the agent waits for a response.
func TestLeaseExpiresDuringPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newServer(t), tracepoint.NewRegistry("shop")
		shop.Span("work")
		defer s.connect(t, shop).Close()
		synctest.Wait()
		s.set(func() { s.hangs = true })
		s.publish(planOf(1, "shop/work")) // the pending request gets a response, later requests don't
		time.Sleep(59 * time.Second)
		expectEnabled(t, shop.Span("work"), true, "before the lease expires")
		time.Sleep(2 * time.Second)
		expectEnabled(t, shop.Span("work"), false, "after the lease has expired")
	})
}

// TestNoLongPolling checks that the agent backs off from a server that responds at once.
func TestNoLongPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newServer(t), tracepoint.NewRegistry("shop")
		shop.Span("work")
		defer s.connect(t, shop).Close()
		s.publish(planOf(1, "shop/work"))
		s.set(func() { s.noWait = true })
		for range 100 {
			time.Sleep(6 * time.Second)
			s.set(func() {
				if len(s.log) > 400 {
					s.noWait = false
				}
			})
		}
		expectEnabled(t, shop.Span("work"), true, "while responses renew the lease")
		s.set(func() {
			if !s.noWait {
				t.Error("the agent polls without pause")
			}
		})
	})
}

// TestServerRestarts checks that the agent registers again with a server that has forgotten it.
func TestServerRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newServer(t), tracepoint.NewRegistry("shop")
		shop.Span("work")
		defer s.connect(t, shop).Close()
		time.Sleep(3 * time.Second)
		s.set(func() {
			if len(s.log) != 4 { // PUT, GET of the first plan, GET of the next, POST of the first status
				t.Errorf("the first requests are %q", s.log)
			}
			clear(s.agents)
			clear(s.pages)
		})
		s.publish(planOf(1, "shop/work"))
		time.Sleep(4 * time.Second)
		expectEnabled(t, shop.Span("work"), false, "before Retry-After has passed")
		time.Sleep(2 * time.Second)
		expectEnabled(t, shop.Span("work"), true, "after the restart")
		s.set(func() {
			if len(s.agents) != 1 || len(s.pages) == 0 {
				t.Errorf("%d agents, %d catalogues", len(s.agents), len(s.pages))
			}
		})
	})
}

// TestSameID checks that two agents configured with the same ID both get plans.
func TestSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop, cart := newServer(t), tracepoint.NewRegistry("shop"), tracepoint.NewRegistry("cart")
		shop.Span("work")
		cart.Span("work")
		a, b := s.connect(t, shop), s.connect(t, cart)
		defer a.Close()
		defer b.Close()
		s.publish(planOf(1, "shop/work", "cart/work"))
		time.Sleep(2 * time.Second)
		expectEnabled(t, shop.Span("work"), true, "first agent")
		expectEnabled(t, cart.Span("work"), true, "second agent")
		if a.ID() == b.ID() {
			t.Errorf("both agents have the ID %q", a.ID())
		}
	})
}

// TestCatalogueInPages checks that catalogues of several pages arrive, including tracepoints that are added later.
func TestCatalogueInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newServer(t), tracepoint.NewRegistry("shop")
		const n = 2*protocol.PageSize + 1
		for i := range n {
			shop.Span(fmt.Sprintf("f%d", i))
		}
		defer s.connect(t, shop).Close()
		expect := func(size int) {
			t.Helper()
			s.set(func() {
				c, got := s.agents["one"].Catalogue, []protocol.Tracepoint(nil)
				for k := range c.Pages() {
					got = append(got, s.pages[c.Hash][k]...)
				}
				if len(got) != size || protocol.HashCatalogue(got) != c.Hash {
					t.Errorf("%d of %d tracepoints arrived, want %d with a matching hash", len(got), c.Size, size)
				}
			})
		}
		synctest.Wait()
		expect(n)
		shop.Span("work")
		time.Sleep(2 * time.Second)
		expect(n + 1)
	})
}

// TestOneAgent checks that a registry has at most one agent at a time: two agents would overwrite each other's plans.
func TestOneAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newServer(t), tracepoint.NewRegistry("shop")
		shop.Span("work")
		s.publish(planOf(1, "shop/work"))
		a := s.connect(t, shop)
		if b, err := shop.Connect(t.Context(), tracepoint.WithEndpoint("http://sibyl")); b != nil || err == nil ||
			!strings.Contains(err.Error(), "already") {
			t.Errorf("second Connect: error %v", err)
		}
		time.Sleep(time.Second)
		expectEnabled(t, shop.Span("work"), true, "with the first agent")
		a.Close()
		expectEnabled(t, shop.Span("work"), false, "after Close")
		defer s.connect(t, shop, tracepoint.WithLogger(nil)).Close()
		time.Sleep(time.Second)
		expectEnabled(t, shop.Span("work"), true, "with the next agent")
		s.set(func() { s.down = true })
		s.publish(planOf(2, "shop/work"))
		time.Sleep(time.Minute) // the discarding logger is used for failures
	})
}

func TestConnectErrors(t *testing.T) {
	for _, c := range []struct {
		want    string
		options []tracepoint.Option
	}{
		{"no endpoint", nil},
		{"must be a URL like http", []tracepoint.Option{tracepoint.WithEndpoint("sibyl:8321")}},
		{"service.name", []tracepoint.Option{tracepoint.WithEndpoint("http://sibyl")}},
		{"id", []tracepoint.Option{
			tracepoint.WithEndpoint("http://sibyl"), tracepoint.WithService("shop"), tracepoint.WithID("a\nb"),
		}},
	} {
		a, err := tracepoint.NewRegistry(tracepoint.UnknownService).Connect(context.Background(), c.options...)
		if a != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %q", err, c.want)
		}
	}
}
