package api

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/search"
)

// scenario is the starting state of many tests. It is played once. Each test gets a copy that it can continue and
// change.
type scenario struct {
	play func(testing.TB) *harness

	once   sync.Once
	played *harness          // nil if it couldn't be played
	state  []byte            // of its core
	files  map[string][]byte // of its store
}

// record plays the scenario.
func (s *scenario) record(t testing.TB) {
	t.Helper()
	w := s.play(t)
	dir := filepath.Join(t.TempDir(), "backup")
	if err := w.store.Backup(dir); err != nil {
		t.Fatal(err)
	}
	s.files = make(map[string][]byte)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			s.files[name], err = os.ReadFile(filepath.Join(dir, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.state, s.played = w.core.AppendState(nil), w
}

// copy returns a harness in the state of the scenario. It doesn't have the earlier events.
func (s *scenario) copy(t testing.TB) *harness {
	t.Helper()
	s.once.Do(func() { s.record(t) })
	p := s.played
	if p == nil {
		t.Fatal("the scenario could not be played")
	}
	dir := t.TempDir()
	for name, data := range s.files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := newHarnessIn(t, openStore(t, dir), p.fault, p.change...)
	w.core = engine.NewCore(w.app.Table(), *w.core.View().Options)
	if err := w.core.Restore(s.state); err != nil {
		t.Fatal(err)
	}
	w.now, w.tracepoint = p.now, p.tracepoint
	if p.injected > 0 {
		w.inject(p.injected)
	}
	w.group, w.exemplar, w.decided = p.group, p.exemplar, p.decided
	w.handlers.PublishEpoch(w.core.View(), nil) // the first epoch of a run has no events
	return w
}

var troubled = scenario{play: playTroubled}

// newTroubled returns a harness with deploys of two services, and a problem whose investigation has evidence.
func newTroubled(t testing.TB) *harness {
	t.Helper()
	return troubled.copy(t)
}

func playTroubled(t testing.TB) *harness {
	t.Helper()
	w := newHarness(t)
	w.observeVersion("cart", "1.4", w.now)
	w.observeVersion("bank", "7", w.now)
	w.play(t, 8, w.learned)
	w.observeVersion("bank", "8", w.now.Add(-5*time.Second))
	w.observeVersion("cart", "1.5", w.now)
	w.inject(w.now)
	w.play(t, 40, func() bool {
		evidence, requested := false, false // for different problems, which are searched one after the other
		for _, p := range w.problems() {
			if v := w.core.View().Searches.Investigation(search.OfProblem(p.ID)); v != nil {
				evidence, requested = evidence || len(v.Evidence) > 0, requested || len(v.Requested) > 0
			}
		}
		return evidence && requested
	})
	w.assignExemplar(t, w.problem().Group)
	w.tracepoint = w.core.View().Searches.Plan().Leases[0].Tracepoint
	return w
}

var withIncident = scenario{play: playIncident}

// newIncident returns a harness with an open incident that has problems.
func newIncident(t testing.TB) *harness {
	t.Helper()
	return withIncident.copy(t)
}

func playIncident(t testing.TB) *harness {
	t.Helper()
	w := newHarnessOf(t, sim.CPU)
	w.openIncident(t, func(x *engine.Incident) bool { return len(x.Problems) > 0 })
	return w
}

// newMeasured returns a harness with objectives and with an open incident of a service that has an owner.
func newMeasured(t *testing.T) *harness {
	t.Helper()
	w := newIncident(t)
	options := *w.core.View().Options
	options.Objectives = []incident.Objective{
		{Name: "Carts", Entry: "cart", Below: time.Second, Percentile: 99},
		{Entry: "cart", Errors: 0.01},
	}
	settings := options.Settings()
	if !w.core.Apply(&engine.Change{Settings: &settings}) {
		t.Fatal("the settings were refused")
	}
	w.epoch(t)
	return w
}
