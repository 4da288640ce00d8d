package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// A column is skipped if earlier columns explain its variance except for at most the fraction collinear.
const collinear = 1e-8

// independent returns the indices of at most limit columns that are neither constant, nor infinite, nor a linear
// combination of earlier ones. It applies Gram–Schmidt twice, which is sufficient (Giraud, Langou, Rozložník 2005).
func independent(columns [][]float64, limit int) (kept []int) {
	var vectors [][]float64 // orthonormal; they span the kept columns
	for i, c := range columns {
		if len(vectors) >= limit {
			break
		}
		v := centred(c)
		before := floats.Norm(v, 2)
		project(v, vectors)
		project(v, vectors)
		after := floats.Norm(v, 2)
		// Centring a constant column leaves rounding errors.
		if !(after*after > collinear*before*before) || !(before > 1e-9*floats.Norm(c, 2)) || math.IsInf(after, 0) {
			continue
		}
		floats.Scale(1/after, v)
		vectors, kept = append(vectors, v), append(kept, i)
	}
	return kept
}

// centred returns a copy of c with mean 0.
func centred(c []float64) []float64 {
	v := slices.Clone(c)
	floats.AddConst(-stat.Mean(c, nil), v)
	return v
}

// project subtracts from v its projections on the orthonormal vectors.
func project(v []float64, vectors [][]float64) {
	for _, u := range vectors {
		floats.AddScaled(v, -floats.Dot(v, u), u)
	}
}

// ErrNoVariation is the error of [CanonicalCorrelations] if no column of one side varies, or if there are too few rows.
var ErrNoVariation = errors.New("stats: no variation to correlate")

// CanonicalCorrelations correlates two sets of numeric variables, given as columns of equal length n. It returns the
// canonical correlations in [0, 1], the largest first: the largest correlation between a linear combination of xs and
// one of ys, then the largest for the remaining variation, and so on. It keeps at most the first n/3 independent
// columns of each side, because more columns correlate with anything. It returns ErrNoVariation if one side is empty or
// does not vary, or if n < 4, and another error if the decomposition fails.
func CanonicalCorrelations(xs, ys [][]float64) ([]float64, error) {
	if len(xs) == 0 || len(ys) == 0 || len(xs[0]) < 4 {
		return nil, ErrNoVariation
	}
	n := len(xs[0])
	keptX, keptY := independent(xs, n/3), independent(ys, n/3)
	if len(keptX) == 0 || len(keptY) == 0 {
		return nil, ErrNoVariation
	}
	x, y := standardised(xs, keptX), standardised(ys, keptY)
	// gonum's LeftTo panics if the right side has more columns than the left (v0.17). Exchanging the sides does not
	// change the correlations.
	wide, narrow := x, y
	if len(keptY) > len(keptX) {
		wide, narrow = y, x
	}
	var cc stat.CC
	if err := cc.CanonicalCorrelations(wide, narrow, nil); err != nil {
		return nil, err
	}
	correlations := cc.CorrsTo(nil)
	for i, r := range correlations {
		correlations[i] = min(1, max(0, r))
	}
	return correlations, nil
}

// standardised returns the kept columns as a matrix, each with mean 0 and variance 1.
func standardised(columns [][]float64, kept []int) *mat.Dense {
	m := mat.NewDense(len(columns[0]), len(kept), nil)
	for j, k := range kept {
		v := centred(columns[k])
		floats.Scale(1/stat.StdDev(v, nil), v)
		m.SetCol(j, v)
	}
	return m
}

// A permutation test stops after enoughExceedances permutations that are at least as extreme as the data.
const enoughExceedances = 20

// PermutationTest returns the p-value, in (0, 1], of observed under the null hypothesis that the n values are
// exchangeable, or NaN if observed is NaN. It compares observed with the statistic of random permutations of the
// indices; large values are extreme. statistic must not retain order. The test stops after limit permutations, or as
// soon as 20 were at least as extreme. The p-value is valid either way (Besag and Clifford 1991, "Sequential Monte
// Carlo p-values") and at least 1/(limit+1). Equal seeds yield equal values.
func PermutationTest(observed float64, n, limit int, seed uint64, statistic func(order []int) float64) float64 {
	if math.IsNaN(observed) {
		return math.NaN()
	}
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	// The order of values can change the last bits of a statistic.
	atLeast := observed - 1e-12*math.Abs(observed)
	extreme := 0
	for i := range limit {
		r.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
		if statistic(order) >= atLeast {
			extreme++
		}
		if extreme == enoughExceedances {
			return float64(extreme) / float64(i+1)
		}
	}
	return float64(extreme+1) / float64(limit+1)
}

// HeldOut reports whether the request with this key is held out to confirm findings on the others. The decision depends
// only on the key and holds for half of all keys. It is independent of the magnitude of the key, so it suits a
// [Sample], which keeps the smallest keys.
func HeldOut(key uint64) bool {
	// The finalizer of SplitMix64 (Steele, Lea, Flood 2014). The constant makes the decision independent of other uses
	// of it.
	key ^= 0x6a09e667f3bcc909
	key = (key ^ key>>30) * 0xbf58476d1ce4e5b9
	key = (key ^ key>>27) * 0x94d049bb133111eb
	return key>>63 == 1
}
