package search

import (
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// TestAdaptiveTriesFewProbes: what may be executed anywhere is tried a few at a time while functions divide the region, more where
// requests are few.
func TestAdaptiveTriesFewProbes(t *testing.T) {
	probes := func(functions int, requests float64) int {
		q := &Question{Regions: []Region{{Share: 1}}, Requests: requests}
		for i := range functions + 2*mostProbes {
			c := Candidate{Tracepoint: trace.Symbol(i + 1), Node: int32(i), Parent: -1, End: i + 1, Depth: 1, Mass: 1, Hits: 1, Inside: true}
			if i >= functions {
				c.Node = -1
			}
			q.Candidates = append(q.Candidates, c)
		}
		q.Regions[0].To = len(q.Candidates)
		n := 0
		for _, p := range adaptive(q) {
			if p.Tracepoint >= trace.Symbol(functions+1) {
				n++
			}
		}
		return n
	}
	if few, most := probes(10, 100), probes(0, 100); few != fewProbes || most != mostProbes {
		t.Errorf("%d probes beside functions, %d without any; want %d and %d", few, most, fewProbes, mostProbes)
	}
	if slow := probes(10, minRequests/2); slow != 2*fewProbes {
		t.Errorf("%d probes where a step takes two epochs, want %d", slow, 2*fewProbes)
	}
}
