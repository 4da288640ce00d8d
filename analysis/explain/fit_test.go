package explain

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat"
	"pgregory.net/rapid"
)

// drawColumn draws a column of n requests: numeric with ties, or categorical, with unknown values.
func drawColumn(t *rapid.T, n int) column {
	if rapid.Bool().Draw(t, "numeric") {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(rapid.IntRange(-5, 20).Draw(t, "value"))
			if values[i] == -5 {
				values[i] = math.NaN()
			}
		}
		return column{values: values, ranks: ranksOf(values)}
	}
	c := column{labels: []string{"a", "b", "c", "d"}, codes: make([]int32, n)}
	for i := range c.codes {
		c.codes[i] = int32(rapid.IntRange(-1, 3).Draw(t, "code"))
	}
	return c
}

func drawTimes(t *rapid.T, n int) []float64 {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "times"), 0))
	times := make([]float64, n)
	for i := range times {
		times[i] = r.ExpFloat64()
	}
	return times
}

func near(a, b float64) bool {
	return math.Abs(a-b) <= 1e-6*(1+math.Abs(a)+math.Abs(b)) || a != a && b != b
}

// The gain of a variable equals the reduction of the residuals when the variable is added.
func TestGain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(12, 40).Draw(t, "n")
		f := newFit(drawTimes(t, n))
		for range rapid.IntRange(0, 2).Draw(t, "controls") {
			c := drawColumn(t, n)
			f.control(c.controls(false))
		}
		c := drawColumn(t, n)
		g := f.gain(&c)
		before, vectors := f.square, len(f.vectors)
		f.control(c.controls(false))
		if added := len(f.vectors) - vectors; added != g.columns {
			t.Fatalf("gain of %d columns, but %d were added", g.columns, added)
		}
		if g.columns > 0 && !near(g.part*before, before-f.square) {
			t.Fatalf("gain of %v of %v, but the residuals fell by %v", g.part, before, before-f.square)
		}
		if p := g.pValue(); p < 0 || p > 1 {
			t.Fatalf("p-value %v, want a number in [0, 1]", p)
		}
	})
}

// leaveOut computes an interval from the values of a statistic with each request left out.
func leaveOut(n int, statistic func(rows []int) float64) (effect, low, high float64) {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	left := make([]float64, n)
	for i := range left {
		rows := append(append([]int(nil), all[:i]...), all[i+1:]...)
		left[i] = statistic(rows)
	}
	effect = statistic(all)
	low, high = effectInterval(effect, left)
	return effect, low, high
}

func TestBetween(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(12, 30).Draw(t, "n")
		times := drawTimes(t, n)
		codes := make([]int32, n)
		for i := range codes {
			codes[i] = int32(i % 3) // no category is empty
			if i >= 9 {
				codes[i] = int32(rapid.IntRange(0, 2).Draw(t, "code"))
			}
		}
		effect, low, high := between(codes, 3, times)
		e, l, h := leaveOut(n, func(rows []int) float64 {
			e, _, _ := between(pick(codes, rows), 3, pick(times, rows))
			return e
		})
		if !near(effect, e) || !near(low, l) || !near(high, h) {
			t.Fatalf("%v (%v..%v), want %v (%v..%v)", effect, low, high, e, l, h)
		}
		if !(0 <= low && low <= effect+1e-9 && effect <= high+1e-9 && high <= 1) {
			t.Fatalf("%v (%v..%v), want an effect in its interval", effect, low, high)
		}
	})
}

func TestSquaredCorrelation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(12, 30).Draw(t, "n")
		times, values := drawTimes(t, n), drawTimes(t, n)
		for i := range values {
			values[i] += times[i] * float64(n%3)
		}
		c := column{values: values, ranks: ranksOf(values)}
		x := c.values
		if square(stat.Correlation(c.ranks, times, nil)) > square(stat.Correlation(values, times, nil)) {
			x = c.ranks
		}
		effect, low, high := squaredCorrelation(&c, times)
		e, l, h := leaveOut(n, func(rows []int) float64 {
			return square(stat.Correlation(pick(x, rows), pick(times, rows), nil))
		})
		if !near(effect, e) || !near(low, l) || !near(high, h) {
			t.Fatalf("%v (%v..%v), want %v (%v..%v)", effect, low, high, e, l, h)
		}
	})
}

// The variance that remains around a smooth curve is the variance of the noise.
func TestRemains(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const n = 4000
	values, times := make([]float64, n), make([]float64, n)
	for i := range values {
		values[i] = math.Exp(r.NormFloat64())
		times[i] = 10*values[i] + 3*math.Sin(values[i]) + 2*r.NormFloat64()
	}
	c := column{values: values, ranks: ranksOf(values)}
	if got, want := c.remains(times), 4/stat.Variance(times, nil); math.Abs(got/want-1) > 0.1 {
		t.Errorf("remains() = %v, want %v", got, want)
	}
	for i := range times {
		times[i] = r.NormFloat64()
	}
	if got := c.remains(times); got < 0.95 {
		t.Errorf("remains() = %v of independent times, want about 1", got)
	}
}
