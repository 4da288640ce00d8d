package sorting_test

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// TestLikeSlices compares the orders with those of package slices, also of equal elements.
func TestLikeSlices(t *testing.T) {
	type element struct{ key, index int }
	byKey := func(a, b element) int { return cmp.Compare(a.key, b.key) }
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		s := make([]element, n)
		for i := range s {
			s[i] = element{r.IntN(1 + n/3), i}
		}
		for name, sort := range map[string][2]func([]element, func(a, b element) int){
			"Slice":       {sorting.Slice[element], slices.SortFunc[[]element]},
			"SliceStable": {sorting.SliceStable[element], slices.SortStableFunc[[]element]},
		} {
			got, want := slices.Clone(s), slices.Clone(s)
			sort[0](got, byKey)
			sort[1](want, byKey)
			if !slices.Equal(got, want) {
				t.Fatalf("%s of %d elements: %v, want %v", name, n, got, want)
			}
		}
	}
}

func TestSorted(t *testing.T) {
	got := sorting.Sorted(maps.Keys(map[string]bool{"b": true, "c": true, "a": true}), cmp.Compare)
	if want := []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
