package baselinediff

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// Logarithms never fall, and are those of [math.Log2] but for their steps.
func TestLogOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nanos := int64(1) << rapid.IntRange(0, 62).Draw(t, "octave")
		nanos += rapid.Int64Range(0, nanos-1).Draw(t, "rest")
		want := math.Log2(float64(nanos)/logFrom+1) * logsPerOctave
		if got := logOf(nanos); math.Abs(float64(got)-want) > 1 || got < logOf(nanos-1) {
			t.Fatalf("logOf(%d) = %d, want about %.2f and at least %d", nanos, got, want, logOf(nanos-1))
		}
	})
	if logOf(0) != 0 || logOf(-1) != 0 {
		t.Error("no time has a logarithm above 0")
	}
}

// variedCalls returns n calls a slice with log-normal times around a typical one in ns; one in a hundred takes ten
// times as long.
func variedCalls(r *rand.Rand, from, to slice, n int, typical float64) (c cells) {
	for at := from; at < to; at++ {
		for range n {
			own := typical * math.Exp(0.5*r.NormFloat64())
			if r.IntN(100) == 0 {
				own *= 10
			}
			c.add(cell{at, 1, int64(own), logOf(int64(own))})
		}
	}
	return c
}

// The typical time of two thousand calls is the geometric mean of their times, whatever a few of them take.
func TestTypical(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	const usual = 3e6
	var all cell
	for _, x := range variedCalls(r, 0, 18, 100, usual) {
		all.merge(&x)
	}
	if got, want := all.typical(), math.Log2(usual/logFrom+1); math.Abs(got-want) > 0.1 {
		t.Errorf("typical time %.3f octaves, want %.3f", got, want)
	}
}

// The growth of typical times is the mean over the calls of a window, with or without its first part, whichever is more
// certain. It has to show in all parts.
func TestTypicalRise(t *testing.T) {
	type part struct{ calls, octaves float64 }
	for _, c := range []struct {
		parts       [3]part
		want, calls float64
	}{
		{[3]part{}, 0, 0},
		{[3]part{{10, 0}, {10, 10}, {10, 10}}, 1, 20},
		{[3]part{{10, 5}, {10, 10}, {10, 10}}, 2.5 / 3, 30}, // sqrt(30) of it are more than sqrt(20) of 1
		{[3]part{{10, 10}, {10, 10}, {10, 10}}, 1, 30},
		{[3]part{{10, 0}, {10, 5}, {10, 15}}, 1, 20}, // half of it
		{[3]part{{10, 0}, {10, 4}, {10, 16}}, 0, 0},  // less
		{[3]part{{10, 0}, {10, 0}, {10, 20}}, 0, 0},  // began within the window
		{[3]part{{10, 0}, {10, 20}, {10, 0}}, 0, 0},  // ended within it
		{[3]part{{10, 0}, {30, 30}, {10, 20}}, 1.25, 40},
		{[3]part{{10, 0}, {10, 0.9}, {10, 0.9}}, 0, 0}, // less than leastRise
		{[3]part{{10, -10}, {10, -10}, {10, -10}}, 0, 0},
		{[3]part{{10, 0}, {0, 0}, {10, 10}}, 0, 0}, // a part without calls shows nothing
	} {
		var times typicalTimes
		for i, x := range c.parts {
			times.parts[i].calls, times.parts[i].nanos, times.parts[i].octaves = x.calls, 100*x.calls, x.octaves
		}
		if got := times.rise(); math.Abs(got.octaves-c.want) > 1e-9 || got.calls != c.calls || math.Abs(got.nanos-100*(1-math.Exp2(-c.want))) > 1e-9 {
			t.Errorf("%v: %+v of 100 ns; want %.3f octaves of %.0f calls", c.parts, got, c.want, c.calls)
		}
	}
}
