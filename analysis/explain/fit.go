package explain

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mathext"
	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

// fit is a linear model of values. It is extended one variable at a time.
type fit struct {
	vectors [][]float64 // orthonormal; they span the model; the first one is constant
	rest    []float64   // the residuals of the values
	square  float64     // Σ rest²
	total   float64     // Σ (value − mean)²
}

// gain is the improvement of a fit by adding a variable.
type gain struct {
	part    float64 // fraction (0–1) of the residual sum of squares explained; NaN if the variable depends on the model
	columns int     // degrees of freedom used
	left    int     // degrees of freedom remaining
}

// pValue returns the p-value of the gain by an F test, or NaN if the gain cannot be tested.
func (g gain) pValue() float64 {
	if g.part != g.part || g.columns == 0 || g.left < 1 {
		return math.NaN()
	}
	return mathext.RegIncBeta(float64(g.left)/2, float64(g.columns)/2, 1-g.part)
}

// adjusted returns part, corrected for chance.
func (g gain) adjusted() float64 {
	return max(0, 1-(1-g.part)*float64(g.left+g.columns)/float64(g.left))
}

// negligible is the fraction of a sum of squares that may be rounding errors.
const negligible = 1e-8

// newFit returns a fit of values whose model consists of their mean.
func newFit(values []float64) *fit {
	n := len(values)
	f := &fit{rest: append([]float64(nil), values...)}
	one := make([]float64, n)
	floats.AddConst(1/math.Sqrt(float64(n)), one)
	f.vectors = [][]float64{one}
	orthogonalize(f.rest, f.vectors)
	f.square = floats.Dot(f.rest, f.rest)
	f.total = f.square
	return f
}

// orthogonalize subtracts from v its projections on the orthonormal vectors, twice for accuracy.
func orthogonalize(v []float64, vectors [][]float64) {
	for range 2 {
		for _, u := range vectors {
			floats.AddScaled(v, -floats.Dot(v, u), u)
		}
	}
}

// control extends the model by the columns.
func (f *fit) control(columns [][]float64) {
	for _, v := range f.beyond(columns) {
		f.vectors = append(f.vectors, v)
		floats.AddScaled(f.rest, -floats.Dot(f.rest, v), v)
	}
	f.square = floats.Dot(f.rest, f.rest)
}

// beyond returns orthonormal vectors that span the part of the columns that is orthogonal to the model.
func (f *fit) beyond(columns [][]float64) [][]float64 {
	vectors := slices.Clip(f.vectors)
	for _, c := range columns {
		v := append([]float64(nil), c...)
		before := floats.Dot(v, v)
		orthogonalize(v, vectors)
		after := floats.Dot(v, v)
		if !(after > negligible*before) || len(vectors)+2 > len(v) {
			continue
		}
		floats.Scale(1/math.Sqrt(after), v)
		vectors = append(vectors, v)
	}
	return vectors[len(f.vectors):]
}

// gain returns the gain from adding c.
func (f *fit) gain(c *column) gain {
	if f.square <= negligible*f.total {
		return gain{part: math.NaN()}
	}
	explained, columns := f.effectOf(c)
	if columns == 0 {
		return f.gainOf(math.NaN(), 0)
	}
	return f.gainOf(min(1, max(0, explained(f.rest)/f.square)), columns)
}

// gainOf returns the gain of a variable that explains part with the given number of columns.
func (f *fit) gainOf(part float64, columns int) gain {
	return gain{part: part, columns: columns, left: len(f.rest) - len(f.vectors) - columns}
}

// effectOf returns the number of degrees of freedom of c beyond the model, and a function that returns the part of the
// sum of squares of values that c explains. The values must be orthogonal to the model.
func (f *fit) effectOf(c *column) (explained func(values []float64) float64, columns int) {
	if c.codes != nil {
		w := f.whiten(c)
		return w.explained, w.columns
	}
	v := append([]float64(nil), c.ranks...)
	before := floats.Dot(v, v)
	orthogonalize(v, f.vectors)
	after := floats.Dot(v, v)
	if !(after > negligible*before) {
		return nil, 0
	}
	floats.Scale(1/math.Sqrt(after), v)
	return func(values []float64) float64 {
		d := floats.Dot(values, v)
		return d * d
	}, 1
}

// permuted returns a statistic for [stats.PermutationTest]: the fraction of the permuted residuals that c explains
// (Freedman and Lane 1983, "A nonstochastic interpretation of reported significance levels").
func (f *fit) permuted(c *column) func(order []int) float64 {
	explained, columns := f.effectOf(c)
	shuffled := make([]float64, len(f.rest))
	return func(order []int) float64 {
		if columns == 0 {
			return 0
		}
		for i, k := range order {
			shuffled[i] = f.rest[k]
		}
		orthogonalize(shuffled, f.vectors)
		return explained(shuffled) / floats.Dot(shuffled, shuffled)
	}
}

// extrapolated returns the p-value of g, the gain of c, by permutation. It estimates p-values smaller than the inverse
// number of permutations with the Pearson III distribution that has the mean, variance and skewness of the permuted
// gains (Josse, Pagès, Husson 2008, for the RV coefficient). Permutation is needed because the F test finds effects in
// noise if its assumptions do not hold, as for bimodal times or a category of four requests.
func (f *fit) extrapolated(c *column, g gain, permutations int, seed uint64) float64 {
	parts := make([]float64, 0, permutations)
	part := f.permuted(c)
	stats.PermutationTest(math.Inf(1), len(f.rest), permutations, seed, func(order []int) float64 {
		parts = append(parts, part(order))
		return 0
	})
	mean, deviation := stat.MeanStdDev(parts, nil)
	skew := stat.Skew(parts, nil)
	z := (g.part - mean) / deviation
	if !(skew > 0.01) { // the normal distribution
		return math.Erfc(z/math.Sqrt2) / 2
	}
	shape := 4 / (skew * skew)
	return mathext.GammaIncRegComp(shape, max(0, shape+z*math.Sqrt(shape)))
}

// whitened is the part of a categorical column that a model doesn't explain.
//
// Let D be the 0/1 columns of the categories and Q the vectors of the model. The sum of squares of y that D explains is
// bᵀG⁻¹b with b = Dᵀy and G = Dᵀ(1−QQᵀ)D = diag(n) − SSᵀ, S = DᵀQ. So we don't need to form D. lower is the Cholesky
// factor of G without the rows that depend on earlier ones.
//
// The row of D for a request with an unknown category is the mean of the other rows (see partsOf).
type whitened struct {
	codes   []int32
	parts   []float64
	size    int       // number of categories
	lower   []float64 // size × size
	kept    []bool
	columns int
	scratch []float64
}

// whiten returns the part of c that f does not explain.
func (f *fit) whiten(c *column) *whitened {
	k := len(c.labels)
	w := &whitened{
		codes:   c.codes,
		parts:   partsOf(c.codes, k),
		size:    k,
		lower:   make([]float64, k*k),
		kept:    make([]bool, k),
		scratch: make([]float64, k),
	}
	counts := make([]float64, k)
	unknown := 0.0
	for _, code := range c.codes {
		if code >= 0 {
			counts[code]++
		} else {
			unknown++
		}
	}
	for i, n := range counts {
		w.lower[i*k+i] = n
		for j := range i + 1 {
			w.lower[i*k+j] += unknown * w.parts[i] * w.parts[j]
		}
	}
	for _, u := range f.vectors {
		sums := w.sums(u)
		for i := range k {
			for j := range i + 1 {
				w.lower[i*k+j] -= sums[i] * sums[j]
			}
		}
	}
	for i := range k {
		row := w.lower[i*k : i*k+i+1]
		for j := range i {
			if !w.kept[j] {
				row[j] = 0
				continue
			}
			other := w.lower[j*k : j*k+j+1]
			row[j] = (row[j] - floats.Dot(row[:j], other[:j])) / other[j]
		}
		pivot := row[i] - floats.Dot(row[:i], row[:i])
		if w.kept[i] = pivot > negligible*counts[i]; w.kept[i] {
			row[i] = math.Sqrt(pivot)
			w.columns++
		}
	}
	return w
}

// sums returns Dᵀ·values. The slice is valid until the next call.
func (w *whitened) sums(values []float64) []float64 {
	clear(w.scratch)
	unknown := 0.0
	for i, code := range w.codes {
		if code >= 0 {
			w.scratch[code] += values[i]
		} else {
			unknown += values[i]
		}
	}
	if unknown != 0 {
		floats.AddScaled(w.scratch, unknown, w.parts)
	}
	return w.scratch
}

// explained returns the sum of squares of values that the categories explain.
func (w *whitened) explained(values []float64) float64 {
	sums := w.sums(values)
	var total float64
	for i := range w.size {
		if !w.kept[i] {
			sums[i] = 0
			continue
		}
		row := w.lower[i*w.size : i*w.size+i+1]
		sums[i] = (sums[i] - floats.Dot(row[:i], sums[:i])) / row[i]
		total += sums[i] * sums[i]
	}
	return total
}

// upperBound returns the upper limit of the 95 % interval of a squared correlation over n requests (Fisher's z). It
// returns NaN if part is NaN.
func upperBound(part float64, n int) float64 {
	z := math.Tanh(math.Atanh(math.Sqrt(part)) + stats.Normal95/math.Sqrt(float64(n-3)))
	return z * z
}
