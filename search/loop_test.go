package search

import (
	"fmt"
	"os"
	"slices"
	"testing"
)

// TestLoop reports how the strategies do on synthetic applications.
func TestLoop(t *testing.T) {
	seeds := 30
	if os.Getenv("LOOP") == "" {
		seeds = 4
	}
	names := []string{"adaptive", "hierarchical"}
	if os.Getenv("LOOP") == "all" {
		names = Strategies()
	}
	for _, size := range []int{60, 300, 1000} {
		for _, rate := range []float64{2, 10} {
			for _, name := range names {
				if only := os.Getenv("ONLY"); only != "" && only != fmt.Sprintf("%s %d %g", name, size, rate) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d/%g", name, size, rate), func(t *testing.T) {
					t.Parallel()
					report(t, name, size, rate, seeds)
				})
			}
		}
	}
}

func report(t *testing.T, name string, size int, rate float64, seeds int) {
	var top1, top3, located int
	var epochs, found, fraction, hits []float64
	for seed := range seeds {
		if only := os.Getenv("SEED"); only != "" && only != fmt.Sprint(seed) {
			continue
		}
		o := newWorld(uint64(seed), size, rate).play(name, 40, Budget{})
		if o.top == 0 {
			top1++
		}
		if o.top >= 0 && o.top < 3 {
			top3++
		}
		if o.status == Located {
			located++
		}
		epochs, found = append(epochs, float64(o.epochs)), append(found, float64(o.found))
		fraction, hits = append(fraction, float64(o.tried)/float64(o.total)), append(hits, float64(o.hits))
		if os.Getenv("LOOP") == "v" && o.top != 0 {
			fmt.Printf("   %s size %d rate %g seed %d: %+v\n", name, size, rate, seed, o)
		}
	}
	t.Logf("%-13s size %5d rate %3g: top1 %3d/%d top3 %3d located %3d, median epochs %g found %g tried %.1f %% hits %.0f", name, size, rate,
		top1, seeds, top3, located, median(epochs), median(found), 100*median(fraction), median(hits))
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
