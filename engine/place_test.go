package engine

import (
	"math"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// An incident is about lost time, also if its place was located for a problem whose shares are of the variance.
func TestSlowdownShare(t *testing.T) {
	c := &Core{table: &trace.Table{}}
	service := c.table.Symbol("shop")
	step := func(name string) trace.Op { return c.table.Op(service, c.table.Symbol(name), trace.Server) }
	edge := func(op trace.Op, excess, score float64) group.EdgeShare {
		at := c.table.Child(0, op)
		return group.EdgeShare{Edge: trace.ContextEdge(at), Context: at, Excess: excess, Score: score}
	}
	slow, other, probe := step("slow"), step("other"), c.table.Symbol("probe")
	located := func(tracepoint trace.Symbol, op trace.Op, share float64) *search.Investigation {
		x := search.Suspect{Op: op, Tracepoint: tracepoint, Share: share}
		within := trace.ContextEdge(c.table.Child(0, slow))
		return &search.Investigation{
			Status: search.Located, Place: x, Suspects: []search.Suspect{x}, Evidence: []search.Evidence{{Within: within, Context: 7, Tracepoint: probe}},
		}
	}
	mixed := []group.EdgeShare{edge(slow, 30e6, 0.9), edge(other, 10e6, 0.1), edge(step("faster"), -5e6, 0), edge(step("new"), math.NaN(), 0)}
	for name, x := range map[string]struct {
		edges    []group.EdgeShare
		of       *search.Investigation
		share    float64
		variance bool
	}{
		"an operation":               {mixed, located(0, slow, 0.9), 0.75, false},
		"a tracepoint inside of it":  {mixed, located(probe, step("inner"), 0.45), 0.375, false},
		"a share beyond that of all": {mixed, located(0, other, 0.3), 0.25, false},
		"the mean did not grow":      {[]group.EdgeShare{edge(slow, -1, 0.9)}, located(0, slow, 0.9), 0.9, true},
		"elsewhere":                  {mixed, located(0, step("unknown"), 0.9), 0.9, true},
	} {
		share, variance := c.slowdownShare(&detect.Problem{Kind: detect.KindVariable, Edges: x.edges}, x.of)
		if math.Abs(share-x.share) > 1e-9 || variance != x.variance {
			t.Errorf("%s: %v, of the variance: %t; want %v, %t", name, share, variance, x.share, x.variance)
		}
	}
}
