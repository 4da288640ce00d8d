package backtest_test

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/testkit/livetest"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracegen"
	"github.com/sibyl-trace/sibyl/trace"
)

// The engine is in the same state as the engine of a service that received each trace when it ended.
func TestAgreesWithService(t *testing.T) {
	const from = trace.Nanos(1_700_000_000_000_000_000)
	app := sim.New(sim.Config{
		Seed:        3,
		Fault:       sim.SlowPath,
		Tracepoints: 100,
		Rate:        30,
		Messages:    -1,
	})
	app.Inject(from.Add(70 * time.Second))
	var traces []*trace.Trace
	for x := range app.Requests(from, from.Add(3*time.Minute), nil) {
		copied := &trace.Trace{ID: x.ID}
		copied.Append(x)
		traces = append(traces, copied)
	}
	slices.SortStableFunc(traces, func(a, b *trace.Trace) int {
		_, x := backtest.Extent(a)
		_, y := backtest.Extent(b)
		return cmp.Compare(x, y)
	})
	o := live.DefaultOptions()
	o.Core.Learning = 30 * time.Second

	recording, err := tracegen.Protobuf(traces, app.Table())
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "traces.pb")
	if err := os.WriteFile(name, recording, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := file.Read(t.Context(), []string{name}, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	timeline := assemble.NewTimeline(assemble.Options{})
	for x, err := range in.All() {
		_, end := backtest.Extent(x)
		if err := errors.Join(err, timeline.Add(end, x)); err != nil {
			t.Fatal(err)
		}
	}
	got := engine.NewCore(in.Table, o.Core)
	p := backtest.NewCorePlayer(got, backtest.Options{Table: in.Table, Core: o.Core, Assembly: o.Assembly})
	for x := range timeline.All() {
		p.Play(x)
	}
	p.Finish()

	_, first := backtest.Extent(traces[0])
	s := livetest.Start(t, o, first)
	for _, x := range traces {
		_, end := backtest.Extent(x)
		s.Send(end, x, app.Table())
	}
	s.Pass(p.Now())
	err = s.Ask(t.Context(), func(want *engine.View) {
		if !want.Progress.Learned() || len(want.Problems.Open()) == 0 {
			t.Errorf("the service has %d problems, want some", len(want.Problems.Open()))
		}
		if want.Ended != got.View().Ended || len(want.Problems.Open()) != len(got.View().Problems.Open()) {
			t.Errorf("epochs ended at %d and %d, %d and %d problems",
				want.Ended, got.View().Ended, len(want.Problems.Open()), len(got.View().Problems.Open()))
		}
	})
	if err != nil {
		t.Error(err)
	}
	if !bytes.Equal(s.Stop(), got.AppendState(nil)) {
		t.Error("the states differ")
	}
}
