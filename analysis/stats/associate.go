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

// A column is skipped if earlier columns explain its variance except for at most the fraction collinear.
const collinear = 1e-8

// basis returns at most limit orthonormal vectors that span the centred columns, and the indices of the columns that
// contributed one. It skips columns that are constant, not finite, or a linear combination of earlier ones. It applies
// Gram–Schmidt twice, which is sufficient (Giraud, Langou, Rozložník 2005).
func basis(columns [][]float64, limit int) (vectors [][]float64, kept []int) {
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
	return vectors, kept
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

// Canonical is the result of [CanonicalCorrelation].
type Canonical struct {
	// Correlations are the canonical correlations in [0, 1], the largest first. Their number is min(len(KeptX),
	// len(KeptY)).
	Correlations []float64
	// KeptX and KeptY are the indices of the columns that were neither constant nor a linear combination of earlier
	// ones.
	KeptX, KeptY []int
	// Loadings are the correlations, in [−1, 1], of each kept x with the first canonical variate.
	Loadings []float64
}

// ErrNoVariation is the error of [CanonicalCorrelation] if no column of one side varies, or if there are too few rows.
var ErrNoVariation = errors.New("stats: no variation to correlate")

// CanonicalCorrelation correlates two sets of numeric variables, given as columns of equal length n. The first
// canonical correlation is the largest correlation between a linear combination of xs and one of ys; each further one
// is the largest for the remaining variation. It keeps at most the first n/3 independent columns of each side, because
// more columns correlate with anything. It returns ErrNoVariation if one side is empty or does not vary, or if n < 4,
// and another error if the decomposition fails.
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
	// gonum's LeftTo panics if the right side has more columns than the left (v0.17). Exchanging the sides does not
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
// projection of the variate of either side on the orthonormal vectors, which span x. Its sign makes the largest loading
// positive.
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
