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

// collinear is the part of a column's variance that must be left after the columns before it are accounted for.
const collinear = 1e-8

// basis returns orthonormal vectors that span the centred columns, and the indices of the columns that added one. Columns
// that are constant, not finite, or a linear combination of those before them are left out (Gram–Schmidt, twice, which is
// enough: Giraud, Langou, Rozložník 2005). n rows have room for at most limit columns.
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
		// Constant columns keep rounding errors of their mean.
		if !(after*after > collinear*before*before) || !(before > 1e-9*floats.Norm(c, 2)) || math.IsInf(after, 0) {
			continue
		}
		floats.Scale(1/after, v)
		vectors, kept = append(vectors, v), append(kept, i)
	}
	return vectors, kept
}

func centred(c []float64) []float64 {
	v := slices.Clone(c)
	floats.AddConst(-stat.Mean(c, nil), v)
	return v
}

// project removes from v what lies along the orthonormal vectors.
func project(v []float64, vectors [][]float64) {
	for _, u := range vectors {
		floats.AddScaled(v, -floats.Dot(v, u), u)
	}
}

// Canonical is what [CanonicalCorrelation] found.
type Canonical struct {
	// Correlations are the canonical correlations, the largest first, each in [0, 1]; as many as the side with fewer kept
	// columns has.
	Correlations []float64
	// KeptX and KeptY are the indices of the columns that were neither constant nor a linear combination of earlier ones.
	KeptX, KeptY []int
	// Loadings are, for each kept x, its correlation with the first canonical variate, in [−1, 1]: how much it takes part
	// in what x and y have in common.
	Loadings []float64
}

// ErrNoVariation says that no column of one side varies, or that there are too few rows.
var ErrNoVariation = errors.New("stats: no variation to correlate")

// CanonicalCorrelation correlates two sets of numeric variables, given by columns of equal length n: the largest
// correlation between any linear combination of xs and any of ys, then of what is left. At most n/3 columns of each side
// are considered, the first ones; beyond that everything correlates. It returns ErrNoVariation where nothing varies.
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
	// gonum's LeftTo panics where the right side has more columns than the left (v0.17). The correlations are the same
	// either way.
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

// loadings returns the correlation of every column of x with the first canonical variate of x, which is the projection of
// that of either side on what x spans (vectors, orthonormal). Its sign is chosen so that the largest is positive.
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

// enoughExceedances is after how many permutations at least as extreme as the data a test gives up.
const enoughExceedances = 20

// PermutationTest returns the p-value, in (0, 1], of observed under the claim that the n values are exchangeable:
// statistic is given one random order of their indices after another, which it must not keep, and returns what observed
// is compared with. Large values are extreme. It stops early once 20 permutations were at least as extreme, else after
// limit of them; the p-value is valid either way (Besag and Clifford 1991, "Sequential Monte Carlo p-values") and at
// least 1/(limit+1). The same seed gives the same value. NaN for a NaN.
func PermutationTest(observed float64, n, limit int, seed uint64, statistic func(order []int) float64) float64 {
	if math.IsNaN(observed) {
		return math.NaN()
	}
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	// A statistic of the same values in another order may differ in the last bits.
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

// HeldOut reports whether the request with this key is set aside to confirm what was found on the others: one in two, the
// same ones always. Keys may be those of a [Sample], small ones only: the decision is independent of the key's size.
func HeldOut(key uint64) bool {
	// The finalizer of SplitMix64 (Steele, Lea, Flood 2014), after a constant so that other uses of it decide otherwise.
	key ^= 0x6a09e667f3bcc909
	key = (key ^ key>>30) * 0xbf58476d1ce4e5b9
	key = (key ^ key>>27) * 0x94d049bb133111eb
	return key>>63 == 1
}
