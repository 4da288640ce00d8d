package search

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// TestHistoryIsSmoothed: locations of past causes, their siblings and children have larger prior weights. Without
// history all are equal, and none is 0.
func TestHistoryIsSmoothed(t *testing.T) {
	const entry, was, beside, below, far = 1, 2, 3, 4, 5
	root := trace.Context(0).Child(entry)
	weights := func(h cct.History) map[trace.Symbol]float64 {
		var b cct.Builder
		catalogue := cct.NewCatalogue([]cct.Tracepoint{
			{ID: entry, Op: entry, Baseline: true},
			{ID: was, Op: was, Owner: entry},
			{ID: beside, Op: beside, Owner: entry},
			{ID: below, Op: below, Owner: entry, Parent: was},
			{ID: far, Op: far, Owner: entry, Parent: beside},
		}, nil)
		b.Observe(cct.Observation{On: []trace.Symbol{was}, Contexts: []cct.ContextCount{
			{Context: root, Op: entry, Count: 1}, {Context: root.Child(was), Parent: root, Op: was, Tracepoint: was, Count: 1},
		}})
		if h.N > 0 {
			b.Learn(root.Child(was), h)
		}
		p := detect.Problem{Edges: []group.EdgeShare{{Edge: trace.ContextEdge(root), Context: root, Score: 1}}}
		searched, _ := scopesOf(&p, b.Build(catalogue, nil), nil)
		m := make(map[trace.Symbol]float64)
		for _, c := range searched[0].locations[1:] {
			m[c.tp] = c.priorWeight
		}
		return m
	}
	if m := weights(cct.History{}); m[was] != 1 || m[beside] != 1 || m[below] != 1 || m[far] != 1 {
		t.Errorf("without history %v", m)
	}
	if m := weights(cct.HistoryOf(0.9, 0)); m[was] <= m[beside] || m[beside] <= m[far] || m[below] <= m[far] {
		t.Errorf("a cause: %v", m)
	}
	if m := weights(cct.HistoryOf(0, 0)); m[was] >= m[far] || m[beside] >= m[far] || m[was] <= 0 {
		t.Errorf("none: %v", m)
	}
}
