package cct

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// TestSetsAreBounded: plans that change with every request do not fill the memory between two calls of Age.
func TestSetsAreBounded(t *testing.T) {
	var b Builder
	for i := range 3 * maxSets {
		b.Observe(Observation{Seen: trace.Nanos(1).Add(time.Duration(i) * time.Second), On: []trace.Symbol{trace.Symbol(i + 1)}})
	}
	if len(b.sets) > 2*maxSets {
		t.Errorf("%d sets are remembered, want at most %d", len(b.sets), 2*maxSets)
	}
}
