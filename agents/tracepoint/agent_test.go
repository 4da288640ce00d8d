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

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// sibyl is a server of the protocol without a network: a RoundTripper that answers.
type sibyl struct {
	t *testing.T

	mu       sync.Mutex // guards what follows
	plan     *protocol.Plan
	changed  chan struct{} // closed when plan is replaced
	down     bool          // connections are refused
	hangs    bool          // nothing is answered
	hasty    bool          // plans are not waited for
	agents   map[string]protocol.Registration
	pages    map[string]map[int][]protocol.Tracepoint // by hash of the catalogue
	statuses []protocol.Status
	log      []string
}

func newSibyl(t *testing.T) *sibyl {
	return &sibyl{
		t: t, changed: make(chan struct{}), agents: make(map[string]protocol.Registration), pages: make(map[string]map[int][]protocol.Tracepoint),
		plan: hashed(planOf(0)),
	}
}

func hashed(p *protocol.Plan) *protocol.Plan {
	p.Hash = protocol.HashPlan(p)
	return p
}

func (s *sibyl) decide(p *protocol.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plan = hashed(p)
	close(s.changed)
	s.changed = make(chan struct{})
}

// set changes s under its lock.
func (s *sibyl) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *sibyl) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	down, hangs := s.down, s.hangs
	what, _, _ := strings.Cut(strings.TrimPrefix(r.URL.String(), "http://sibyl"+protocol.Path), "?")
	s.log = append(s.log, r.Method+" "+what)
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
		if !s.answer(w, r) {
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

func (s *sibyl) register(w http.ResponseWriter, r *http.Request) {
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
	answer := protocol.Registered{Protocol: protocol.Version}
	for n := range reg.Catalogue.Pages() {
		if pages[n] == nil {
			answer.Missing = append(answer.Missing, n)
		}
	}
	_ = json.NewEncoder(w).Encode(&answer)
}

func (s *sibyl) status(w http.ResponseWriter, r *http.Request) {
	var status protocol.Status
	if err := errors.Join(read(r, &status), status.Validate()); err != nil {
		s.t.Errorf("status: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses = append(s.statuses, status)
	w.WriteHeader(http.StatusNoContent)
}

// answer waits for another plan. It reports whether the client is still there.
func (s *sibyl) answer(w http.ResponseWriter, r *http.Request) bool {
	wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
	if err != nil {
		s.t.Error(err)
	}
	end := time.After(wait)
	for {
		s.mu.Lock()
		p, changed, hasty := s.plan, s.changed, s.hasty
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
			s.t.Errorf("the agent waits %v, with a lease of %d s", wait, p.LeaseSeconds)
		}
		if hasty {
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

// connect connects a service to s, until the test is over.
func (s *sibyl) connect(t *testing.T, to *service, options ...tracepoint.Option) *tracepoint.Agent {
	t.Helper()
	a, err := to.Connect(t.Context(), append([]tracepoint.Option{
		tracepoint.WithEndpoint("http://sibyl"), tracepoint.WithID("one"), tracepoint.WithToken("secret"), tracepoint.WithHTTPClient(&http.Client{Transport: s}),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// on reports whether a request has the span "work" on.
func (s *service) on(t *testing.T) bool {
	t.Helper()
	ctx, entry := s.enter(t.Context(), "GET /")
	_, end := s.Span("work").Start(ctx)
	end()
	entry.End()
	defer s.record.Reset()
	return len(s.record.Ended()) > 1
}

func (s *service) expectOn(t *testing.T, want bool, when string) {
	t.Helper()
	synctest.Wait()
	if got := s.on(t); got != want {
		t.Errorf("%s: on is %v, want %v", when, got, want)
	}
}

func TestAgentFollowsThePlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newSibyl(t), newService(t, "shop")
		shop.Span("work")
		a := s.connect(t, shop)
		defer a.Close()
		shop.expectOn(t, false, "at first")
		s.decide(planOf(1, "shop/work", "shop/odd"))
		shop.expectOn(t, true, "with a plan")
		time.Sleep(5 * time.Minute)
		shop.expectOn(t, true, "while answers renew the lease")
		s.set(func() {
			last := s.statuses[len(s.statuses)-1]
			if last.Version != 1 || last.Hash != s.plan.Hash || len(last.Tracepoints) != 2 {
				t.Fatalf("status %+v", last)
			}
			odd, work := last.Tracepoints[0], last.Tracepoints[1]
			if odd.State != protocol.Unsupported || work.State != protocol.Applied || work.Hits != 1 || work.Nanos < 0 || work.Bytes < 80 {
				t.Errorf("status %+v", last)
			}
		})
		s.decide(planOf(2))
		shop.expectOn(t, false, "with an empty plan")
	})
}

func TestLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newSibyl(t), newService(t, "shop")
		shop.Span("work")
		defer s.connect(t, shop).Close()
		s.decide(planOf(1, "shop/work"))
		synctest.Wait()
		s.set(func() { s.down = true })
		time.Sleep(59 * time.Second) // the poll under way is answered, and renews the lease of a minute once more
		shop.expectOn(t, true, "before the lease ends")
		time.Sleep(21 * time.Second)
		shop.expectOn(t, false, "after it ended")
		time.Sleep(10 * time.Minute)
		s.set(func() {
			if n := len(s.log); n > 200 {
				t.Errorf("%d tries in ten minutes", n)
			}
			s.down = false
		})
		time.Sleep(45 * time.Second)
		shop.expectOn(t, true, "with Sibyl back")
	})
}

// TestSibylHangs ends the lease when it is over, while an answer is waited for.
func TestSibylHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newSibyl(t), newService(t, "shop")
		shop.Span("work")
		defer s.connect(t, shop).Close()
		synctest.Wait()
		s.set(func() { s.hangs = true })
		s.decide(planOf(1, "shop/work")) // answers the request under way, and no other
		time.Sleep(59 * time.Second)
		shop.expectOn(t, true, "before the lease ends")
		time.Sleep(2 * time.Second)
		shop.expectOn(t, false, "after it ended")
	})
}

// TestSibylIsHasty is careful with a server that does not wait.
func TestSibylIsHasty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newSibyl(t), newService(t, "shop")
		shop.Span("work")
		defer s.connect(t, shop).Close()
		s.decide(planOf(1, "shop/work"))
		s.set(func() { s.hasty = true })
		for range 100 {
			time.Sleep(6 * time.Second)
			s.set(func() {
				if len(s.log) > 400 {
					s.hasty = false
				}
			})
		}
		shop.expectOn(t, true, "with every lease renewed")
		s.set(func() {
			if !s.hasty {
				t.Error("the server is asked all the time")
			}
		})
	})
}

// TestSibylForgets registers again with a server that was restarted.
func TestSibylForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newSibyl(t), newService(t, "shop")
		shop.Span("work")
		defer s.connect(t, shop).Close()
		time.Sleep(3 * time.Second)
		s.set(func() {
			if len(s.log) != 4 { // it registers, gets a plan, waits for another, and tells what became of the first
				t.Errorf("the agent begins with %q", s.log)
			}
			clear(s.agents)
			clear(s.pages)
		})
		s.decide(planOf(1, "shop/work"))
		time.Sleep(4 * time.Second)
		shop.expectOn(t, false, "while it is told to wait")
		time.Sleep(2 * time.Second)
		shop.expectOn(t, true, "after a restart")
		s.set(func() {
			if len(s.agents) != 1 || len(s.pages) == 0 {
				t.Errorf("%d agents, %d catalogues", len(s.agents), len(s.pages))
			}
		})
	})
}

// TestSameID runs two agents with one id: both get plans.
func TestSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop, cart := newSibyl(t), newService(t, "shop"), newService(t, "cart")
		shop.Span("work")
		cart.Span("work")
		a, b := s.connect(t, shop), s.connect(t, cart)
		defer a.Close()
		defer b.Close()
		s.decide(planOf(1, "shop/work", "cart/work"))
		time.Sleep(2 * time.Second)
		shop.expectOn(t, true, "the one")
		cart.expectOn(t, true, "the other")
		if a.ID() == b.ID() {
			t.Errorf("both are called %q", a.ID())
		}
	})
}

// TestCatalogueInPages registers more than a page holds, and what shows up later.
func TestCatalogueInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newSibyl(t), newService(t, "shop")
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
					t.Errorf("%d tracepoints of %d arrived, want %d, with the hash", len(got), c.Size, size)
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

// TestOneAgent connects a registry once more, which is refused while it is connected: each agent would undo what the other applies.
func TestOneAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shop := newSibyl(t), newService(t, "shop")
		shop.Span("work")
		s.decide(planOf(1, "shop/work"))
		a := s.connect(t, shop)
		if b, err := shop.Connect(t.Context(), tracepoint.WithEndpoint("http://sibyl")); b != nil || err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("a second agent: %v", err)
		}
		time.Sleep(time.Second)
		shop.expectOn(t, true, "with the first")
		a.Close()
		shop.expectOn(t, false, "when it is closed")
		defer s.connect(t, shop, tracepoint.WithLogger(nil)).Close()
		time.Sleep(time.Second)
		shop.expectOn(t, true, "with the next")
		s.set(func() { s.down = true })
		s.decide(planOf(2, "shop/work"))
		time.Sleep(time.Minute) // what would be logged is not
	})
}

func TestConnectIsRefused(t *testing.T) {
	for _, c := range []struct {
		want    string
		options []tracepoint.Option
	}{
		{"no endpoint", nil},
		{"must be like http", []tracepoint.Option{tracepoint.WithEndpoint("sibyl:8321")}},
		{"service.name", []tracepoint.Option{tracepoint.WithEndpoint("http://sibyl")}},
		{"id", []tracepoint.Option{tracepoint.WithEndpoint("http://sibyl"), tracepoint.WithService("shop"), tracepoint.WithID("a\nb")}},
	} {
		a, err := tracepoint.NewRegistry(tracepoint.UnknownService).Connect(context.Background(), c.options...)
		if a != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}
