package explain

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// explanation returns the explanation of t by c.
func (s *study) explanation(t *target, c *column, pValue float64) detect.Explanation {
	x := detect.Explanation{Variable: s.name(c.id), Where: c.id.context, Target: t.edge, PValue: pValue}
	if c.codes != nil {
		codes, nanos := known(c.codes, t.nanos)
		x.Value = c.labels[slowestCategory(codes, len(c.labels), nanos)]
		x.Effect, x.Low, x.High = between(codes, len(c.labels), nanos)
		x.Remains = math.Sqrt(1 - x.Effect)
		return x
	}
	x.Effect, x.Low, x.High = squaredCorrelation(c, t.nanos)
	x.Remains = math.Sqrt(c.remains(t.nanos))
	return x
}

// known returns the known categories, and the times of the requests that have them.
func known(codes []int32, nanos []float64) (knownCodes []int32, times []float64) {
	if !slices.Contains(codes, -1) {
		return codes, nanos
	}
	for i, code := range codes {
		if code >= 0 {
			knownCodes, times = append(knownCodes, code), append(times, nanos[i])
		}
	}
	return knownCodes, times
}

// slowestCategory returns the category with the largest excess: the number of its requests times the difference between
// their mean and the overall mean. k is the number of categories.
func slowestCategory(codes []int32, k int, nanos []float64) int {
	mean := stat.Mean(nanos, nil)
	excess := make([]float64, k)
	for i, code := range codes {
		excess[code] += nanos[i] - mean
	}
	return floats.MaxIdx(excess)
}

// between returns the fraction of the variance that lies between the k categories, corrected for chance (ε²), and its
// 95 % interval, computed by the jackknife in closed form.
func between(codes []int32, k int, values []float64) (effect, low, high float64) {
	n := float64(len(values))
	mean := stat.Mean(values, nil)
	counts, sums := make([]float64, k), make([]float64, k)
	var total float64
	for i, code := range codes {
		d := values[i] - mean
		counts[code]++
		sums[code] += d
		total += d * d
	}
	var groups, between float64
	for i, c := range counts {
		if c > 0 {
			between += sums[i] * sums[i] / c
			groups++
		}
	}
	adjusted := func(between, total, n float64) float64 {
		if !(total > 0) || n <= groups {
			return 0
		}
		return max(0, 1-(1-between/total)*(n-1)/(n-groups))
	}
	effect = adjusted(between, total, n)
	left := make([]float64, len(values))
	for i, code := range codes {
		d, c, sum := values[i]-mean, counts[code], sums[code]
		b := between - sum*sum/c - d*d/(n-1)
		if c > 1 {
			b += (sum - d) * (sum - d) / (c - 1)
		}
		left[i] = adjusted(b, total-d*d*n/(n-1), n-1)
	}
	low, high = effectInterval(effect, left)
	return effect, low, high
}

// squaredCorrelation returns the squared correlation of nanos with the values or with the ranks of a numeric column,
// whichever is larger, and its 95 % interval.
func squaredCorrelation(c *column, nanos []float64) (effect, low, high float64) {
	byValue := slices.Clone(c.values)
	var sum, count float64
	for _, v := range byValue {
		if v == v {
			sum, count = sum+v, count+1
		}
	}
	for i, v := range byValue {
		if v != v {
			byValue[i] = sum / count
		}
	}
	x := c.ranks
	if square(stat.Correlation(byValue, nanos, nil)) > square(stat.Correlation(c.ranks, nanos, nil)) {
		x = byValue
	}
	mx, my := stat.Mean(x, nil), stat.Mean(nanos, nil)
	var sxx, syy, sxy float64
	for i := range x {
		dx, dy := x[i]-mx, nanos[i]-my
		sxx, syy, sxy = sxx+dx*dx, syy+dy*dy, sxy+dx*dy
	}
	n := float64(len(x))
	f := n / (n - 1)
	left := make([]float64, len(x))
	for i := range x {
		dx, dy := x[i]-mx, nanos[i]-my
		left[i] = ratio(square(sxy-f*dx*dy), (sxx-f*dx*dx)*(syy-f*dy*dy))
	}
	effect = ratio(sxy*sxy, sxx*syy)
	low, high = effectInterval(effect, left)
	return effect, low, high
}

func square(x float64) float64 { return x * x }

// ratio returns a/b, at most 1, or 0 if b is not positive.
func ratio(a, b float64) float64 {
	if !(b > 0) {
		return 0
	}
	return min(1, a/b)
}

// effectInterval returns the 95 % interval of a fraction of variance, given its leave-one-out values, which it
// modifies. It uses Fisher's scale, where the error depends least on the effect.
func effectInterval(effect float64, left []float64) (low, high float64) {
	fisher := func(part float64) float64 { return math.Atanh(math.Sqrt(min(part, 1-1e-12))) }
	for i := range left {
		left[i] = fisher(left[i])
	}
	n := len(left)
	half := stats.StudentsT(n-1) * math.Sqrt(float64(n-1)) * stat.PopStdDev(left, nil)
	z := fisher(effect)
	return square(math.Tanh(max(0, z-half))), square(math.Tanh(z + half))
}

// remains returns the fraction of the variance, at most 1, that remains among requests with equal values of a numeric
// column. It compares every request with the line through its two neighbours by value (Gasser, Sroka, Jennen-Steinmetz
// 1986, "Residual variance and residual pattern in nonlinear regression"), and requests without a value with the mean
// of these requests. Bins would be inaccurate, because the last bin of a heavy-tailed variable is wide.
func (c *column) remains(nanos []float64) float64 {
	var order []int
	var absent []float64
	for i, v := range c.values {
		if v == v {
			order = append(order, i)
		} else {
			absent = append(absent, nanos[i])
		}
	}
	sorting.Slice(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(c.values[a], c.values[b]), cmp.Compare(a, b))
	})
	var sum float64
	for k := 1; k < len(order)-1; k++ {
		below, at, above := order[k-1], order[k], order[k+1]
		weight := 0.5 // of the neighbour above
		if span := c.values[above] - c.values[below]; span > 0 && !math.IsInf(span, 0) {
			weight = (c.values[at] - c.values[below]) / span
		}
		residual := (1-weight)*nanos[below] + weight*nanos[above] - nanos[at]
		sum += residual * residual / (square(1-weight) + square(weight) + 1)
	}
	within := sum / float64(len(order)-2) * float64(len(order))
	if len(absent) > 1 {
		within += stat.Variance(absent, nil) * float64(len(absent))
	}
	return ratio(within/float64(len(nanos)), stat.Variance(nanos, nil))
}
