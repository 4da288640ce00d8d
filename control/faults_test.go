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

// link is a network between agents and a control plane.
type link struct {
	mu   sync.Mutex // guards all below
	to   http.Handler
	cut  bool
	ends []context.CancelFunc // of what is on its way
}

var errCut = errors.New("the network is cut")

// RoundTrip implements http.RoundTripper.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	if l.cut {
		l.mu.Unlock()
		return nil, errCut
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	l.ends = append(l.ends, cancel)
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
	if l.cut {
		return nil, errCut
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return a.Result(), nil
}

// set cuts the network, or mends it.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for _, end := range l.ends {
		end()
	}
	l.ends = nil
}

// replace puts another control plane at the end of the network.
func (l *link) replace(to http.Handler) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// program is a process with tracepoints, of which the Go library takes care.
type program struct {
	*tracepoint.Registry
	agent *tracepoint.Agent
}

func start(t *testing.T, l *link, options ...tracepoint.Option) *program {
	t.Helper()
	p := &program{Registry: tracepoint.NewRegistry("shop")}
	for _, name := range []string{"price", "stock", "pay"} {
		p.Span(name)
	}
	var err error
	options = append(options, tracepoint.WithEndpoint("http://sibyl.invalid"), tracepoint.WithHTTPClient(&http.Client{Transport: l}))
	if p.agent, err = p.Connect(t.Context(), options...); err != nil {
		t.Fatal(err)
	}
	return p
}

// on returns how many tracepoints of the plan are on.
func (p *program) on() int {
	n := 0
	for _, o := range p.Outcomes() {
		if o.State == protocol.Applied {
			n++
		}
	}
	return n
}

// current returns how many agents applied the present plan, of how many.
func (w *world) current() (current, all int) {
	s := w.Summary()
	return s.Current, s.Agents
}

// While the network is cut an agent keeps what is on until its lease ends, and not longer; when the network is back it gets the present plan.
func TestNetworkCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &link{to: w.http}
		p := start(t, l)
		defer p.agent.Close()
		time.Sleep(5 * time.Second)
		ids := p.Catalogue()
		w.on(ids[0].ID)
		time.Sleep(2 * time.Second)
		if n, all := w.current(); p.on() != 1 || n != 1 || all != 1 {
			t.Fatalf("%d on, %d of %d agents current", p.on(), n, all)
		}
		l.set(true)
		time.Sleep(55 * time.Second) // it heard something at most 30 s before
		if p.on() != 1 {
			t.Error("what is on went off before the lease ended")
		}
		time.Sleep(40 * time.Second)
		if p.on() != 0 {
			t.Error("what is on stayed on when the lease had ended")
		}
		w.on(ids[0].ID, ids[1].ID)
		time.Sleep(4 * time.Minute)
		if _, all := w.current(); all != 0 {
			t.Errorf("%d agents are known while the network is cut", all)
		}
		l.set(false)
		time.Sleep(time.Minute)
		if n, all := w.current(); p.on() != 2 || n != 1 || all != 1 {
			t.Errorf("when the network is back: %d on, %d of %d agents current", p.on(), n, all)
		}
	})
}

// A server that is killed and comes back within the lease switches nothing off, and all agents are there again, not all at once.
func TestServerKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 50
		w := newWorld(t)
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
		w.on(programs[0].Catalogue()[0].ID)
		time.Sleep(2 * time.Second)
		if n, _ := w.current(); n != agents {
			t.Fatalf("%d agents are current", n)
		}
		l.set(true)
		time.Sleep(10 * time.Second)
		again := newWorld(t, "shop") // it knows nothing but the plan, which the engine kept
		again.plan.Version = w.plan.Version - 1
		again.on(programs[0].Catalogue()[0].ID)
		l.replace(again.http)
		l.set(false)
		known := 0
		for second := range 75 {
			time.Sleep(time.Second)
			_, all := again.current() // which of them are current is told by statuses, every ten seconds
			if n := all - known; n > agents/2 {
				t.Errorf("%d of %d agents come back in the same second, the %dth", n, agents, second)
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
			t.Errorf("the engine knows %s", got)
		}
	})
}

// An agent that is killed is shown as lost, then forgotten. Nobody waits for it, and what comes in its place gets the plan.
func TestAgentKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &link{to: w.http}
		p := start(t, l, tracepoint.WithID("pod-1"))
		time.Sleep(5 * time.Second)
		w.on(p.Catalogue()[0].ID)
		time.Sleep(time.Second)
		p.agent.Close()
		next := start(t, l, tracepoint.WithID("pod-1")) // at once, with the same id
		defer next.agent.Close()
		time.Sleep(20 * time.Second)
		if next.on() != 1 {
			t.Errorf("its successor has %d tracepoints on", next.on())
		}
		time.Sleep(4 * time.Minute)
		if all := w.Agents(); len(all) != 1 || all[0].State != control.Current {
			t.Errorf("%+v", all)
		}
	})
}

// Two programs that were given the same id both work: one of them takes another id, and neither loses its plan again and again.
func TestTwoProgramsWithOneID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := &link{to: w.http}
		a, b := start(t, l, tracepoint.WithID("same")), start(t, l, tracepoint.WithID("same"))
		defer a.agent.Close()
		defer b.agent.Close()
		time.Sleep(10 * time.Second)
		w.on(a.Catalogue()[0].ID)
		for range 120 {
			time.Sleep(time.Second)
			if a.on() != 1 || b.on() != 1 {
				t.Fatalf("%d and %d tracepoints are on", a.on(), b.on())
			}
		}
		if n, all := w.current(); n != 2 || all != 2 || a.agent.ID() == b.agent.ID() {
			t.Errorf("%d of %d agents are current: %s and %s", n, all, a.agent.ID(), b.agent.ID())
		}
		if n := w.Counts().Conflicts.Load(); n == 0 || n > 5 {
			t.Errorf("%d conflicts are counted", n)
		}
	})
}
