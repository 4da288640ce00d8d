package detect_test

import (
	"math"
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
)

// Two of three edges wait for the same lock: their covariance carries half of the variance. An edge that varies alone
// carries no covariance, and an edge outside of the problem is left out.
func TestPairs(t *testing.T) {
	p := detect.Problem{
		Edges: []group.EdgeShare{{Edge: 1, Score: 0.4}, {Edge: 2, Score: 0.4}, {Edge: 3, Score: 0.1}, {Edge: 4}},
	}
	x := detect.NewPairs(&p)
	if x.Shares() != nil {
		t.Error("shares without requests")
	}
	for i := range int64(100) {
		held, alone := 1000*(i%2), 500*(i/2%2)
		x.Observe(&observation.Observation{
			Duration: time.Duration(5000 + 2*held + alone),
			Edges: []observation.EdgeTime{
				{Edge: 1, Nanos: 2000 + held},
				{Edge: 2, Nanos: 1000 + held},
				{Edge: 3, Nanos: 1000 + alone},
				{Edge: 4, Nanos: 1000},
			},
		}, false)
	}
	shares := x.Shares()
	if len(shares) != 1 || shares[0].A != 1 || shares[0].B != 2 {
		t.Fatalf("pairs %v, want only (1, 2)", shares)
	}
	if want := 2.0 / (4 + 0.25); math.Abs(shares[0].Share-want) > 1e-9 {
		t.Errorf("share %v, want %v", shares[0].Share, want)
	}
}
