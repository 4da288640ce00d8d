package search

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Bounds of what adaptive picks at once.
const (
	leastSplit = 3   // so that a step always halves the region at least
	mostSplit  = 32  // so that a region of thousands of siblings does not take the whole budget
	secondDraw = 0.8 // a second region is divided too if its draw is this fraction of the best
	all        = 5   // regions of so few candidates are taken whole
	mostProbes = 12  // of what may be anywhere, at a place where nothing else is left to try
	fewProbes  = 4   // of what may be anywhere, while functions divide the region
)

// adaptive picks what reveals most of the share that nothing explains yet, per unit of cost:
//
//  1. Regions are drawn by Thompson sampling over their posterior shares, so that one that is only probably better does
//     not starve the others.
//  2. The drawn region is divided: each pick takes the part with the most prior mass (history, smoothed; else the number of
//     places) and divides it best for its cost. Shares are inclusive, so that what shows below one pick and not below
//     another tells the parts apart, whatever lies between is off.
//  3. What may be executed anywhere in the operation, such as probes of its process, is tried beside, a few at a time while
//     there is something to divide: it need not be tried to the end where one of them turns out to carry most. Below a leaf
//     many are tried at once.
//
// It asks for as many requests as a verdict needs, not for all.
func adaptive(q *Question) []Pick {
	rng := rand.New(rand.NewPCG(q.Seed, 2))
	draws := make([]float64, len(q.Regions))
	order := make([]int, len(q.Regions))
	for r := range q.Regions {
		order[r] = r
		draws[r] = q.Regions[r].Share + q.Regions[r].SD*rng.NormFloat64()
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(draws[b], draws[a]) })
	var picks []Pick
	for k, r := range order {
		if k > 1 || len(picks) > 0 && draws[r] < secondDraw*draws[order[0]] {
			break
		}
		picks = append(picks, q.divide(r)...)
	}
	for i := range picks {
		picks[i].Whole = false
	}
	return picks
}

// divide returns the picks that divide region r, and those that may be anywhere in it.
func (q *Question) divide(r int) []Pick {
	var inside, outside, anywhere []int
	for _, i := range q.spans(r) {
		switch c := &q.Candidates[i]; {
		case c.Node < 0:
			anywhere = append(anywhere, i)
		case c.Inside:
			inside = append(inside, i)
		default:
			outside = append(outside, i)
		}
	}
	picks := q.split(r, inside, q.splitCount(len(inside)), "divides what carries most")
	if len(inside) == 0 {
		picks = q.split(r, outside, q.splitCount(len(outside)), "may reach into what carries most")
	}
	probes := mostProbes
	if len(picks) > 0 {
		probes = min(int(fewProbes*q.wait()), mostProbes)
	}
	return append(picks, q.split(r, anywhere, min(len(anywhere), probes), "may be anywhere in what carries most")...)
}

// split returns the n of list that divide region r best, best first.
func (q *Question) split(r int, list []int, n int, reason string) []Pick {
	s := newSplitter(q, list, q.mass)
	var picks []Pick
	for range n {
		picks = append(picks, q.Pick(s.next(), q.Regions[r].Share/float64(1+len(picks)), reason))
	}
	return picks
}

// mass returns the prior weight of candidate i. What may be anywhere in an operation is in this region only perhaps.
func (q *Question) mass(i int) float64 {
	if q.Candidates[i].Loose {
		return q.Candidates[i].Mass / 2
	}
	return q.Candidates[i].Mass
}

// splitCount returns how many of n candidates are picked at once: about as many as parts they leave to be divided by the
// next step. Where a step takes several epochs, for want of requests, it is so much wider: then time is dear and spans are few.
func (q *Question) splitCount(n int) int {
	if n <= all {
		return n
	}
	return min(max(int(math.Ceil(1.2*math.Sqrt(float64(n))*q.wait())), leastSplit), mostSplit, n)
}

// wait returns how many epochs it takes until what is picked now can be judged, at least 1.
func (q *Question) wait() float64 { return min(max(1, minRequests/q.Requests), mostSplit) }
