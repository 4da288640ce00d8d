package cct

import (
	"math"
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// References hold times of healthy Explore requests only, by the contexts that appear under a plan.
func TestReferences(t *testing.T) {
	const a, b, c = 1, 2, 3
	var builder Builder
	catalogue := NewCatalogue([]Tracepoint{{ID: a, Op: a, Baseline: true}}, nil)
	root := trace.Context(0).Child(a)
	observe := func(unhealthy bool, nanos int64) {
		builder.Observe(Observation{Seen: 1, Explore: true, Unhealthy: unhealthy, Contexts: []ContextCount{
			{Context: root, Op: a, Count: 1},
			{Context: root.Child(b), Parent: root, Op: b, Tracepoint: b, Count: 1, Nanos: 2 * nanos},
			{Context: root.Child(b).Child(c), Parent: root.Child(b), Op: c, Tracepoint: c, Count: 1, Nanos: nanos},
		}})
	}
	for i := range minReference {
		if r := builder.Build(catalogue, nil).References([]trace.Symbol{c}); len(r) > 0 {
			t.Fatalf("a reference after %d requests", i)
		}
		observe(false, int64(100+i%2))
		observe(true, 1000)
	}
	r := builder.Build(catalogue, nil).References([]trace.Symbol{c})
	if got, want := r[root.Child(c)], 100.5; len(r) != 1 || got.Mean != want || math.Abs(got.Error-0.151) > 0.001 {
		t.Fatalf("%v, want a mean of %g under the context without disabled tracepoints", r, want)
	}
}
