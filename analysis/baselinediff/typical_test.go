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
	want := math.Log2(usual/logFrom + 1)
	if got, lower := variedCalls(r, 0, 18, 100, usual).typical(); math.Abs(got-want) > 0.15 || lower > got {
		t.Errorf("typical time %.3f octaves, the lower part %.3f, want %.3f", got, lower, want)
	}
}

// A change shows in the last two thirds of a window. The lower one tells whether one of them is as before.
func TestTypicalParts(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 0))
	const usual = 3e6
	want := math.Log2(usual/logFrom + 1)
	for slow, rises := range map[sliceRange]bool{
		{6, 18}: true, {0, 18}: true, {12, 18}: false, {6, 12}: false, {0, 6}: false,
	} {
		var c cells
		for at := range slice(18) {
			factor := 1.0
			if slow.contains(at) {
				factor = 4
			}
			for _, x := range variedCalls(r, at, at+1, 100, factor*usual) {
				c.add(x)
			}
		}
		both, lower := c.typical()
		if first := slow == (sliceRange{0, 6}); !rises && !first && math.Abs(both-want-1) > 0.2 {
			t.Errorf("four times as long in slices %v: rise %.2f octaves, want 1", slow, both-want)
		}
		if rise := lower - want; rises && math.Abs(rise-2) > 0.2 || !rises && rise > 0.2 {
			t.Errorf("four times as long in slices %v: rise %.2f octaves, raised: %v", slow, rise, rises)
		}
	}
	one := cells{{slice: 3, calls: 2, nanos: 2 * usual, logs: 2 * logOf(usual)}}
	if got, lower := one.typical(); math.Abs(got-want) > 1.0/logsPerOctave || lower != got {
		t.Errorf("one slice: %.3f octaves, the lower part %.3f, want %.3f", got, lower, want)
	}
}
