package stats

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestFisherExact(t *testing.T) {
	for _, c := range []struct {
		a, n, b, m int
		want       float64
	}{
		{3, 4, 1, 4, 34. / 70},               // Fisher 1935, lady tasting tea, two-sided
		{1, 12, 9, 12, 0.002759456185220083}, // example in the documentation of R and SciPy
		{0, 0, 5, 9, 1},
		{0, 7, 0, 9, 1},
		{7, 7, 9, 9, 1},
		{3, 3, 0, 6, 1. / 84}, // smallest p-value of 3 slow and 6 other sample traces
	} {
		if got := FisherExact(c.a, c.n, c.b, c.m); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("FisherExact(%d, %d, %d, %d) = %v, want %v", c.a, c.n, c.b, c.m, got, c.want)
		}
	}
}

// The p-value agrees with exact integers, and is symmetric in the sets and in the property.
func TestFisherExactIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(0, 60).Draw(t, "n"), rapid.IntRange(0, 60).Draw(t, "m")
		a, b := rapid.IntRange(0, n).Draw(t, "a"), rapid.IntRange(0, m).Draw(t, "b")
		ways := func(x int) *big.Int {
			return new(big.Int).Mul(new(big.Int).Binomial(int64(n), int64(x)),
				new(big.Int).Binomial(int64(m), int64(a+b-x)))
		}
		sum := new(big.Int)
		for x := max(0, a+b-m); x <= min(a+b, n); x++ {
			if w := ways(x); w.Cmp(ways(a)) <= 0 {
				sum.Add(sum, w)
			}
		}
		want, _ := new(big.Rat).SetFrac(sum, new(big.Int).Binomial(int64(n+m), int64(a+b))).Float64()
		got := FisherExact(a, n, b, m)
		if math.Abs(got-want) > 1e-9 {
			t.Fatalf("FisherExact(%d, %d, %d, %d) = %v, want %v", a, n, b, m, got, want)
		}
		for _, same := range []float64{FisherExact(b, m, a, n), FisherExact(n-a, n, m-b, m)} {
			if math.Abs(got-same) > 1e-9 {
				t.Fatalf("FisherExact(%d, %d, %d, %d) = %v, but %v with sets or property exchanged",
					a, n, b, m, got, same)
			}
		}
	})
}
