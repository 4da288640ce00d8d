package engine_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestIncidents slows down one service of an application after 20 healthy minutes: an incident opens, whose first
// suspect is the service. The request types that it affects are slower or fail more often, and run through the service.
// A restart keeps all of it.
func TestIncidents(t *testing.T) {
	w := newWorld(small(3, sim.CPU), engine.DefaultOptions())
	const healthy = 20 * time.Minute
	w.until(healthy)
	if got := w.core.Incidents(); len(got) > 0 {
		t.Errorf("%d incidents in healthy minutes", len(got))
	}
	w.app.Inject(w.now)
	var x engine.Incident
	for w.now < start.Add(healthy+15*time.Minute) && len(x.Types) == 0 {
		w.play()
		if all := w.core.Incidents(); len(all) > 0 {
			x = all[0]
		}
	}
	if len(x.Types) == 0 {
		t.Fatalf("no incident with a request type: %+v", w.core.Incidents())
	}
	table, service := w.app.Table(), x.Suspects[0].Service
	if got, want := table.Text(service), table.ServiceName(w.app.Target().Operations[0]); got != want {
		t.Errorf("first suspect %s, want %s", got, want)
	}
	last := math.Inf(1)
	for _, a := range x.Types {
		lost := float64(a.Requests) * (max(0, a.Mean-a.Usual) + max(0, a.Failed-a.UsualFailed)*a.Usual)
		if !(a.Mean > a.Usual || a.Failed > a.UsualFailed) || lost > last || a.Requests == 0 {
			t.Errorf("request type %s: %+v, after one that lost %g", a.RequestType, a, last)
		}
		last = lost
		through := false
		for _, n := range w.core.Tree(a.RequestType).Nodes {
			op := table.Operation(n.Op)
			through = through || op.Service == service || table.Operation(op.Target).Service == service
		}
		if !through {
			t.Errorf("request type %s does not run through %s", a.RequestType, table.Text(service))
		}
	}
	restored := engine.NewCore(new(trace.Table), engine.DefaultOptions())
	if err := restored.Restore(w.core.AppendState(nil)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w.core.Incidents(), restored.Incidents()); diff != "" {
		t.Errorf("after a restart (-before +after):\n%s", diff)
	}
}
