// Package yardstick provides search strategies to compare the published ones with. They ignore evidence and cost, and
// the product does not offer them.
package yardstick

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/sibyl-trace/sibyl/search"
)

// Strategies returns the yardsticks, ascending by name.
func Strategies() []search.Strategy {
	return []search.Strategy{
		{Name: "breadth-first", Pick: breadthFirst},
		{Name: "flat", Pick: flat},
		{Name: "random", Pick: random},
		{Name: "variables", Pick: variables},
	}
}

// breadthFirst picks candidates level by level.
func breadthFirst(q *search.Question) []search.Pick {
	list := spans(q)
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(q.Candidates[a].Depth, q.Candidates[b].Depth) })
	return inOrder(q, list, "next in breadth-first order")
}

// random picks candidates in a random order that depends on the question's seed only.
func random(q *search.Question) []search.Pick {
	list := spans(q)
	rng := rand.New(rand.NewPCG(q.Seed, 1))
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return inOrder(q, list, "at random")
}

// flat picks candidates spread evenly over the first leading region that has candidates.
func flat(q *search.Question) []search.Pick {
	for r := range q.Regions {
		list := q.Within(r)
		if len(list) == 0 {
			continue
		}
		var picks []search.Pick
		n := min(search.PicksAtOnce, len(list))
		for k := range n {
			picks = append(picks, q.Pick(list[(2*k+1)*len(list)/(2*n)], q.Regions[r].Share, "spread evenly"))
		}
		return picks
	}
	return nil
}

// variables picks attribute captures directly below the first leading location that has some. If no location has
// captures, it picks like [search.Hierarchical].
func variables(q *search.Question) []search.Pick {
	var picks []search.Pick
	for r := range q.Regions {
		for i := q.Regions[r].From; i < q.Regions[r].To && len(picks) < search.PicksAtOnce; i++ {
			if !q.IsSpan(i) && q.Candidates[i].Depth == 1 {
				picks = append(picks, q.Pick(i, q.Regions[r].Share, "its values are not known yet"))
			}
		}
		if len(picks) > 0 {
			return picks
		}
	}
	return search.Hierarchical(q)
}

// spans returns the candidates of all regions that are spans.
func spans(q *search.Question) []int {
	var list []int
	for i := range q.Candidates {
		if q.IsSpan(i) {
			list = append(list, i)
		}
	}
	return list
}

// inOrder picks the first candidates of list, with falling scores.
func inOrder(q *search.Question, list []int, reason string) []search.Pick {
	var picks []search.Pick
	for _, i := range list[:min(search.PicksAtOnce, len(list))] {
		picks = append(picks, q.Pick(i, 1/float64(1+len(picks)), reason))
	}
	return picks
}
