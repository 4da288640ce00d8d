package explain

import (
	"fmt"
	"math"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
)

// noiseStudy returns a study of some variables that have nothing to do with the durations of n requests, and of the first target the fit,
// with what some of the variables account for, and the smallest p-value of the F test that is left.
func noiseStudy(seed uint64, n int, duration func(w *world) float64, controls int) (*study, *fit, float64) {
	w := newWorld(seed)
	for range n {
		w.noise(w.request(5*w.heavy(0.3), duration(w), 0), 12)
	}
	s := newStudy(Options{Alpha: 0.02, Edges: 3, Seed: seed}, w.table, w.requests)
	s.collect()
	s.aim(&detect.Problem{Level: group.LevelGroup})
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

// The smallest of many p-values is as small as it is, among orders of the requests, as often as byOrder says, whatever the distribution.
func TestByOrder(t *testing.T) {
	for name, duration := range durations {
		for controls := range 3 {
			t.Run(fmt.Sprint(name, controls), func(t *testing.T) {
				const seeds, level = 300, 0.2
				below := 0
				for seed := range uint64(seeds) {
					s, f, p := noiseStudy(seed, 32, duration, controls)
					if s.byOrder(f, &s.targets[0], p) <= level {
						below++
					}
				}
				if off := math.Abs(float64(below) - level*seeds); off > 4*math.Sqrt(seeds*level*(1-level)) {
					t.Errorf("%d of %d p-values are at most %v", below, seeds, level)
				}
			})
		}
	}
}
