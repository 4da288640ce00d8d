package cases

import (
	"math"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// Edges without intervals get them from sampled requests. The interval contains the exact share. The edge with all of
// the variance also has all of the excess in the slowest tenth.
func TestWithEstimates(t *testing.T) {
	var requests []*observation.Observation
	for i := range 100 {
		slow := int64(i % 10 * i % 7)
		requests = append(requests, &observation.Observation{
			Duration: time.Duration(10 + slow),
			Edges:    []observation.EdgeTime{{Edge: 3, Nanos: 10}, {Edge: 5, Nanos: slow}},
		})
	}
	nan := math.NaN()
	edges := []group.EdgeShare{
		{
			Edge:          5,
			ShareVariance: 0.98,
			ShareLow:      nan,
			ShareHigh:     nan,
			TailLift:      nan,
		},
		{
			Edge:          3,
			ShareVariance: 0.02,
			ShareLow:      nan,
			ShareHigh:     nan,
			TailLift:      nan,
		},
		{
			Edge:          7,
			ShareVariance: 0.1,
			ShareLow:      0.05,
			ShareHigh:     0.2,
			TailLift:      9,
		},
		{
			Edge:          0,
			ShareVariance: 0,
			ShareLow:      nan,
			ShareHigh:     nan,
			TailLift:      nan,
		},
	}
	got := withEstimates(edges, requests)
	if s := got[0]; !(s.ShareLow <= s.ShareVariance && s.ShareVariance <= s.ShareHigh) || !(s.TailLift > 1) {
		t.Errorf("the edge with the variance: %+v", s)
	}
	if s := got[1]; math.IsNaN(s.ShareLow) || math.Abs(s.TailLift) > 1e-9 {
		t.Errorf("the edge without: %+v", s)
	}
	if got[2] != edges[2] {
		t.Errorf("an edge with an interval has changed: %+v", got[2])
	}
	if !math.IsNaN(got[3].ShareLow) || !math.IsNaN(edges[0].ShareLow) {
		t.Errorf("the rest is %+v, the argument %+v", got[3], edges[0])
	}
	few := withEstimates(edges, requests[:5])
	if !math.IsNaN(few[0].ShareLow) {
		t.Errorf("of five requests: %+v", few[0])
	}
	if x := timesOf([]trace.Edge{4}, requests[:1]); x.Cells[0] != 0 {
		t.Errorf("an edge that a request lacks takes %v", x.Cells[0])
	}
}
