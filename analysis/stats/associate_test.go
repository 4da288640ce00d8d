package stats_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"github.com/sibyl-trace/sibyl/analysis/stats"
)

func normals(r *rand.Rand, n int) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = r.NormFloat64()
	}
	return xs
}

func sumOf(a float64, x []float64, b float64, y []float64) []float64 {
	out := make([]float64, len(x))
	for i := range x {
		out[i] = a*x[i] + b*y[i]
	}
	return out
}

// near fails the test unless got is within tolerance of want.
func near(t *testing.T, name string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s is %v, want %v ± %v", name, got, want, tolerance)
	}
}

func TestCanonicalCorrelations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const n = 2000
	size, noise, other := normals(r, n), normals(r, n), normals(r, n)
	latency := sumOf(0.8, size, 0.6, noise)
	constant := make([]float64, n)
	for i := range constant {
		constant[i] = 0.1
	}
	c, err := stats.CanonicalCorrelations([][]float64{constant, size, sumOf(3e6, size, 0, size), other},
		[][]float64{latency})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "correlation", c[0], 0.8, 0.03)

	// One column on each side gives Pearson's correlation, in any units.
	c, err = stats.CanonicalCorrelations([][]float64{sumOf(-1e-9, size, 0, size)},
		[][]float64{sumOf(1e9, latency, 0, size)})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "correlation of one column each", c[0], math.Abs(stat.Correlation(size, latency, nil)), 1e-9)

	// More columns on the right than on the left.
	c, err = stats.CanonicalCorrelations([][]float64{other, size},
		[][]float64{latency, noise, sumOf(1, other, 5, noise)})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "correlation of size, a difference of latency and noise", c[0], 1, 1e-9)
	near(t, "correlation of other, a combination, too", c[1], 1, 1e-9)

	if _, err := stats.CanonicalCorrelations([][]float64{constant},
		[][]float64{latency}); !errors.Is(err, stats.ErrNoVariation) {
		t.Errorf("error %v for a constant, want ErrNoVariation", err)
	}
	if _, err := stats.CanonicalCorrelations(nil, nil); !errors.Is(err, stats.ErrNoVariation) {
		t.Errorf("error %v without columns, want ErrNoVariation", err)
	}
}

// Both sides have several columns; gonum has another algorithm.
func TestCanonicalCorrelationsOfManyColumns(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	const n, left, right = 500, 7, 4
	var xs, ys [][]float64
	x, y := mat.NewDense(n, left, nil), mat.NewDense(n, right, nil)
	for i := range left {
		xs = append(xs, normals(r, n))
		x.SetCol(i, xs[i])
	}
	for i := range right {
		ys = append(ys, sumOf(float64(i), xs[i], 1, normals(r, n)))
		y.SetCol(i, ys[i])
	}
	var cc stat.CC
	if err := cc.CanonicalCorrelations(x, y, nil); err != nil {
		t.Fatal(err)
	}
	got, err := stats.CanonicalCorrelations(xs, ys)
	if err != nil || len(got) != right {
		t.Fatal(got, err)
	}
	for i, want := range cc.CorrsTo(nil) {
		near(t, "correlation", got[i], want, 1e-9)
	}
}

func TestPermutationTestIsValid(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	const n, runs = 24, 400
	groups := make([]int, n)
	for i := range groups {
		groups[i] = i % 3
	}
	trend := func(y []float64) (sum float64) {
		for i, x := range y {
			sum += float64(groups[i]) * x
		}
		return sum
	}
	test := func(y []float64, seed uint64) float64 {
		shuffled := make([]float64, n)
		return stats.PermutationTest(trend(y), n, 999, seed, func(order []int) float64 {
			for i, o := range order {
				shuffled[i] = y[o]
			}
			return trend(shuffled)
		})
	}
	small := 0.0
	for i := range runs {
		if test(normals(r, n), uint64(i)) <= 0.05 {
			small++
		}
	}
	if small/runs > 0.08 {
		t.Errorf("p ≤ 0.05 in %v of the runs without effect, want about 0.05", small/runs)
	}
	y := normals(r, n)
	for i := range y {
		y[i] += 3 * float64(groups[i])
	}
	if p := test(y, 1); p != 0.001 {
		t.Errorf("p = %v for a clear effect, want 0.001", p)
	}
	if p := test(y, 1); p != test(y, 1) {
		t.Error("p-values of the same data differ")
	}
}

func TestHeldOutHalf(t *testing.T) {
	held := 0
	for key := range uint64(10000) {
		if stats.HeldOut(key) {
			held++
		}
	}
	near(t, "number of keys held out", float64(held), 5000, 200)
}
