package stats

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// minResidual is the least fraction of a column's variance that must remain after regression on the columns before it.
const minResidual = 1e-8

// basis returns orthonormal vectors that span the centred columns, and the indices of the columns that added a vector.
// It skips columns that are constant, not finite, or a linear combination of earlier ones. At most limit vectors are
// returned. Orthogonalising twice (Gram–Schmidt) is enough: Giraud, Langou, Rozložník 2005.
func basis(columns [][]float64, limit int) (vectors [][]float64, kept []int) {
	for i, c := range columns {
		if len(vectors) >= limit {
			break
		}
		v := centred(c)
		norm := floats.Norm(v, 2)
		project(v, vectors)
		project(v, vectors)
		residual := floats.Norm(v, 2)
		// The rounding error of its mean leaves a constant column with a tiny norm.
		if !(residual*residual > minResidual*norm*norm) || !(norm > 1e-9*floats.Norm(c, 2)) || math.IsInf(residual, 0) {
			continue
		}
		floats.Scale(1/residual, v)
		vectors, kept = append(vectors, v), append(kept, i)
	}
	return vectors, kept
}

func centred(c []float64) []float64 {
	v := slices.Clone(c)
	floats.AddConst(-stat.Mean(c, nil), v)
	return v
}

// project subtracts from v its projection onto the orthonormal vectors.
func project(v []float64, vectors [][]float64) {
	for _, u := range vectors {
		floats.AddScaled(v, -floats.Dot(v, u), u)
	}
}

// Canonical is the result of [CanonicalCorrelation].
type Canonical struct {
	// Correlations are the canonical correlations, the largest first, each in [0, 1]. There are min(len(KeptX),
	// len(KeptY)).
	Correlations []float64
	// KeptX and KeptY are the indices of the columns that were neither constant nor a linear combination of earlier
	// ones.
	KeptX, KeptY []int
	// Loadings[i] is the correlation of column KeptX[i] with the first canonical variate, in [−1, 1]: the part it plays
	// in the relation between x and y.
	Loadings []float64
}

// ErrNoVariation is returned if no column of one side varies, or if there are too few rows.
var ErrNoVariation = errors.New("stats: no variation to correlate")

// CanonicalCorrelation correlates two sets of numeric variables, given by columns of equal length n. The first
// correlation is the largest between any linear combination of xs and any of ys; each further one is the largest
// between combinations uncorrelated with the earlier ones. Only the first n/3 independent columns of each side are
// considered, because with more columns anything correlates. It returns ErrNoVariation if no column of one side varies
// or n is less than 4.
func CanonicalCorrelation(xs, ys [][]float64) (Canonical, error) {
	if len(xs) == 0 || len(ys) == 0 || len(xs[0]) < 4 {
		return Canonical{}, ErrNoVariation
	}
	n := len(xs[0])
	vectors, keptX := basis(xs, n/3)
	_, keptY := basis(ys, n/3)
	if len(keptX) == 0 || len(keptY) == 0 {
		return Canonical{}, ErrNoVariation
	}
	x, y := standardised(xs, keptX), standardised(ys, keptY)
	// gonum's LeftTo panics if the right side has more columns than the left (v0.17). Swapping the sides does not
	// change the correlations.
	wide, narrow := x, y
	if len(keptY) > len(keptX) {
		wide, narrow = y, x
	}
	var cc stat.CC
	if err := cc.CanonicalCorrelations(wide, narrow, nil); err != nil {
		return Canonical{}, err
	}
	c := Canonical{KeptX: keptX, KeptY: keptY, Correlations: cc.CorrsTo(nil)}
	for i, r := range c.Correlations {
		c.Correlations[i] = min(1, max(0, r))
	}
	c.Loadings = loadings(firstVariate(&cc, wide), vectors, x)
	return c, nil
}

// firstVariate returns the first canonical variate of the left side.
func firstVariate(cc *stat.CC, left *mat.Dense) []float64 {
	var weights mat.Dense
	cc.LeftTo(&weights, false)
	var variate mat.VecDense
	variate.MulVec(left, weights.ColView(0))
	return variate.RawVector().Data
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

// loadings returns the correlation of every column of x with the first canonical variate of x. That variate is the
// projection of the given one, of either side, onto the span of x; vectors are an orthonormal basis of it. The sign is
// chosen so that the loading of the largest magnitude is positive.
func loadings(variate []float64, vectors [][]float64, x *mat.Dense) []float64 {
	n, k := x.Dims()
	own := make([]float64, n)
	for _, u := range vectors {
		floats.AddScaled(own, floats.Dot(variate, u), u)
	}
	out := make([]float64, k)
	column := make([]float64, n)
	for j := range out {
		out[j] = max(-1, min(1, stat.Correlation(mat.Col(column, j, x), own, nil)))
	}
	lead := slices.MaxFunc(out, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })
	if lead < 0 {
		floats.Scale(-1, out)
	}
	return out
}

// maxExceedances is the number of permutations at least as extreme as the data after which a test stops.
const maxExceedances = 20

// PermutationTest returns the p-value, in (0, 1], of observed under the hypothesis that n values are exchangeable. It
// calls statistic with random permutations of their indices; statistic must not retain the slice. Large values are
// extreme. The test stops once 20 permutations were at least as extreme as observed, or after limit permutations. The
// p-value is valid either way (Besag and Clifford 1991, "Sequential Monte Carlo p-values") and at least 1/(limit+1).
// The same seed yields the same value. It returns NaN if observed is NaN.
func PermutationTest(observed float64, n, limit int, seed uint64, statistic func(order []int) float64) float64 {
	if math.IsNaN(observed) {
		return math.NaN()
	}
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	// Summing the same values in another order may change the last bits of a statistic.
	atLeast := observed - 1e-12*math.Abs(observed)
	extreme := 0
	for i := range limit {
		r.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
		if statistic(order) >= atLeast {
			extreme++
		}
		if extreme == maxExceedances {
			return float64(extreme) / float64(i+1)
		}
	}
	return float64(extreme+1) / float64(limit+1)
}

// HeldOut reports whether the request with this key is held out to confirm findings on the other requests. It holds for
// half of the keys, and always for the same ones. Keys may come from a [Sample], which keeps only small keys: the
// result is independent of the magnitude of the key.
func HeldOut(key uint64) bool {
	// The finalizer of SplitMix64 (Steele, Lea, Flood 2014). The constant makes the result independent of other uses.
	key ^= 0x6a09e667f3bcc909
	key = (key ^ key>>30) * 0xbf58476d1ce4e5b9
	key = (key ^ key>>27) * 0x94d049bb133111eb
	return key>>63 == 1
}
