package engine

import (
	"bytes"
	"encoding/gob"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// withGob returns the state of c in version coreWithGob, as far as a core of that version would be read.
func withGob(t *testing.T, c *Core) []byte {
	t.Helper()
	var saved bytes.Buffer
	if err := gob.NewEncoder(&saved).Encode(c.saved()); err != nil {
		t.Fatal(err)
	}
	b := []byte{coreWithGob}
	b = codec.AppendSection(b, c.table.AppendBinary)
	b = codec.AppendSection(b, func(b []byte) []byte { return append(b, "types of another version"...) })
	b = codec.AppendSection(b, func(b []byte) []byte { return append(b, "groups of another version"...) })
	b = codec.AppendSection(b, func(b []byte) []byte { return AppendSearchState(b, &c.state) })
	b = codec.AppendSection(b, func(b []byte) []byte { return b })
	return codec.AppendSection(b, func(b []byte) []byte { return append(b, saved.Bytes()...) })
}

// A state of the previous version keeps what people and agents said. Groups are learned anew, and the investigations of
// their problems end.
func TestRestorePreviousVersion(t *testing.T) {
	options := DefaultOptions()
	options.Learning = time.Minute
	app := sim.New(sim.Config{Seed: 0, Fault: sim.Host, Tracepoints: 100, Rate: 20})
	c := NewCore(app.Table(), options)
	now := trace.Nanos(1_700_000_000_000_000_000)
	c.Announce(now, app.Catalogue())
	play := func(c *Core) {
		for x := range app.Requests(now, now.Add(options.Epoch), nil) {
			c.Ingest(x)
		}
		now = now.Add(options.Epoch)
		c.Epoch(now)
	}
	for epoch := 0; len(c.problems) == 0; epoch++ {
		if epoch > 60 {
			t.Fatal("there is no problem")
		}
		if epoch == 12 {
			app.Inject(now)
		}
		play(c)
	}
	pinned := app.Catalogue()[0].ID
	c.Apply(&Change{Override: &search.Override{Tracepoint: pinned, Kind: search.Pin}})
	c.Epoch(now)

	restored := NewCore(&trace.Table{}, options)
	if err := restored.Restore(withGob(t, c)); err != nil {
		t.Fatal(err)
	}
	if restored.Learned() || !restored.Relearning() || len(restored.problems) > 0 {
		t.Errorf("learned %v, relearning %v, %d problems", restored.Learned(), restored.Relearning(), len(restored.problems))
	}
	if restored.Plan().Version < c.Plan().Version {
		t.Errorf("plan %d after plan %d", restored.Plan().Version, c.Plan().Version)
	}
	if len(restored.state.Overrides) != 1 || len(restored.feedback.services) != len(c.feedback.services) {
		t.Errorf("overrides %v, %d services", restored.state.Overrides, len(restored.feedback.services))
	}
	again := NewCore(&trace.Table{}, options) // a restart while it learns
	if err := again.Restore(restored.AppendState(nil)); err != nil || !again.Relearning() {
		t.Errorf("relearning %v: %v", again.Relearning(), err)
	}
	for range 8 {
		play(restored)
	}
	if !restored.Learned() || restored.Relearning() {
		t.Errorf("learned %v, relearning %v", restored.Learned(), restored.Relearning())
	}
	for _, v := range restored.state.Investigations {
		if v.Status.Active() && v.Opened < now.Add(-8*options.Epoch) {
			t.Errorf("the investigation of problem %v is %v", v.Problem, v.Status)
		}
	}
}
