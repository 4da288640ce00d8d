package search

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestAdaptiveTriesFewUnanchored checks that unanchored candidates are tried a few at a time while functions divide the
// region, and more at a time if requests are few. Without functions, half of them are tried at once if there are many.
func TestAdaptiveTriesFewUnanchored(t *testing.T) {
	probes := func(functions, unanchored int, requests float64) int {
		q := &Question{Regions: []Region{{Share: 1}}, Requests: requests}
		for i := range functions + unanchored {
			c := Candidate{
				Tracepoint:  trace.Symbol(i + 1),
				Node:        int32(i),
				Parent:      -1,
				End:         i + 1,
				Depth:       1,
				PriorWeight: 1,
				Hits:        1,
				Inside:      true,
			}
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
	const some = 2 * maxUnanchored
	if few, most := probes(10, some, 100), probes(0, some, 100); few != fewUnanchored || most != maxUnanchored {
		t.Errorf("%d probes beside functions, %d without any; want %d and %d", few, most, fewUnanchored, maxUnanchored)
	}
	if half, most := probes(0, 2*some, 100), probes(0, 1000, 100); half != some || most != maxSplit {
		t.Errorf("%d of %d and %d of 1000 probes at once, want %d and %d", half, 2*some, most, some, maxSplit)
	}
	if slow := probes(10, some, minRequests/2); slow != 2*fewUnanchored {
		t.Errorf("%d probes where a step takes two epochs, want %d", slow, 2*fewUnanchored)
	}
}

// TestCovariance checks that tracepoints common to two operations whose edges vary together are picked. Tracepoints
// common to two other operations, or in one operation only, aren't.
func TestCovariance(t *testing.T) {
	edges := []*group.EdgeShare{{Edge: 1}, {Edge: 2}, {Edge: 3}}
	q := &Question{Pairs: []detect.PairShare{{A: 1, B: 3, Share: 0.4}}}
	for r, tracepoints := range [][]trace.Symbol{{10, 11, 12}, {11, 13}, {12, 13, 14}} {
		q.Regions = append(q.Regions,
			Region{Share: 1, Edges: edges[r : r+1], From: len(q.Candidates), To: len(q.Candidates) + len(tracepoints)})
		for _, tp := range tracepoints {
			q.Candidates = append(q.Candidates, Candidate{
				Tracepoint: tp,
				Region:     r,
				Parent:     -1,
				End:        len(q.Candidates) + 1,
				Depth:      1,
				Inside:     true,
			})
		}
	}
	if picks := covariance(q); len(picks) != 1 || picks[0].Tracepoint != 12 || picks[0].Score != 0.4 {
		t.Errorf("picks %+v, want tracepoint 12 with a score of 0.4", picks)
	}
	q.Pairs = nil
	if picks := covariance(q); len(picks) < 3 {
		t.Errorf("without pairs %d picks, want all children of the best location", len(picks))
	}
}
