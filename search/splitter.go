package search

import (
	"math"
	"slices"
)

// splitter divides a region by picking one candidate at a time, always the one with the largest gain for its cost.
type splitter struct {
	q      *Question
	list   []int     // candidates, in pre-order
	parent []int     // position in list of the nearest candidate above, or -1
	cost   []float64 // cost of switching the candidate on
	below  []float64 // weight of the subtree without the parts of picked candidates
	picked []bool
	part   []int   // position of the picked candidate whose part the candidate is in; -1 for the rest of the region
	root   float64 // weight of the rest of the region
}

// newSplitter returns a splitter of list, which must be candidates of one region in pre-order. weight returns the
// weight of candidate i.
func newSplitter(q *Question, list []int, weight func(i int) float64) *splitter {
	s := &splitter{
		q: q, list: list, parent: make([]int, len(list)), cost: make([]float64, len(list)),
		below: make([]float64, len(list)), picked: make([]bool, len(list)), part: make([]int, len(list)), root: 1,
	}
	var above []int // positions of the candidates that enclose the current one
	for k, i := range list {
		for len(above) > 0 && q.Candidates[list[above[len(above)-1]]].End <= i {
			above = above[:len(above)-1]
		}
		s.parent[k], s.part[k] = -1, -1
		if len(above) > 0 {
			s.parent[k] = above[len(above)-1]
		}
		above = append(above, k)
		s.below[k], s.cost[k] = weight(i), math.Sqrt(0.5+q.Candidates[i].Hits)
		s.root += s.below[k]
	}
	for k := range slices.Backward(list) {
		if p := s.parent[k]; p >= 0 {
			s.below[p] += s.below[k]
		}
	}
	return s
}

// next picks a candidate and returns its index in the question, or -1 if all are picked.
func (s *splitter) next() int {
	best, gain := -1, math.Inf(-1)
	for k := range s.list {
		if s.picked[k] {
			continue
		}
		whole := s.root
		if s.part[k] >= 0 {
			whole = s.below[s.part[k]]
		}
		if g := s.gain(k, whole); g > gain {
			best, gain = k, g
		}
	}
	if best < 0 {
		return -1
	}
	s.take(best)
	return s.list[best]
}

// gain returns the information gained per cost by picking k in a part of weight `whole`: whole times the variance of
// whether the cause is below k.
func (s *splitter) gain(k int, whole float64) float64 {
	return s.below[k] * (1 - s.below[k]/whole) / s.cost[k]
}

// take marks k as picked and splits its subtree off as a new part.
func (s *splitter) take(k int) {
	from := s.part[k]
	for j := s.parent[k]; j >= 0 && j != from; j = s.parent[j] {
		s.below[j] -= s.below[k]
	}
	if from >= 0 {
		s.below[from] -= s.below[k]
	} else {
		s.root -= s.below[k]
	}
	s.picked[k] = true
	for j := k + 1; j < len(s.list) && s.list[j] < s.q.Candidates[s.list[k]].End; j++ {
		if s.part[j] == from {
			s.part[j] = k
		}
	}
	s.part[k] = k
}
