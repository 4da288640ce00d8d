package stats

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// Confidence is the nominal coverage of all intervals of this package.
const Confidence = 0.95

// Interval is an estimate with its 95 % confidence interval. All fields are NaN if the estimate does not exist. Low and
// High are NaN if the error cannot be estimated, because there are fewer than three requests or all of the variance
// comes from one request.
type Interval struct{ Value, Low, High float64 }

// Valid reports whether the interval has bounds.
func (i Interval) Valid() bool { return i.Low <= i.High }

// Normal95 is the two-sided 95 % quantile of the standard normal distribution.
const Normal95 = 1.96

// Excess returns the mean of a minus the mean of b, with Welch's interval. All fields are NaN if either set has fewer
// than two values.
func Excess(a, b Moments) Interval {
	if a.N < 2 || b.N < 2 {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	value := a.Mean() - b.Mean()
	half := Normal95 * math.Sqrt(a.Variance()/float64(a.N)+b.Variance()/float64(b.N))
	return Interval{value, value - half, value + half}
}

// Proportion returns k/n with the Clopper–Pearson interval. All fields are NaN if n is 0.
func Proportion(k, n uint64) Interval {
	i := Interval{float64(k) / float64(n), 0, 1}
	if n == 0 {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	const tail = (1 - Confidence) / 2
	if k > 0 {
		i.Low = distuv.Beta{Alpha: float64(k), Beta: float64(n-k) + 1}.Quantile(tail)
	}
	if k < n {
		i.High = distuv.Beta{Alpha: float64(k) + 1, Beta: float64(n - k)}.Quantile(1 - tail)
	}
	return i
}

// Estimate holds the estimates for one column x of a [Table] whose totals are T.
type Estimate struct {
	Share     Interval // Cov(x,T)/Var(T); the shares of a partition of T add up to 1
	MeanShare Interval // E(x)/E(T)
	Mean      Interval // E(x), ns
	CoV       Interval // σ(x)/E(x), with the sample standard deviation (n−1); Low is at least 0
	TailLift  Interval // E(x | T in the slowest tenth) − E(x | the rest), ns
}

// Estimates returns the estimate for every column and for the total itself.
//
// The intervals use the jackknife: the statistic is computed with each request left out in turn, each time in closed
// form and O(1) time. The spread of these values gives a standard error, which is used with Student's t on n−1 degrees
// of freedom. The CoV uses the logarithmic scale. Source: Efron and Stein 1981, "The jackknife estimate of variance".
//
// For 50 requests with heavy-tailed latencies, the intervals cover the true share in 91–93 % of cases, and the
// percentile bootstrap does in 88–93 % (TestIntervalCoverage prints both; BCa is no better). The jackknife takes a
// hundredth of the time and needs no seed. The CoV of very heavy tails (log-normal, σ = 1) is covered in only 67 % of
// cases, and in 55 % by the bootstrap, because rare slow requests may be missing from the sample.
//
// To compare two edges, pass their difference as a column: the interval of its share excludes 0 if they differ.
func (t Table) Estimates() (edges []Estimate, total Estimate) {
	j := newJackknife(t.Total)
	column := make([]float64, len(t.Total))
	edges = make([]Estimate, t.Edges)
	for e := range edges {
		for r := range column {
			column[r] = t.Cells[r*t.Edges+e]
		}
		edges[e] = j.estimate(column)
	}
	copy(column, t.Total)
	return edges, j.estimate(column)
}

// jackknife holds the values of an estimate that don't depend on the column.
type jackknife struct {
	n        float64
	quantile float64   // of Student's t on n−1 degrees of freedom
	tail     int       // requests in the slowest tenth
	inTail   float64   // quantile on tail−1 degrees of freedom; the tail's mean dominates the error of the tail lift
	mean     float64   // of T
	dt       []float64 // T − mean
	stt      float64   // Σdt²
	order    []int32   // requests, slowest first
	loo      []float64 // scratch: the statistic with each request left out
	dx       []float64 // scratch: x − mean
}

func newJackknife(total []float64) *jackknife {
	n := len(total)
	j := &jackknife{
		n: float64(n), quantile: math.NaN(), tail: (n + 9) / 10, inTail: math.NaN(), mean: stat.Mean(total, nil),
		dt: slices.Clone(total), order: make([]int32, n), loo: make([]float64, n), dx: make([]float64, n),
	}
	if n >= 3 {
		j.quantile = StudentsT(n - 1)
		j.inTail = StudentsT(max(1, j.tail-1))
	}
	floats.AddConst(-j.mean, j.dt)
	j.stt = floats.Dot(j.dt, j.dt)
	for i := range j.order {
		j.order[i] = int32(i)
	}
	// Equal totals are ordered by position, so that the result is deterministic.
	sorting.Slice(j.order, func(a, b int32) int { return cmp.Or(cmp.Compare(total[b], total[a]), cmp.Compare(a, b)) })
	return j
}

// fewFreedom holds the 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom, where the expansion in StudentsT
// is inaccurate.
var fewFreedom = [...]float64{
	12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836, 2.446911851, 2.364624252, 2.306004135,
	2.262157163, 2.228138852,
}

// StudentsT returns the 97.5 % quantile of Student's t to five digits. freedom must be at least 1. An exact computation
// would be too slow, because StudentsT is called very often. Source: Abramowitz and Stegun 26.7.5.
func StudentsT(freedom int) float64 {
	if freedom <= len(fewFreedom) {
		return fewFreedom[freedom-1]
	}
	const z, z2 = 1.959963984540054, 3.841458820694124
	n := 1 / float64(freedom)
	return z * (1 + n*((z2+1)/4+n*((5*z2*z2+16*z2+3)/96+n*((3*z2*z2*z2+19*z2*z2+17*z2-15)/384+
		n*(79*z2*z2*z2*z2+776*z2*z2*z2+1482*z2*z2-1920*z2-945)/92160))))
}

// estimate returns the estimate for column x. Leaving out request i reduces a sum of squares about the mean by n/(n−1)
// times the contribution of i.
func (j *jackknife) estimate(x []float64) (e Estimate) {
	mean := stat.Mean(x, nil)
	copy(j.dx, x)
	floats.AddConst(-mean, j.dx)
	sxt, sxx := floats.Dot(j.dx, j.dt), floats.Dot(j.dx, j.dx)
	c := j.n / (j.n - 1)

	for i, d := range j.dx {
		j.loo[i] = (sxt - c*d*j.dt[i]) / j.positive(j.stt-c*j.dt[i]*j.dt[i])
	}
	e.Share = j.interval(sxt/j.positive(j.stt), j.quantile)
	for i, d := range j.dx {
		j.loo[i] = (mean - d/(j.n-1)) / (j.mean - j.dt[i]/(j.n-1))
	}
	e.MeanShare = j.interval(mean/j.mean, j.quantile)
	for i, d := range j.dx {
		j.loo[i] = mean - d/(j.n-1)
	}
	e.Mean = j.interval(mean, j.quantile)
	for i, d := range j.dx {
		j.loo[i] = math.Sqrt(max(0, sxx-c*d*d)/(j.n-2)) / (mean - d/(j.n-1))
	}
	e.CoV = j.positiveInterval(math.Sqrt(sxx/(j.n-1)) / mean)
	e.TailLift = j.tailLift(x)
	return e
}

// positive returns the sum of squares s, or NaN if s may be only a rounding error.
func (j *jackknife) positive(s float64) float64 {
	if !(s > 1e-12*j.stt) {
		return math.NaN()
	}
	return s
}

// interval returns value with its interval, computed from the leave-one-out values in j.loo.
func (j *jackknife) interval(value, quantile float64) Interval {
	half := quantile * math.Sqrt(j.n-1) * stat.PopStdDev(j.loo, nil)
	return Interval{value, value - half, value + half}
}

// positiveInterval is interval on the logarithmic scale, for statistics whose error is proportional to them. It uses
// the linear scale if a value is 0.
func (j *jackknife) positiveInterval(value float64) Interval {
	linear := j.interval(value, j.quantile)
	linear.Low = max(0, linear.Low)
	if !(value > 0) || slices.Min(j.loo) <= 0 {
		return linear
	}
	for i, v := range j.loo {
		j.loo[i] = math.Log(v)
	}
	log := j.interval(math.Log(value), j.quantile)
	return Interval{value, math.Exp(log.Low), math.Exp(log.High)}
}

// tailLift returns the estimate of E(x | slowest tenth) − E(x | rest).
func (j *jackknife) tailLift(x []float64) Interval {
	n, m := len(x), j.tail
	if n < 2 {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	var tail, all float64
	for i, r := range j.order {
		all += x[r]
		if i < m {
			tail += x[r]
		}
	}
	lift := func(tail, all float64, m, n int) float64 { return tail/float64(m) - (all-tail)/float64(n-m) }
	left := (n - 1 + 9) / 10 // requests in the tail with one left out
	if n == 2 {
		left = 0 // no rest
	}
	for i, r := range j.order {
		rest := tail
		switch {
		case i < m && left == m: // the next one moves up
			rest += x[j.order[m]] - x[r]
		case i < m:
			rest -= x[r]
		case left < m: // the last one of the tail moves down
			rest -= x[j.order[m-1]]
		}
		j.loo[i] = lift(rest, all-x[r], left, n-1)
	}
	return j.interval(lift(tail, all, m, n), j.inTail)
}
