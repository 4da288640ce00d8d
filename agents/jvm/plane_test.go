package jvm_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// plane is a service that sends one plan to all agents, and can misbehave.
type plane struct {
	*httptest.Server
	mu       sync.Mutex
	plan     protocol.Plan
	changed  chan struct{}              // closed when the plan changes
	statuses map[string]protocol.Status // the latest, by session
	answer   http.HandlerFunc           // if not nil, answers all requests
	seconds  int                        // for which stacks are wanted
	stacks   []protocol.Stacks          // in order of arrival
}

// newPlane starts a service whose plan has the given lease and no tracepoints.
func newPlane(t testing.TB, lease time.Duration) *plane {
	t.Helper()
	p := &plane{changed: make(chan struct{}), statuses: make(map[string]protocol.Status)}
	p.plan = protocol.Plan{Protocol: protocol.Version, LeaseSeconds: int(lease.Seconds())}
	p.enable()
	m := http.NewServeMux()
	m.HandleFunc("PUT /agent/v1/agents/{id}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"protocol":1,"missing":[]}`))
	})
	m.HandleFunc("GET /agent/v1/agents/{id}/plan", p.serve)
	m.HandleFunc("POST /agent/v1/agents/{id}/status", p.status)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		p.mu.Lock()
		answer := p.answer
		p.mu.Unlock()
		if answer != nil {
			answer(w, q)
			return
		}
		m.ServeHTTP(w, q)
	}))
	t.Cleanup(p.Server.Close)
	t.Cleanup(p.CloseClientConnections) // first: pending requests would block Close
	return p
}

// misbehave makes f answer all requests. If f is nil, the service works again.
func (p *plane) misbehave(f http.HandlerFunc) {
	p.mu.Lock()
	p.answer = f
	p.mu.Unlock()
	p.CloseClientConnections()
}

// enable makes the plan enable tracepoints for all requests.
func (p *plane) enable(ids ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(ids)
	arm := protocol.Arm{Name: "a", Share: 1, Tracepoints: []protocol.Enabled{}}
	for _, id := range ids {
		arm.Tracepoints = append(arm.Tracepoints, protocol.Enabled{ID: id, Rate: 1})
	}
	p.plan.Version++
	p.plan.Arms = []protocol.Arm{arm}
	p.plan.Hash = protocol.HashPlan(&p.plan)
	close(p.changed)
	p.changed = make(chan struct{})
}

// current returns the plan, and a channel that is closed when it changes.
func (p *plane) current() (protocol.Plan, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plan, p.changed
}

func (p *plane) serve(w http.ResponseWriter, q *http.Request) {
	plan, changed := p.current()
	if strings.Trim(q.Header.Get("If-None-Match"), `"`) == plan.Hash {
		wait, err := time.ParseDuration(q.URL.Query().Get("wait"))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		select {
		case <-changed:
			plan, _ = p.current()
		case <-time.After(wait):
			w.WriteHeader(http.StatusNotModified)
			return
		case <-q.Context().Done():
			return
		}
	}
	_ = json.NewEncoder(w).Encode(plan)
}

func (p *plane) status(w http.ResponseWriter, q *http.Request) {
	var s protocol.Status
	if err := json.NewDecoder(gunzipped(q)).Decode(&s); err != nil || s.Validate() != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	p.mu.Lock()
	p.statuses[s.Session] = s
	p.stacks = append(p.stacks, s.Stacks...)
	seconds := p.seconds
	p.mu.Unlock()
	_ = json.NewEncoder(w).Encode(protocol.StatusAnswer{StackSeconds: seconds})
}

// wantStacks makes the service ask for stacks for the given number of seconds, with each answer to a status.
func (p *plane) wantStacks(seconds int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seconds = seconds
}

// stacksOf returns the first stacks of an operation, or nil if there are none.
func (p *plane) stacksOf(operation string) *protocol.Stacks {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.stacks {
		if p.stacks[i].Operation == operation {
			return &p.stacks[i]
		}
	}
	return nil
}

// applied returns the number of tracepoints of the plan that agents report as applied.
func (p *plane) applied() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	planned := make(map[string]bool)
	for _, e := range p.plan.Arms[0].Tracepoints {
		planned[e.ID] = true
	}
	for _, s := range p.statuses {
		for _, o := range s.Tracepoints {
			if s.Version == p.plan.Version && planned[o.ID] && o.State == protocol.Applied {
				n++
			}
		}
	}
	return n
}

// allCurrent reports whether the last status of each agent is about the current plan.
func (p *plane) allCurrent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.statuses {
		if s.Version != p.plan.Version {
			return false
		}
	}
	return true
}
