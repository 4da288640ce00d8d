package live

import (
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// shop is a simulated application with agents that follow the service's plan.
type shop struct {
	*running
	dir  string
	app  *sim.App
	plan search.Plan
}

// announced returns the catalogues of app's agents, except the tracepoints that without selects.
func announced(app *sim.App, without func(trace.Symbol) bool) *search.Feedback {
	table, byService := app.Table(), make(map[string][]search.Announced)
	name := func(op trace.Op) (string, trace.Kind) {
		x := table.Operation(op)
		return table.Text(x.Name), x.Kind
	}
	for _, t := range app.Catalogue() {
		if without(t.ID) {
			continue
		}
		a := search.Announced{
			ID:       table.Text(t.ID),
			Parent:   table.Text(t.Parent),
			Layer:    t.Layer,
			Kind:     t.Kind,
			Cost:     t.Cost,
			Bytes:    t.Bytes,
			Baseline: t.Baseline,
		}
		if a.Name, a.Span = name(t.Op); t.Kind == cct.VariablePoint {
			a.Name = a.ID
		}
		if t.Owner != 0 {
			a.Owner, a.OwnerSpan = name(t.Owner)
		}
		service := table.ServiceName(t.Op)
		byService[service] = append(byService[service], a)
	}
	f := &search.Feedback{}
	for service, list := range byService {
		f.Catalogues = append(f.Catalogues, search.Catalogue{Service: service, Tracepoints: list})
	}
	return f
}

func newShop(t *testing.T) *shop {
	t.Helper()
	c := &clock{}
	c.set(start)
	s := &shop{
		dir: t.TempDir(),
		app: sim.New(sim.Config{Seed: 3, Fault: sim.SlowPath, Tracepoints: 100, Rate: 30, Messages: -1}),
	}
	s.running = run(t, s.dir, c, nil)
	s.announce(func(trace.Symbol) bool { return false })
	return s
}

func (s *shop) announce(without func(trace.Symbol) bool) {
	s.t.Helper()
	changed, err := s.Change(s.t.Context(), engine.Change{Feedback: announced(s.app, without)})
	if !changed || err != nil {
		s.t.Fatal(changed, err)
	}
}

// epoch plays one epoch under the plan at its start and returns the investigations at its end.
func (s *shop) epoch() (investigations []search.Investigation) {
	s.t.Helper()
	plan := &sim.Plan{Version: s.plan.Version}
	for i, a := range s.plan.Arms {
		arm := sim.Arm{Name: a.Name, Share: a.Share, On: make(map[trace.Symbol]bool)}
		for _, l := range s.plan.Leases {
			if int(l.Arm) == i {
				arm.On[l.Tracepoint] = true
			}
		}
		plan.Arms = append(plan.Arms, arm)
	}
	var bodies [][]byte
	from := s.clock.at()
	for x := range s.app.Requests(from, from.Add(10*time.Second), plan) {
		body, err := tracegen.Protobuf([]*trace.Trace{x}, s.app.Table())
		if err != nil {
			s.t.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	s.send(bodies)
	s.clock.add(10 * time.Second)
	s.settle()
	s.look(func(core *engine.View) {
		s.plan = *core.Searches.Plan()
		investigations = slices.Clone(core.Searches.State().Investigations)
	})
	return investigations
}

func (s *shop) look(read func(*engine.View)) {
	s.t.Helper()
	if err := s.Ask(s.t.Context(), read); err != nil {
		s.t.Fatal(err)
	}
}

// search plays until tracepoints are enabled, and returns them.
func (s *shop) search() (on map[trace.Symbol]bool) {
	s.t.Helper()
	for epoch := range 60 {
		if epoch == 6 {
			s.app.Inject(s.clock.at())
		}
		s.epoch()
		if len(s.plan.Leases) > 0 {
			on = make(map[trace.Symbol]bool)
			for _, l := range s.plan.Leases {
				on[l.Tracepoint] = true
			}
			return on
		}
	}
	s.t.Fatal("no tracepoint was enabled")
	return nil
}

// finish plays until no tracepoint is enabled, and returns the investigation that ended first.
func (s *shop) finish() search.Investigation {
	s.t.Helper()
	for range 60 {
		all := s.epoch()
		if len(s.plan.Leases) > 0 {
			continue
		}
		for _, v := range all {
			if v.Status >= search.Located {
				return v
			}
		}
	}
	s.t.Fatal("no investigation ended")
	return search.Investigation{}
}

// A service that is killed during an investigation continues it under the same plan and with the same result.
func TestKilledInvestigation(t *testing.T) {
	whole := newShop(t)
	whole.search()
	want := whole.finish()
	whole.end()
	s := newShop(t)
	s.search()
	before := s.plan
	s.dir = s.crash(s.dir)
	s.running = run(t, s.dir, s.clock, nil)
	s.look(func(core *engine.View) {
		if p := core.Searches.Plan(); p.Version != before.Version || !slices.Equal(p.Leases, before.Leases) {
			t.Errorf("plan %d after the kill, want %d", p.Version, before.Version)
		}
	})
	got := s.finish()
	if got.Status != want.Status || got.Reason != want.Reason || got.Epochs != want.Epochs {
		t.Errorf("the investigation ends %v after %d epochs: %s; want %v after %d: %s",
			got.Status, got.Epochs, got.Reason, want.Status, want.Epochs, want.Reason)
	}
	s.end()
}

// Tracepoints that a deployment removes during an investigation are disabled, with the reason, and aren't enabled
// again. The investigation continues with the other tracepoints and ends.
func TestDeploymentInInvestigation(t *testing.T) {
	s := newShop(t)
	taken := s.search()
	s.announce(func(id trace.Symbol) bool { return taken[id] })
	s.epoch()
	check := func() {
		for _, l := range s.plan.Leases {
			if taken[l.Tracepoint] {
				t.Errorf("%s is enabled, but no agent has it", s.app.Table().Text(l.Tracepoint))
			}
		}
	}
	check()
	decisions, err := s.store.Decisions.Between(s.clock.at().Add(-15*time.Second), s.clock.at()+1, 100, true)
	if err != nil {
		t.Fatal(err)
	}
	explained := false
	for _, d := range decisions {
		explained = explained || slices.ContainsFunc(d.Off, func(o search.Off) bool {
			return taken[o.Tracepoint] && o.Reason == search.WhyUnavailable
		})
	}
	if !explained {
		t.Errorf("no decision has the reason: %+v", decisions)
	}
	s.finish()
	check()
	s.end()
}
