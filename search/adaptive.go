package search

import (
	"cmp"
	"math"
	"math/rand/v2"

	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// DefaultStrategy is the name of the strategy that is used if no name is given.
const DefaultStrategy = "adaptive"

func defaultStrategy() Strategy { return Strategy{Name: DefaultStrategy, Pick: adaptive, Frugal: true} }

// Limits on the picks of adaptive.
const (
	minSplit      = 3   // so that a step at least halves the region
	maxSplit      = 32  // so that a region with thousands of siblings does not take the whole budget
	takeWhole     = 5   // a region with at most this many candidates is picked whole
	secondDraw    = 0.8 // a second region is divided, too, if its draw is at least this fraction of the best draw
	maxUnanchored = 12  // unanchored candidates to try if there are no others; more if over twice as many lack a caller
	fewUnanchored = 4   // unanchored candidates to try alongside functions that divide the region
)

// adaptive picks the candidates that reveal the most of the unexplained share for their cost:
//
//  1. Regions are drawn by Thompson sampling over their posterior shares, so that a region that is only probably better
//     doesn't starve the others.
//  2. The drawn region is divided. Each pick splits a part in two, and is the candidate with the largest information
//     gain per cost. Parts are weighed by their prior weight (from smoothed history, or else the number of locations).
//     Shares are inclusive, so a location that appears below one pick but not below another tells the parts apart even
//     if tracepoints in between are off.
//  3. Unanchored candidates, such as probes of the process, are tried alongside the others, a few at a time, because
//     one of them may turn out to carry most of the share. Below a leaf, many are tried at once: half of the candidates
//     with unknown callers.
//
// Its picks are enabled for only as many requests as a verdict needs.
func adaptive(q *Question) []Pick {
	rng := rand.New(rand.NewPCG(q.Seed, 2))
	draws := make([]float64, len(q.Regions))
	order := make([]int, len(q.Regions))
	for r := range q.Regions {
		order[r] = r
		draws[r] = q.Regions[r].Share + q.Regions[r].SD*rng.NormFloat64()
	}
	sorting.SliceStable(order, func(a, b int) int { return cmp.Compare(draws[b], draws[a]) })
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

// divide returns the picks that divide region r, and its unanchored picks. If agents have sampled the stacks of slow
// requests, it picks the functions that account for most of the time on them.
func (q *Question) divide(r int) []Pick {
	if picks := q.standing(r); len(picks) > 0 {
		return picks
	}
	var inside, outside, anywhere []int
	callersUnknown := 0
	for _, i := range q.spans(r) {
		switch c := &q.Candidates[i]; {
		case c.Node < 0:
			anywhere = append(anywhere, i)
			if c.Parent < 0 {
				callersUnknown++
			}
		case c.Inside:
			inside = append(inside, i)
		default:
			outside = append(outside, i)
		}
	}
	picks := q.split(r, inside, q.splitCount(len(inside)), "divides the largest unexplained part")
	if len(inside) == 0 {
		picks = q.split(r, outside, q.splitCount(len(outside)), "may reach into the largest unexplained part")
	}
	most := min(max(maxUnanchored, callersUnknown/2), maxSplit)
	if len(picks) > 0 || q.Regions[r].Sampled {
		most = min(int(fewUnanchored*q.wait()), maxUnanchored)
	}
	return append(picks,
		q.split(r, anywhere, min(len(anywhere), most), "may run anywhere in the largest unexplained part")...)
}

// split returns picks of the n candidates in list that divide region r best, in descending order of gain.
func (q *Question) split(r int, list []int, n int, reason string) []Pick {
	s := newSplitter(q, list, q.priorWeight)
	var picks []Pick
	for range n {
		picks = append(picks, q.Pick(s.next(), q.Regions[r].Share/float64(1+len(picks)), reason))
	}
	return picks
}

// priorWeight returns the prior weight of candidate i in its region. It is halved for an unanchored candidate, which
// may lie in another region.
func (q *Question) priorWeight(i int) float64 {
	if q.Candidates[i].Unanchored {
		return q.Candidates[i].PriorWeight / 2
	}
	return q.Candidates[i].PriorWeight
}

// splitCount returns the number of candidates, out of n, to pick at once: about √n, so that each resulting part has
// about as many candidates as there are picks. If requests are rare, so that a step lasts several epochs, it returns
// proportionally more, because time is then scarce and spans are cheap.
func (q *Question) splitCount(n int) int {
	if n <= takeWhole {
		return n
	}
	return min(max(int(math.Ceil(1.2*math.Sqrt(float64(n))*q.wait())), minSplit), maxSplit, n)
}

// wait returns the number of epochs until picks can be judged, from 1 to maxSplit.
func (q *Question) wait() float64 { return min(max(1, minRequests/q.Requests), maxSplit) }
