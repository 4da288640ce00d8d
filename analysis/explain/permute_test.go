package explain

import (
	"fmt"
	"math"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
)

// noiseStudy returns a study of variables that are independent of the durations of n requests, the fit of the first
// target with some of the variables as controls, and the smallest p-value of the F test of any variable.
func noiseStudy(seed uint64, n int, duration func(w *world) float64, controls int) (*study, *fit, float64) {
	w := newWorld(seed)
	for range n {
		w.noise(w.request(5*w.heavy(0.3), duration(w), 0), 12)
	}
	s := newStudy(Options{Alpha: 0.02, Edges: 3, Seed: seed}, w.table, w.requests)
	s.collect()
	s.addTargets(&detect.Problem{Level: group.LevelGroup})
	f := newFit(s.targets[0].logs)
	for k := range controls {
		f.control(s.columns[k].controls(false))
	}
	lowest := 1.0
	for k := range s.columns {
		if p := f.gain(&s.columns[k]).pValue(); p < lowest {
			lowest = p
		}
	}
	return s, f, lowest
}

// P-values by permutation are uniform if there are no effects, for any distribution of durations.
func TestPermutationP(t *testing.T) {
	for name, duration := range durations {
		for controls := range 3 {
			t.Run(fmt.Sprint(name, controls), func(t *testing.T) {
				const seeds, level = 300, 0.2
				below := 0
				for seed := range uint64(seeds) {
					s, f, p := noiseStudy(seed, 32, duration, controls)
					if s.permutationP(f, &s.targets[0], p) <= level {
						below++
					}
				}
				if off := math.Abs(float64(below) - level*seeds); off > 4*math.Sqrt(seeds*level*(1-level)) {
					t.Errorf("%d of %d p-values are at most %v, want about %v", below, seeds, level, level*seeds)
				}
			})
		}
	}
}
