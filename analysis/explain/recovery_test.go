package explain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/internal/testkit/tracetext"
	"github.com/sibyl-trace/sibyl/trace"
)

func TestRecoveries(t *testing.T) {
	table := &trace.Table{}
	var r *Recoveries
	var s critpath.Simulation
	var o observation.Observation
	var observer observation.Observer
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		db := 10 + rng.IntN(10)
		if rng.IntN(10) == 0 {
			db = 110 // slow: the other branch ends at 60
		}
		text := fmt.Sprintf("a shop GET server 0..%d\n  b shop db client 5..%d\n  c shop cache client 5..60\n",
			max(60, 5+db)+5, 5+db)
		tr, err := tracetext.Parse(text, table)
		if err != nil {
			t.Fatal(err)
		}
		p := critpath.NewExtractor(critpath.DefaultOptions()).Extract(tr)
		if r == nil {
			context := trace.Context(0).Child(tr.Spans[0].Op).Child(tr.Spans[1].Op)
			r = NewRecoveries(group.LevelGroup, []observation.EdgeNanos{{Edge: trace.EdgeOf(context, 0, 0), Nanos: 15}})
		}
		s.Capture(p, 0)
		observer.Observe(p, 0, &o)
		r.Add(&o, &s)
	}
	got := r.All()[0]
	// A slow request takes 120. If the db takes 15, the request takes 65, because of the cache, so it saves 55, not 95.
	if got.P99 != 55 || got.Mean.Value < 3 || got.Mean.Value > 8 {
		t.Errorf("P99 %v, mean %v, want 55ns and about 5.5", got.P99, got.Mean)
	}
}

// The reference level of an edge is its healthy mean, or its median. Edges at their level are omitted.
func TestReferenceLevels(t *testing.T) {
	w := newWorld(1)
	for i := range 11 {
		w.request(1, float64(10+i), []float64{0, 5}[i%2])
	}
	p := &detect.Problem{Level: group.LevelGroup, Edges: []group.EdgeShare{
		{Edge: 0, Mean: 9, Excess: 3},
		{Edge: w.edgeGet, Mean: 8e6, Excess: 3e6},
		{Edge: w.edgeDB, Mean: 16e6, Excess: math.NaN()},
		{Edge: w.edgeC, Mean: 2.3e6, Excess: math.NaN()},
		{Edge: 7, Mean: 4, Excess: -1},
		{Edge: 8, Mean: 4, Excess: 5},
	}}
	want := []observation.EdgeNanos{
		{Edge: w.edgeGet, Nanos: 5e6},
		{Edge: w.edgeDB, Nanos: 15e6},
		{Edge: w.edgeC},
		{Edge: 8},
	}
	if got := ReferenceLevels(p, w.requests); !slices.Equal(got, want) {
		t.Errorf("ReferenceLevels() = %v, want %v", got, want)
	}
}
