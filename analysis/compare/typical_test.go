package compare

import (
	"math"
	"testing"
)

// The growth of typical times is the mean over the calls of a window, with or without its first part, whichever is more
// certain. It must show in all parts.
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
		{[3]part{{10, 0}, {10, 0}, {10, 20}}, 0, 0},  // started within the window
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
		if got := times.rise(); math.Abs(got.octaves-c.want) > 1e-9 ||
			got.calls != c.calls || math.Abs(got.nanos-100*(1-math.Exp2(-c.want))) > 1e-9 {
			t.Errorf("%v: %+v of 100 ns; want %.3f octaves of %.0f calls", c.parts, got, c.want, c.calls)
		}
	}
}
