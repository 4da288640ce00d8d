package stats

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// collinear is the minimum fraction of the variance of a column that earlier columns must leave unexplained. Otherwise
// the column is skipped.
const collinear = 1e-8

// orthonormal returns an orthonormal basis of the centred columns, of at most limit vectors. It skips columns that are
// constant, infinite, or a linear combination of earlier ones. It applies Gram–Schmidt twice, which is sufficient
// (Giraud, Langou, Rozložník 2005).
func orthonormal(columns [][]float64, limit int) (vectors [][]float64) {
	for _, c := range columns {
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
		vectors = append(vectors, v)
	}
	return vectors
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
// canonical correlations in [0, 1], the largest first: the largest correlation between a linear combination of xs and a
// linear combination of ys, then the largest for the remaining variation, and so on. It keeps at most the first n/3
// independent columns of each side, because more columns correlate with anything. It returns ErrNoVariation if one side
// is empty or does not vary, or if n < 4.
//
// The correlations are the singular values of the products of orthonormal bases of both sides (Björck, Golub 1973).
func CanonicalCorrelations(xs, ys [][]float64) ([]float64, error) {
	if len(xs) == 0 || len(ys) == 0 || len(xs[0]) < 4 {
		return nil, ErrNoVariation
	}
	n := len(xs[0])
	x, y := orthonormal(xs, n/3), orthonormal(ys, n/3)
	if len(x) == 0 || len(y) == 0 {
		return nil, ErrNoVariation
	}
	if len(x) < len(y) { // the smaller side provides the columns, so that there are as many columns as correlations
		x, y = y, x
	}
	products := make([][]float64, len(y))
	for j, v := range y {
		products[j] = make([]float64, len(x))
		for i, u := range x {
			products[j][i] = floats.Dot(u, v)
		}
	}
	correlations := singularValues(products)
	for i, r := range correlations {
		correlations[i] = min(1, r)
	}
	return correlations, nil
}

// singularValues returns the singular values of the matrix with the given columns, the largest first. It overwrites the
// columns: it rotates pairs of columns until all are orthogonal (one-sided Jacobi; Hestenes 1958).
func singularValues(columns [][]float64) []float64 {
	const most, exact = 40, 1e-15 // maximum number of sweeps (about six are needed), and the tolerance
	for range most {
		rotated := false
		for j, v := range columns {
			for _, u := range columns[:j] {
				a, b, c := floats.Dot(u, u), floats.Dot(v, v), floats.Dot(u, v)
				if math.Abs(c) <= exact*math.Sqrt(a*b) {
					continue
				}
				rotated = true
				zeta := (b - a) / (2 * c)
				t := math.Copysign(1/(math.Abs(zeta)+math.Hypot(1, zeta)), zeta)
				cos := 1 / math.Hypot(1, t)
				sin := cos * t
				for i := range u {
					u[i], v[i] = cos*u[i]-sin*v[i], sin*u[i]+cos*v[i]
				}
			}
		}
		if !rotated {
			break
		}
	}
	values := make([]float64, len(columns))
	for i, c := range columns {
		values[i] = floats.Norm(c, 2)
	}
	sorting.Slice(values, func(a, b float64) int { return cmp.Compare(b, a) })
	return values
}

// enoughExceedances is the number of permutations at least as extreme as the data after which a permutation test ends.
const enoughExceedances = 20

// PermutationTest returns the p-value, in (0, 1], of observed under the null hypothesis that the n values are
// exchangeable, or NaN if observed is NaN. It compares observed with the statistic of random permutations of the
// indices; large values are extreme. statistic must not retain order. The test stops after limit permutations, or as
// soon as enoughExceedances (20) of them were at least as extreme. The p-value is valid either way (Besag and Clifford
// 1991, "Sequential Monte Carlo p-values"), and at least 1/(limit+1). Equal seeds yield equal values.
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
// only on the key, and half of all keys are held out. It is independent of the magnitude of the key, so it suits a
// [Sample], which keeps the smallest keys.
func HeldOut(key uint64) bool {
	// The finalizer of SplitMix64 (Steele, Lea, Flood 2014). The constant makes the decision independent of other uses
	// of it.
	key ^= 0x6a09e667f3bcc909
	key = (key ^ key>>30) * 0xbf58476d1ce4e5b9
	key = (key ^ key>>27) * 0x94d049bb133111eb
	return key>>63 == 1
}
