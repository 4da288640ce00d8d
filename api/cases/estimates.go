package cases

import (
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on estimates.
const (
	leastEstimated = 20 // requests
	mostEstimated  = 64 // edges; later ones are unchanged
)

// withEstimates fills in missing intervals and tail lifts in the shares of a problem's edges. Edges of a chronic
// problem lack both, because their shares come from the reference, which has no sample of requests. Other shares are
// unchanged, and so are all shares if there are too few requests.
func withEstimates(edges []group.EdgeShare, requests []*observation.Observation) []group.EdgeShare {
	lacks := func(s *group.EdgeShare) bool {
		return s.Edge != 0 && math.IsNaN(s.ShareLow) && !math.IsNaN(s.ShareVariance)
	}
	var columns []trace.Edge
	var lacking []int // index of each column in edges
	for i := range edges {
		if lacks(&edges[i]) && len(columns) < mostEstimated {
			columns, lacking = append(columns, edges[i].Edge), append(lacking, i)
		}
	}
	if len(columns) == 0 || len(requests) < leastEstimated {
		return edges
	}
	estimates, _ := timesOf(columns, requests).Estimates()
	all := slices.Clone(edges)
	for column, i := range lacking {
		s, e := &all[i], &estimates[column]
		s.ShareLow = s.ShareVariance - (e.Share.Value - e.Share.Low)
		s.ShareHigh = s.ShareVariance + (e.Share.High - e.Share.Value)
		s.TailLift = e.TailLift.Value
	}
	return all
}

// timesOf returns a table with a row for each request and a column for each edge.
func timesOf(edges []trace.Edge, requests []*observation.Observation) stats.Table {
	t := stats.Table{Edges: len(edges)}
	for _, o := range requests {
		t.Total = append(t.Total, float64(o.Duration))
		for _, e := range edges {
			nanos := 0.0
			if x := o.Edge(e); x != nil {
				nanos = float64(x.Nanos)
			}
			t.Cells = append(t.Cells, nanos)
		}
	}
	return t
}
