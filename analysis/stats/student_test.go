package stats

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

func TestStudentsT(t *testing.T) {
	for n := 1; n < 400; n++ {
		want := distuv.StudentsT{Sigma: 1, Nu: float64(n)}.Quantile((1 + Confidence) / 2)
		if got := StudentsT(n); math.Abs(got-want) > 3e-6*want {
			t.Errorf("StudentsT(%d) = %v, want %v", n, got, want)
		}
	}
}
