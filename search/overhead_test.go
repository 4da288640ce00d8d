package search

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestOverheadCovers checks that the 95 % interval covers the true overhead in 95 % of the runs, with skewed durations
// and arms in between.
func TestOverheadCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const runs, truth = 400, 2e5
	covered := 0
	for range runs {
		var arms []ArmTimes
		for arm, on := range []int{0, 5, 20, 20} {
			arms = append(arms, drawArm(rng, on, 100+50*arm, truth*float64(on)/20))
		}
		o := OverheadOf(arms)
		if o.Requests != 550 {
			t.Fatalf("%+v", o)
		}
		if o.Low <= truth && truth <= o.High {
			covered++
		}
	}
	if f := float64(covered) / runs; f < 0.92 || f > 0.98 {
		t.Errorf("%.3f of the intervals cover the truth, want 0.95", f)
	}
}

func drawArm(rng *rand.Rand, on, n int, overhead float64) ArmTimes {
	var sum, squares float64
	for range n {
		x := 1e6*math.Exp(0.5*rng.NormFloat64()) + overhead
		sum += x
		squares += x * x
	}
	mean := sum / float64(n)
	return ArmTimes{On: on, N: uint64(n), Mean: mean, Variance: (squares - sum*mean) / float64(n-1)}
}

func TestOverheadOfTooLittle(t *testing.T) {
	for _, arms := range [][]ArmTimes{
		nil,
		{{On: 1, N: 100, Mean: 1}},
		{{On: 1, N: 100, Mean: 1}, {On: 1, N: 100, Mean: 2}},
		{{On: 1, N: 100, Mean: 1}, {On: 2, N: leastCompared - 1, Mean: 2}},
	} {
		if o := OverheadOf(arms); o != (Overhead{}) {
			t.Errorf("%+v of %+v", o, arms)
		}
	}
}
