package history

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// Logarithms never fall, and differ from [math.Log2] by less than a step.
func TestLogOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nanos := int64(1) << rapid.IntRange(0, 62).Draw(t, "octave")
		nanos += rapid.Int64Range(0, nanos-1).Draw(t, "rest")
		want := math.Log2(float64(nanos)/logFrom+1) * LogsPerOctave
		if got := logOf(nanos); math.Abs(float64(got)-want) > 1 || got < logOf(nanos-1) {
			t.Fatalf("logOf(%d) = %d, want about %.2f and at least %d", nanos, got, want, logOf(nanos-1))
		}
	})
	if logOf(0) != 0 || logOf(-1) != 0 {
		t.Error("no time has a logarithm above 0")
	}
}

// variedCalls returns n calls per slice with log-normal times around a typical time in ns. One in a hundred takes ten
// times as long.
func variedCalls(r *rand.Rand, from, to Slice, n int, typical float64) (c Cells) {
	for at := from; at < to; at++ {
		for range n {
			own := typical * math.Exp(0.5*r.NormFloat64())
			if r.IntN(100) == 0 {
				own *= 10
			}
			c.Add(Cell{Slice: at, Calls: 1, Nanos: int64(own), logs: logOf(int64(own))})
		}
	}
	return c
}

// The typical time of two thousand calls is the geometric mean of their times, however long a few of them take.
func TestTypical(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	const usual = 3e6
	var all Cell
	for _, x := range variedCalls(r, 0, 18, 100, usual) {
		all.Merge(&x)
	}
	if got, want := all.Typical(), math.Log2(usual/logFrom+1); math.Abs(got-want) > 0.1 {
		t.Errorf("typical time %.3f octaves, want %.3f", got, want)
	}
}
