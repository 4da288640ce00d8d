package stats

import "math"

// FisherExact returns the two-sided p-value of Fisher's exact test of the hypothesis that a property is equally
// frequent in two sets, given that a of n and b of m members have it. The p-value is the probability, for fixed totals,
// of a table at most as probable as the observed one. It is 1 if a set is empty. The test is exact for sets of any
// size, even if they were selected by outcome.
func FisherExact(a, n, b, m int) float64 {
	k := a + b
	// ways returns the logarithm of the number of ways to choose x of n and k−x of m.
	ways := func(x int) float64 { return logChoose(n, x) + logChoose(m, k-x) }
	const rounding = 1e-7
	observed, sum := ways(a)+rounding, 0.0
	all := logChoose(n+m, k)
	for x := max(0, k-m); x <= min(k, n); x++ {
		if w := ways(x); w <= observed {
			sum += math.Exp(w - all)
		}
	}
	return min(1, sum)
}

// logChoose returns the logarithm of the binomial coefficient n over k, for 0 ≤ k ≤ n.
func logChoose(n, k int) float64 {
	logFactorial := func(x int) float64 {
		y, _ := math.Lgamma(float64(x) + 1)
		return y
	}
	return logFactorial(n) - logFactorial(k) - logFactorial(n-k)
}
