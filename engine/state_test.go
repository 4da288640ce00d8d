package engine_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/trace"
)

// again returns a core restored from the state of w.core and checks that its state is the same. The names of the
// application arrive again, as they do in the service.
func (w *world) again(t *testing.T, options engine.Options) *engine.Core {
	t.Helper()
	core := engine.NewCore(&trace.Table{}, options)
	state := w.core.AppendState(nil)
	if err := core.Restore(state); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(core.AppendState(nil), state) {
		t.Fatalf("%v: the restored state differs", w.now.Sub(start))
	}
	core.View().Table.Merge(w.app.Table())
	return core
}

// A core that is saved and restored after every other epoch makes the same decisions and reaches the same state as one
// that isn't. This is true while it learns, watches and investigates.
func TestStateSurvives(t *testing.T) {
	options := engine.DefaultOptions()
	options.Learning, options.Strategy = time.Minute, "covariance"
	config := small(3, sim.SlowPath)
	whole, broken := newWorld(config, options), newWorld(config, options)
	for epoch := range 40 {
		if epoch == 12 {
			whole.app.Inject(whole.now)
			broken.app.Inject(broken.now)
		}
		whole.play()
		broken.play()
		if epoch%2 == 0 {
			broken.core = broken.again(t, options)
		}
	}
	if len(whole.log) == 0 {
		t.Fatal("no decisions")
	}
	for i := range max(len(whole.log), len(broken.log)) {
		if i >= len(broken.log) || i >= len(whole.log) || whole.log[i] != broken.log[i] {
			t.Fatalf("decision %d of %d and %d differs", i, len(whole.log), len(broken.log))
		}
	}
	if !bytes.Equal(whole.core.AppendState(nil), broken.core.AppendState(nil)) {
		t.Error("the states differ in the end")
	}
}
