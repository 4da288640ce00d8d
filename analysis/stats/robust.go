package stats

import (
	"math"
	"slices"
)

// Median returns the median, which is the mean of the two middle values if their number is even. It reorders xs and
// does not allocate. It is NaN for no values.
func Median(xs []float64) float64 { return Quantile(xs, 0.5) }

// Quantile returns the q-quantile, q in [0, 1], interpolated between the neighbours of rank q·(n−1). It reorders xs,
// does not allocate and takes linear time on average. It is NaN for no values.
func Quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	rank := q * float64(len(xs)-1)
	k := int(rank)
	selectRank(xs, k)
	lo := xs[k]
	if k+1 == len(xs) || rank == float64(k) {
		return lo
	}
	return lo + (rank-float64(k))*(slices.Min(xs[k+1:])-lo)
}

// selectRank reorders xs so that xs[k] has its value in ascending order, with no larger value before it and no smaller
// one after it. It is Hoare's quickselect with the median of three as pivot.
func selectRank(xs []float64, k int) {
	lo, hi := 0, len(xs)-1
	for hi-lo > 12 {
		pivot := median3(xs[lo], xs[lo+(hi-lo)/2], xs[hi])
		i, j := lo, hi
		for i <= j {
			for xs[i] < pivot {
				i++
			}
			for xs[j] > pivot {
				j--
			}
			if i <= j {
				xs[i], xs[j] = xs[j], xs[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return
		}
	}
	slices.Sort(xs[lo : hi+1])
}

func median3(a, b, c float64) float64 { return max(min(a, b), min(max(a, b), c)) }

// madScale makes the MAD an estimate of σ for normal data.
const madScale = 1.4826022185056018

// MAD returns the median absolute deviation from center, scaled to estimate the standard deviation of normal data. It
// does not modify xs, and does not allocate if scratch, which may be nil, has room for len(xs) values. It is NaN for no
// values.
func MAD(xs []float64, center float64, scratch []float64) float64 {
	scratch = scratch[:0]
	for _, x := range xs {
		scratch = append(scratch, math.Abs(x-center))
	}
	return madScale * Median(scratch)
}
