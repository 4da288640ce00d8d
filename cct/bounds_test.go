package cct

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// The cost of a tree depends on its own operations, not on the size of the catalogue.
func TestTreesShareTheCatalogue(t *testing.T) {
	allocations := func(tracepoints int) float64 {
		_, list := large(tracepoints)
		catalogue, request := NewCatalogue(list, nil), few()
		return testing.AllocsPerRun(10, func() {
			var b Builder
			b.Observe(request)
			if tree := b.Build(catalogue, nil); tree.Tracepoints != 90 {
				t.Fatalf("%d tracepoints in the tree, want 90", tree.Tracepoints)
			}
		})
	}
	if small, big := allocations(90), allocations(30_000); small != big {
		t.Errorf("a tree takes %g allocations beside a small catalogue, %g beside a large one", small, big)
	}
}

// Plans that change with every request must not fill the memory between two calls of Age.
func TestSetsAreBounded(t *testing.T) {
	var b Builder
	for i := range 3 * maxSets {
		b.Observe(Observation{
			Seen: trace.Nanos(1).Add(time.Duration(i) * time.Second),
			On:   []trace.Symbol{trace.Symbol(i + 1)},
		})
	}
	if len(b.sets) > 2*maxSets {
		t.Errorf("%d sets are remembered, want at most %d", len(b.sets), 2*maxSets)
	}
}
