package control_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint"
	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/control"
)

// link is a network between agents and a control plane that can fail.
type link struct {
	mu      sync.Mutex // guards the fields below
	to      http.Handler
	down    bool
	cancels []context.CancelFunc // cancel the requests in progress
}

var errDown = errors.New("the network is down")

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	if l.down {
		l.mu.Unlock()
		return nil, errDown
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	l.cancels = append(l.cancels, cancel)
	to := l.to
	l.mu.Unlock()
	in := r.Clone(ctx)
	if in.Body == nil {
		in.Body = io.NopCloser(http.NoBody)
	}
	a := httptest.NewRecorder()
	to.ServeHTTP(a, in)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errDown
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return a.Result(), nil
}

// setDown interrupts or restores the network. It cancels requests in progress.
func (l *link) setDown(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for _, cancel := range l.cancels {
		cancel()
	}
	l.cancels = nil
}

// replace connects the network to another control plane.
func (l *link) replace(to http.Handler) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// program is a process with tracepoints and the agent of the Go library.
type program struct {
	registry *tracepoint.Registry
	agent    *tracepoint.Agent
}

func start(t *testing.T, l *link, options ...tracepoint.Option) *program {
	t.Helper()
	p := &program{registry: tracepoint.NewRegistry("shop")}
	for _, name := range []string{"price", "stock", "pay"} {
		p.registry.Span(name)
	}
	var err error
	options = append(options, tracepoint.WithEndpoint("http://sibyl.invalid"),
		tracepoint.WithHTTPClient(&http.Client{Transport: l}))
	if p.agent, err = p.registry.Connect(t.Context(), options...); err != nil {
		t.Fatal(err)
	}
	return p
}

// on returns the number of tracepoints that are applied.
func (p *program) on() int {
	n := 0
	for _, o := range p.registry.Outcomes() {
		if o.State == protocol.Applied {
			n++
		}
	}
	return n
}

// current returns the number of agents that applied the current plan, and the number of all agents.
func (w *harness) current() (current, all int) {
	s := w.plane.Summary()
	return s.Current, s.Agents
}

// While the network is down, an agent keeps its tracepoints on until its lease ends. Afterwards it receives the current
// plan.
func TestNetworkDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		l := &link{to: w.http}
		p := start(t, l)
		defer p.agent.Close()
		time.Sleep(5 * time.Second)
		ids := p.registry.Catalogue()
		w.on(ids[0].ID)
		time.Sleep(2 * time.Second)
		if n, all := w.current(); p.on() != 1 || n != 1 || all != 1 {
			t.Fatalf("%d on, %d of %d agents current", p.on(), n, all)
		}
		l.setDown(true)
		time.Sleep(55 * time.Second) // the last answer was at most 30 s earlier
		if p.on() != 1 {
			t.Error("the tracepoint was disabled before the lease ended")
		}
		time.Sleep(40 * time.Second)
		if p.on() != 0 {
			t.Error("the tracepoint stayed on after the lease")
		}
		w.on(ids[0].ID, ids[1].ID)
		time.Sleep(4 * time.Minute)
		if _, all := w.current(); all != 0 {
			t.Errorf("%d agents are known while the network is down, want none", all)
		}
		l.setDown(false)
		time.Sleep(time.Minute)
		if n, all := w.current(); p.on() != 2 || n != 1 || all != 1 {
			t.Errorf("after the failure: %d on, %d of %d agents current", p.on(), n, all)
		}
	})
}

// If the server is killed and restarted within the lease, no tracepoint is disabled, and the agents return spread over
// time.
func TestServerKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 50
		w := newHarness(t)
		l := &link{to: w.http}
		var programs []*program
		for range agents {
			programs = append(programs, start(t, l))
		}
		defer func() {
			for _, p := range programs {
				p.agent.Close()
			}
		}()
		time.Sleep(5 * time.Second)
		w.on(programs[0].registry.Catalogue()[0].ID)
		time.Sleep(2 * time.Second)
		if n, _ := w.current(); n != agents {
			t.Fatalf("%d agents are current", n)
		}
		l.setDown(true)
		time.Sleep(10 * time.Second)
		again := newHarness(t, "shop") // its only state is the plan, which the engine saved
		again.plan.Version = w.plan.Version - 1
		again.on(programs[0].registry.Catalogue()[0].ID)
		l.replace(again.http)
		l.setDown(false)
		known := 0
		for second := range 75 {
			time.Sleep(time.Second)
			_, all := again.current() // statuses, sent every ten seconds, show who is current
			if n := all - known; n > agents/2 {
				t.Errorf("%d of %d agents return in second %d", n, agents, second)
			}
			known = all
			for i, p := range programs {
				if p.on() != 1 {
					t.Fatalf("after %d s agent %d has %d tracepoints on", second, i, p.on())
				}
			}
		}
		if n, all := again.current(); n != agents || all != agents {
			t.Errorf("%d of %d agents are current", n, all)
		}
		time.Sleep(2 * time.Second)
		if got := again.engine.catalogues(); got != "map[shop:3]" {
			t.Errorf("catalogues in the engine: %s", got)
		}
	})
}

// A program that replaces a killed one, with the same ID, receives the plan at once. The killed program's agent isn't
// left behind.
func TestAgentKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		l := &link{to: w.http}
		p := start(t, l, tracepoint.WithID("pod-1"))
		time.Sleep(5 * time.Second)
		w.on(p.registry.Catalogue()[0].ID)
		time.Sleep(time.Second)
		p.agent.Close()
		next := start(t, l, tracepoint.WithID("pod-1"))
		defer next.agent.Close()
		time.Sleep(20 * time.Second)
		if next.on() != 1 {
			t.Errorf("%d tracepoints are on in the new program, want 1", next.on())
		}
		time.Sleep(4 * time.Minute)
		if all := w.plane.Agents(); len(all) != 1 || all[0].State != control.Current {
			t.Errorf("%+v", all)
		}
	})
}

// If two programs are configured with the same ID, one chooses another ID, and both keep their plans.
func TestTwoProgramsWithOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		l := &link{to: w.http}
		a, b := start(t, l, tracepoint.WithID("same")), start(t, l, tracepoint.WithID("same"))
		defer a.agent.Close()
		defer b.agent.Close()
		time.Sleep(10 * time.Second)
		w.on(a.registry.Catalogue()[0].ID)
		for range 120 {
			time.Sleep(time.Second)
			if a.on() != 1 || b.on() != 1 {
				t.Fatalf("%d and %d tracepoints are on", a.on(), b.on())
			}
		}
		if n, all := w.current(); n != 2 || all != 2 || a.agent.ID() == b.agent.ID() {
			t.Errorf("%d of %d agents are current: %s and %s", n, all, a.agent.ID(), b.agent.ID())
		}
		if n := w.plane.Counts().Conflicts.Load(); n == 0 || n > 5 {
			t.Errorf("%d conflicts, want 1 to 5", n)
		}
	})
}
