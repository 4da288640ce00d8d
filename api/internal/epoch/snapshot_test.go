package epoch

import (
	"math"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/detect"
)

// Changed problems come first, then the problems whose requests lose the most time.
func TestRank(t *testing.T) {
	got := Ranks([]detect.Problem{
		{Onset: detect.Chronic, Impact: 9},
		{Onset: detect.Changed, Impact: math.NaN()},
		{Onset: detect.Chronic, Impact: 37},
		{Onset: detect.Changed, Impact: 1},
		{Onset: detect.Changed, Impact: 2},
	})
	if want := []int{5, 3, 4, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("ranks %v, want %v", got, want)
	}
}
