package search

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
)

// tally sums up the outcomes of one strategy in many worlds.
type tally struct {
	runs, top1, top3, located int
	epochs, fraction          []float64
	hits                      int
}

func (y *tally) add(o outcome) {
	y.runs++
	if o.top == 0 {
		y.top1++
	}
	if o.top >= 0 && o.top < 3 {
		y.top3++
	}
	if o.status == Located {
		y.located++
	}
	y.epochs = append(y.epochs, float64(o.epochs))
	y.fraction = append(y.fraction, float64(o.tried)/float64(o.total))
	y.hits += o.hits
}

func (y *tally) String() string {
	return fmt.Sprintf("top-1 %d/%d, top-3 %d, located %d, median of %g epochs and %.1f %% of the tracepoints, "+
		"%d spans in all", y.top1, y.runs, y.top3, y.located, median(y.epochs), 100*median(y.fraction), y.hits)
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

// play runs the strategy called name in worlds seeded with 0 to seeds-1.
func play(name string, size int, rate float64, seeds int) *tally {
	var y tally
	for seed := range seeds {
		y.add(newWorld(uint64(seed), size, rate).play(name, 40, Budget{}))
	}
	return &y
}

// TestStrategiesLocate checks that every strategy finds most causes, and that adaptive finds at least as many as
// hierarchical with fewer spans. The environment variable WORLDS sets the number of worlds.
func TestStrategiesLocate(t *testing.T) {
	worlds, size, rate := 12, 300, 10.0
	if n, err := strconv.Atoi(os.Getenv("WORLDS")); err == nil {
		worlds = n
	}
	tallies := make(map[string]*tally)
	for _, name := range StrategyNames() {
		y := play(name, size, rate, worlds)
		tallies[name] = y
		t.Logf("%-13s %s", name, y)
		if 4*y.top1 < 3*y.runs {
			t.Errorf("%s ranks only %d of %d causes first", name, y.top1, y.runs)
		}
	}
	a, h := tallies["adaptive"], tallies["hierarchical"]
	if a.top1 < h.top1 || a.hits >= h.hits {
		t.Errorf("adaptive finds %d at the price of %d spans, hierarchical %d for %d", a.top1, a.hits, h.top1, h.hits)
	}
}
