package control_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// A plane refuses agents beyond its limit, and still serves the agents it knows.
func TestMaxAgents(t *testing.T) {
	p := control.New(&recorder{}, control.Options{
		Lease: 90 * time.Second, MaxAgents: 2, Log: slog.New(slog.DiscardHandler),
	})
	p.Begin(nil)
	list := points("shop", 1)
	register := func(id string) error {
		_, err := p.Register(control.Caller{ID: id}, registration("shop", "1", list, 0))
		return err
	}
	for _, step := range []struct {
		id   string
		want error
	}{{"a", nil}, {"b", nil}, {"c", control.ErrFull}, {"a", nil}, {"b", nil}} {
		if err := register(step.id); !errors.Is(err, step.want) {
			t.Errorf("agent %s: error %v, want %v", step.id, err, step.want)
		}
	}
}

// Agents with one token can't keep out agents with another: of the token with the most agents, the one that has been
// silent for longest makes room.
func TestMaxAgentsOfToken(t *testing.T) {
	var now time.Time
	p := control.New(&recorder{}, control.Options{
		Lease:     90 * time.Second,
		MaxAgents: 4,
		Log:       slog.New(slog.DiscardHandler),
		Clock:     func() time.Time { return now },
	})
	p.Begin(nil)
	list := points("shop", 1)
	register := func(token string, n int) error {
		_, err := p.Register(control.Caller{
			ID: fmt.Sprint(token, n), Principal: token,
		}, registration("shop", "1", list, 0))
		return err
	}
	for i, step := range []struct {
		token string
		want  error
	}{
		{"flood", nil},
		{"flood", nil},
		{"flood", nil},
		{"flood", nil},
		{"flood", control.ErrFull},
		{"honest", nil},
		{"honest", nil},
		{"honest", control.ErrFull},
		{"flood", control.ErrFull},
		{"third", nil},
	} {
		now = now.Add(time.Second)
		if err := register(step.token, i); !errors.Is(err, step.want) {
			t.Errorf("step %d, an agent of %s: error %v, want %v", i, step.token, err, step.want)
		}
	}
	var got []string
	for _, a := range p.Agents() {
		got = append(got, a.ID)
	}
	slices.Sort(got)
	if want := []string{"flood3", "honest5", "honest6", "third9"}; !slices.Equal(got, want) {
		t.Errorf("agents %q, want %q", got, want)
	}
	if n := p.Counts().Displaced.Load(); n != 3 {
		t.Errorf("%d agents made room, want 3", n)
	}
}

// An agent that is refused displaces no agent, neither the former one with its ID nor one of another token.
func TestRefusedAgentDisplacesNone(t *testing.T) {
	var now time.Time
	p := control.New(&recorder{}, control.Options{
		Lease:     90 * time.Second,
		MaxAgents: 3,
		Log:       slog.New(slog.DiscardHandler),
		Clock:     func() time.Time { return now },
	})
	p.Begin(nil)
	for _, id := range []string{"a", "b", "c"} {
		_, err := p.Register(control.Caller{ID: id, Principal: "many"}, registration("shop", "1", points("shop", 1), 0))
		if err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Minute) // any session may take an ID
	limited := []string{"shop"}
	otherHash := registration("shop", "2", points("shop", 2), 0)
	otherHash.Catalogue.Hash = points("shop", 1)[0].ID
	otherSize := registration("shop", "2", points("shop", 1), 0)
	otherSize.Catalogue.Size++
	foreign := registration("shop", "2", points("cart", 1), 0)
	known := registration("shop", "2", points("shop", 1), 0)
	known.Page = nil
	for _, id := range []string{"a", "d"} {
		for _, x := range []struct {
			name string
			r    *protocol.Registration
			want error
		}{
			{"the hash of its tracepoints differs", otherHash, control.ErrPages},
			{"its catalogue has another size", otherSize, control.ErrPages},
			{"it speaks for another service", foreign, control.ErrServices},
		} {
			_, err := p.Register(control.Caller{ID: id, Principal: "for " + id, Services: limited}, x.r)
			if !errors.Is(err, x.want) {
				t.Errorf("%s: error %v, want %v", x.name, err, x.want)
			}
			if n := len(p.Agents()); n != 3 || p.Counts().Displaced.Load() != 0 || p.Agents()[0].Seen.Equal(now) {
				t.Fatalf("%s, ID %s: %d agents are left, want all 3", x.name, id, n)
			}
		}
	}
	if s := p.Summary(); s.Catalogues != 1 || s.Tracepoints != 1 {
		t.Errorf("%d catalogues with %d tracepoints are left, want 1 with 1", s.Catalogues, s.Tracepoints)
	}
	for _, id := range []string{"a", "d"} {
		if _, err := p.Register(control.Caller{ID: id, Principal: "for " + id, Services: limited}, known); err != nil {
			t.Errorf("agent %s: %v", id, err)
		}
	}
	if n := len(p.Agents()); n != 3 || p.Counts().Displaced.Load() != 1 {
		t.Errorf("%d agents, %d displaced, want 3 and 1", n, p.Counts().Displaced.Load())
	}
}

// The failure of a tracepoint that isn't in the agent's catalogue isn't shown.
func TestForeignFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.register("a", "1", "shop", points("shop", 1))
		for id, want := range map[string]string{"other/000000": "", "shop/000000": "shop/000000: failed"} {
			status := protocol.Status{Session: "1", Tracepoints: []protocol.Outcome{{ID: id, State: protocol.Failed}}}
			if err := w.plane.Report(control.Caller{ID: "a"}, &status); err != nil {
				t.Fatal(err)
			}
			if got := w.plane.Agents()[0].Problem; got != want {
				t.Errorf("%s failed: problem %q, want %q", id, got, want)
			}
		}
	})
}

// The plane keeps only identifying attributes of an agent's resource, up to a limit.
func TestShownAttributes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		list := points("shop", 1)
		r := registration("shop", "1", list, 0)
		r.Resource["k8s.pod.name"], r.Resource["process.command_line"] = "shop-7", "--password=secret"
		w.call("PUT", "a", r)
		want := []string{"k8s.pod.name", "service.name"}
		if got := slices.Sorted(maps.Keys(w.plane.Agents()[0].Resource)); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for i := range 60 {
			r.Resource[fmt.Sprintf("service.x%02d", i)] = "y"
		}
		w.call("PUT", "a", r)
		if n := len(w.plane.Agents()[0].Resource); n != 24 {
			t.Errorf("%d attributes, want 24", n)
		}
	})
}

// The summary counts agents by state.
func TestSummary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHarness(t)
		w.register("a", "1", "shop", points("shop", 1))
		w.register("b", "1", "shop", points("shop", 1))
		w.on("shop/000000")
		w.fetch("a", "", "")
		w.report("a")
		s := w.plane.Summary()
		if s.Agents != 2 || s.Current != 1 || s.Behind != 1 || s.Lost != 0 {
			t.Errorf("%+v, want two agents, one of them current and one behind", s)
		}
	})
}

// An agent whose token is limited to services can't speak for other services: neither by its name, nor by its
// tracepoints, nor by their IDs, nor by a catalogue that other agents completed.
func TestLimitedToken(t *testing.T) {
	p := control.New(&recorder{}, control.Options{Lease: 90 * time.Second, Log: slog.New(slog.DiscardHandler)})
	p.Begin(nil)
	limited := func(id string) control.Caller {
		return control.Caller{ID: id, Session: "1", Principal: "b", Services: []string{"cart", "pay-*"}}
	}
	named := func(service, prefix string, n int) []protocol.Tracepoint {
		list := points(service, n)
		for i := range list {
			list[i].ID = prefix + "/" + list[i].ID
		}
		return list
	}
	long := named("shop", "shop", protocol.PageSize+1)
	shop := control.Caller{ID: "shop", Session: "1", Principal: "a"}
	if _, err := p.Register(shop, registration("shop", "1", named("shop", "shop", 3), 0)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		r    *protocol.Registration
		want error
	}{
		{"its own service", registration("cart", "1", named("cart", "cart", 3), 0), nil},
		{"a service with the prefix", registration("pay-eu", "1", named("pay-eu", "pay-eu", 3), 0), nil},
		{"another service without tracepoints", registration("shop", "1", nil, -1), control.ErrServices},
		{"a service without a name", registration("", "1", nil, -1), control.ErrServices},
		{"a service whose name begins like its own", registration("cart2", "1", nil, -1), control.ErrServices},
		{"tracepoints of another service", registration("cart", "1", named("shop", "shop", 2), 0), control.ErrServices},
		{
			"the known catalogue of another service",
			registration("cart", "1", named("shop", "shop", 3), -1),
			control.ErrServices,
		},
		{"IDs of another service", registration("cart", "1", named("cart", "shop", 3), 0), control.ErrServices},
		{"the incomplete catalogue of another service", registration("cart", "1", long, -1), nil},
	} {
		if _, err := p.Register(limited("b"), c.r); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.what, err, c.want)
		}
	}
	if _, err := p.Plan(limited("b"), ""); err != nil { // the catalogue is empty
		t.Error(err)
	}
	for page := range 2 {
		_, err := p.Register(control.Caller{
			ID: "long", Session: "1", Principal: "a",
		}, registration("shop", "1", long, page))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Plan(limited("b"), ""); !errors.Is(err, control.ErrServices) {
		t.Errorf("the plan of the catalogue that others completed: error %v", err)
	}
	status := &protocol.Status{Protocol: protocol.Version, Session: "1"}
	if err := p.Report(limited("b"), status); !errors.Is(err, control.ErrServices) {
		t.Errorf("a report about it: error %v", err)
	}
	if _, err := p.Register(limited("b"), registration("cart", "1", named("cart", "cart", 3), 0)); err != nil {
		t.Errorf("its own catalogue again: %v", err)
	}
}

// Catalogues have a limited number of tracepoints with limited texts. A refused agent displaces no other.
func TestMaxTracepoints(t *testing.T) {
	p := control.New(&recorder{}, control.Options{MaxTracepoints: 10, Log: slog.New(slog.DiscardHandler)})
	p.Begin(nil)
	register := func(service string, list []protocol.Tracepoint) error {
		_, err := p.Register(control.Caller{ID: service}, registration(service, "1", list, 0))
		return err
	}
	wordy := points("wordy", 3)
	for i := range wordy {
		wordy[i].Code = strings.Repeat(string(rune('a'+i)), 1000)
	}
	for _, step := range []struct {
		list []protocol.Tracepoint
		want error
	}{
		{points("cart", 6), nil},
		{points("shop", 5), control.ErrTracepoints},
		{wordy, control.ErrTracepoints},
		{points("shop", 4), nil},
		{points("cart", 6), nil},
	} {
		if err := register(step.list[0].Service, step.list); !errors.Is(err, step.want) {
			t.Errorf("%d tracepoints of %s: error %v, want %v", len(step.list), step.list[0].Service, err, step.want)
		}
	}
	if s := p.Summary(); s.Tracepoints != 10 || s.Agents != 2 || p.Counts().NoRoom.Load() != 2 {
		t.Errorf("%+v, %d refused; want 10 tracepoints of 2 agents, and 2 refused", s, p.Counts().NoRoom.Load())
	}
	status := &protocol.Status{Protocol: protocol.Version, Session: "1"}
	for _, x := range points("cart", 6) {
		status.Tracepoints = append(status.Tracepoints, protocol.Outcome{ID: x.ID, State: protocol.Applied})
	}
	if err := p.Report(control.Caller{ID: "cart"}, status); err != nil {
		t.Error(err)
	}
}

// A message that would never fit into the memory for messages is refused for good.
func TestMaxBuffered(t *testing.T) {
	const most = 1 << 20
	p := control.New(nil, control.Options{MaxBuffered: most, Log: slog.New(slog.DiscardHandler)})
	for size, fits := range map[int]bool{most: true, most + 1: false} {
		r := httptest.NewRequest(http.MethodPut, "/", strings.NewReader(strings.Repeat("x", size)))
		body, done, err := p.Messages.Body(httptest.NewRecorder(), r, protocol.MaxBody)
		refused, _ := errors.AsType[*refusal.Error](err)
		switch {
		case fits && (err != nil || len(body) != size):
			t.Errorf("%d bytes: got %d, error %v", size, len(body), err)
		case !fits && (refused == nil || refused.Reason != refusal.TooLarge):
			t.Errorf("%d bytes: error %v", size, err)
		}
		if done != nil {
			done()
		}
	}
}
