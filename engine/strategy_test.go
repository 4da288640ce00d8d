package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// troubled returns a world with an open problem that is being investigated with strategy.
func troubled(t *testing.T, strategy string) (*world, engine.Options) {
	t.Helper()
	options := engine.DefaultOptions()
	options.Learning, options.Strategy = time.Minute, strategy
	w := newWorld(small(3, sim.SlowPath), options)
	w.until(2 * time.Minute)
	w.app.Inject(w.now)
	for range 12 {
		if len(w.play()) > 0 {
			return w, options
		}
	}
	t.Fatal("no problem was raised")
	return nil, options
}

// TestPairsAreKeptForCovarianceOnly switches the strategy at a restart, in both directions.
func TestPairsAreKeptForCovarianceOnly(t *testing.T) {
	for from, to := range map[string]string{"adaptive": "covariance", "covariance": "adaptive"} {
		w, options := troubled(t, from)
		if kept := engine.PairStatistics(w.core) > 0; kept != (from == "covariance") {
			t.Errorf("%s: pair statistics are kept: %t", from, kept)
		}
		w.core = w.again(t, options)
		options.Strategy = to
		settings := options.Settings()
		if !w.core.Apply(&engine.Change{Settings: &settings}) {
			t.Fatalf("the strategy does not change from %s to %s", from, to)
		}
		if len(w.play()) == 0 {
			t.Fatal("the problem closed")
		}
		if kept := engine.PairStatistics(w.core) > 0; kept != (to == "covariance") {
			t.Errorf("%s after %s: pair statistics are kept: %t", to, from, kept)
		}
		w.play()
		w.core = w.again(t, options)
		w.play()
		if kept := engine.PairStatistics(w.core) > 0; kept != (to == "covariance") {
			t.Errorf("%s after two restarts: pair statistics are kept: %t", to, kept)
		}
	}
}

// A state with a strategy that only the benchmarks have is refused.
func TestRestoreRefusesARemovedStrategy(t *testing.T) {
	options := engine.DefaultOptions()
	options.Strategy, options.Strategies = "random", []search.Strategy{{Name: "random", Pick: search.Hierarchical}}
	state := newWorld(small(3, sim.None), options).core.AppendState(nil)
	if err := engine.NewCore(&trace.Table{}, options).Restore(state); err != nil {
		t.Errorf("with the yardsticks: %v", err)
	}
	const want = "strategy \"random\" was removed; only `sibylbench localize` still uses it, for comparison: " +
		"choose one of adaptive, binary, covariance, cross-layer, hierarchical"
	err := engine.NewCore(&trace.Table{}, engine.DefaultOptions()).Restore(state)
	if _, ok := errors.AsType[*engine.UnknownStrategyError](err); !ok || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
