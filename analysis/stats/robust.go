package stats

import (
	"math"
	"slices"
)

// Median returns the median of xs, or NaN if xs is empty. The median of an even number of values is the mean of the two
// middle values. Median reorders xs and does not allocate.
func Median(xs []float64) float64 { return Quantile(xs, 0.5) }

// Quantile returns the q-quantile of xs, interpolated between the neighbours of rank q·(n−1), or NaN if xs is empty. q
// must be in [0, 1]. Quantile reorders xs, does not allocate, and takes linear time on average.
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

// selectRank reorders xs so that xs[k] has rank k: no value before it is larger, and no value after it is smaller. It
// is Hoare's quickselect, with the median of three as the pivot.
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

// madScale is the factor that makes the MAD an estimate of σ for normally distributed data.
const madScale = 1.4826022185056018

// MAD returns the median absolute deviation from center, scaled to estimate the standard deviation of normally
// distributed data, or NaN if xs is empty. MAD does not change xs, and does not allocate if scratch, which may be nil,
// has enough capacity for xs.
func MAD(xs []float64, center float64, scratch []float64) float64 {
	scratch = scratch[:0]
	for _, x := range xs {
		scratch = append(scratch, math.Abs(x-center))
	}
	return madScale * Median(scratch)
}
