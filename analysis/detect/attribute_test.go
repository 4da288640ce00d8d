package detect

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// attributed returns the shares of an excess of 100 in an edge of 130 that all requests bear. own holds the own times
// of the places: a function, two that it calls, and another function. ran is the fraction of the requests that ran the
// edge.
func attributed(ran float64, own ...float64) []float64 {
	p := Problem{
		Onset: Changed,
		Edges: []group.EdgeShare{{
			Edge:       1,
			Mean:       130,
			Excess:     100,
			ExcessLow:  98,
			ExcessHigh: 102,
			Affected:   1,
		}},
	}
	inclusive := []float64{own[0] + own[1] + own[2], own[1], own[2], own[3]}
	for i, parent := range []trace.Context{0, 1, 1, 0} {
		p.Refined = append(p.Refined, RefinedShare{
			Within:     1,
			Context:    trace.Context(i + 1),
			Parent:     parent,
			Tracepoint: trace.Symbol(i + 1),
			N:          100,
			Mean:       ran * inclusive[i],
			Exclusive:  ran * own[i],
			ShareMean:  inclusive[i] / 130,
		})
	}
	p.Attribute()
	var shares []float64
	for i := range p.Refined {
		shares = append(shares, p.Refined[i].Share)
	}
	return shares
}

// An excess lies in the place that takes as long, even if most requests did not run its edge.
func TestAttributeToOnePlace(t *testing.T) {
	for _, ran := range []float64{1, 0.2} {
		if s := attributed(ran, 2, 104, 3, 15); s[0] < 0.9 || s[1] < 0.9 || s[2] > 0.05 || s[3] > 0.05 {
			t.Errorf("%v of the requests ran the edge: shares %.2f", ran, s)
		}
	}
}

// The excess of a function that waits for one thing and then for another is divided between the two waits.
func TestAttributeToSeveralPlaces(t *testing.T) {
	for _, ran := range []float64{1, 0.2} {
		if s := attributed(ran, 10, 60, 45, 5); s[0] < 0.85 || s[1] < 0.4 || s[2] < 0.3 || s[3] > 0.05 {
			t.Errorf("%v of the requests ran the edge: shares %.2f", ran, s)
		}
	}
}
