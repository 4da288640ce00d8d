package search

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// Question is what a strategy answers.
type Question struct {
	Problem    *detect.Problem
	Tree       *cct.Tree
	Regions    []Region           // what may carry the problem, best first
	Candidates []Candidate        // of all regions, those of a region together and in pre-order
	Enabled    []trace.Symbol     // ascending
	Budget     Budget             // what is left
	Requests   float64            // of the problem, expected in an epoch
	Pairs      []detect.PairShare // edges that vary together, the largest share first
	Seed       uint64
}

// Region is a place that is known to carry part of a problem, without the places below it that are known too: the part that
// nothing explains yet.
type Region struct {
	Tracepoint trace.Symbol // 0: a baseline operation
	Op         trace.Op
	Share      float64            // of what is wrong
	SD         float64            // its standard deviation
	From, To   int                // its candidates: Candidates[From:To]
	Edges      []*group.EdgeShare // those of the problem in its operation
}

// Candidate is a tracepoint that is off and lies in a region.
type Candidate struct {
	Tracepoint trace.Symbol
	Op         trace.Op
	Context    trace.Context
	Node       int32 // the first of its nodes in the tree; -1: none, it may be executed anywhere in the service
	Region     int
	Parent     int // nearest candidate above, an index in Candidates; -1: directly below the region's place
	End        int // its subtree is Candidates[i:End]
	Depth      int // 1: directly below the region's place
	Layer      cct.Layer
	Kind       cct.TracepointKind
	Mass       float64 // prior weight of the cause being here, not below
	Hits       float64 // expected spans per request
	Inside     bool    // can lie between the neighbours of the edges
	Loose      bool    // may be executed anywhere in the operation
}

// Strategy returns what to switch on next, best first, with reasons. It is pure and picks no candidate twice.
type Strategy func(q *Question) []Pick

var strategies = []struct {
	name string
	pick Strategy
}{
	{"adaptive", adaptive},
	{"binary", binary},
	{"breadth-first", breadthFirst},
	{Covariance, covariance},
	{"cross-layer", crossLayer},
	{"flat", flat},
	{"hierarchical", hierarchical},
	{"random", random},
	{"variables", variables},
}

// DefaultStrategy is the name of the strategy that is used where none is chosen.
const DefaultStrategy = "adaptive"

// Covariance is the name of the strategy that goes by pairs of edges, see Input.Pairs.
const Covariance = "covariance"

// Strategies returns the names of all strategies, ascending.
func Strategies() []string {
	var names []string
	for _, s := range strategies {
		names = append(names, s.name)
	}
	return names
}

// StrategyNamed returns the strategy with the given name, the default one for any other.
func StrategyNamed(name string) (string, Strategy) {
	for _, s := range strategies {
		if s.name == name {
			return s.name, s.pick
		}
	}
	return DefaultStrategy, adaptive
}

// batch is how many tracepoints the strategies pick at once that have no limit of their own.
const batch = 8

func (q *Question) pick(i int, score float64, reason string) Pick {
	c := &q.Candidates[i]
	return Pick{Tracepoint: c.Tracepoint, Op: c.Op, Context: c.Context, Region: c.Region, Score: score, Whole: true, Reason: reason}
}

// isSpan reports whether candidate i shows where time is spent.
func (q *Question) isSpan(i int) bool { return q.Candidates[i].Kind != cct.VariablePoint }

// spans returns the candidates of region r that are spans.
func (q *Question) spans(r int) []int {
	var list []int
	for i := q.Regions[r].From; i < q.Regions[r].To; i++ {
		if q.isSpan(i) {
			list = append(list, i)
		}
	}
	return list
}

// within returns the candidates of region r that are spans and can lie between the neighbours of its edges; all spans if none can.
func (q *Question) within(r int) []int {
	list := q.spans(r)
	inside := slices.DeleteFunc(slices.Clone(list), func(i int) bool { return !q.Candidates[i].Inside })
	if len(inside) == 0 {
		return list
	}
	return inside
}

// hierarchical picks all direct children of the place that carries most, and of those that carry half as much.
func hierarchical(q *Question) []Pick {
	var picks []Pick
	for r := range q.Regions {
		if r > 0 && q.Regions[r].Share < q.Regions[0].Share/2 {
			break
		}
		for _, i := range q.within(r) {
			if c := &q.Candidates[i]; c.Depth == 1 {
				picks = append(picks, q.pick(i, q.Regions[r].Share, "child of the place that carries most"))
			}
		}
		if len(picks) > 0 {
			break
		}
	}
	return picks
}

// binary picks the candidate that halves the leading region, and one that halves each half.
func binary(q *Question) []Pick {
	for r := range q.Regions {
		list := q.within(r)
		if len(list) == 0 {
			continue
		}
		s := newSplitter(q, list, func(int) float64 { return 1 })
		var picks []Pick
		for range 3 {
			if i := s.next(); i >= 0 {
				picks = append(picks, q.pick(i, q.Regions[r].Share, "halves what is left"))
			}
		}
		return picks
	}
	return nil
}

// flat picks candidates spread evenly over the leading region.
func flat(q *Question) []Pick {
	for r := range q.Regions {
		list := q.within(r)
		if len(list) == 0 {
			continue
		}
		var picks []Pick
		n := min(batch, len(list))
		for k := range n {
			picks = append(picks, q.pick(list[(2*k+1)*len(list)/(2*n)], q.Regions[r].Share, "spread evenly"))
		}
		return picks
	}
	return nil
}

// covariance picks tracepoints that are candidates in both edges of a pair, of two operations, that vary together: what is common to
// them may be why.
// Those come first whose pairs carry most of the variance. Without any it picks like hierarchical.
func covariance(q *Question) []Pick {
	type common struct {
		at    int // the first of its candidates
		share float64
	}
	var list []common
	for _, at := range q.places() {
		if share := q.commonShare(at); share > 0 {
			list = append(list, common{at[0], share})
		}
	}
	slices.SortFunc(list, func(a, b common) int { return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.at, b.at)) })
	var picks []Pick
	for _, c := range list[:min(batch, len(list))] {
		picks = append(picks, q.pick(c.at, c.share, "common to edges that vary together"))
	}
	if len(picks) == 0 {
		return hierarchical(q)
	}
	return picks
}

// places returns the candidates that are spans, ascending, by tracepoint.
func (q *Question) places() map[trace.Symbol][]int {
	places := make(map[trace.Symbol][]int)
	for i := range q.Candidates {
		if q.isSpan(i) {
			tp := q.Candidates[i].Tracepoint
			places[tp] = append(places[tp], i)
		}
	}
	return places
}

// commonShare returns what the pairs of edges of different operations carry in both of which the given candidates lie.
func (q *Question) commonShare(candidates []int) float64 {
	operation := make(map[trace.Edge]*group.EdgeShare) // by edge: the first of its operation's
	for _, i := range candidates {
		edges := q.Regions[q.Candidates[i].Region].Edges
		for _, e := range edges {
			operation[e.Edge] = edges[0]
		}
	}
	share := 0.0
	for _, p := range q.Pairs {
		if a, b := operation[p.A], operation[p.B]; a != nil && b != nil && a != b {
			share += p.Share
		}
	}
	return share
}

// crossLayer picks runtime tracepoints, then kernel probes, of the leading region; without any it picks like hierarchical.
func crossLayer(q *Question) []Pick {
	for r := range q.Regions {
		for _, layer := range []cct.Layer{cct.Runtime, cct.Kernel} {
			var picks []Pick
			for _, i := range q.spans(r) {
				if c := &q.Candidates[i]; c.Layer == layer && (c.Depth == 1 || c.Layer == cct.Kernel) {
					picks = append(picks, q.pick(i, q.Regions[r].Share*c.Mass, "the layer below"))
				}
			}
			if len(picks) > 0 {
				slices.SortStableFunc(picks, func(a, b Pick) int { return cmp.Compare(b.Score, a.Score) })
				return picks[:min(batch, len(picks))]
			}
		}
	}
	return hierarchical(q)
}

// variables picks attribute captures at the leading place.
func variables(q *Question) []Pick {
	var picks []Pick
	for r := range q.Regions {
		for i := q.Regions[r].From; i < q.Regions[r].To && len(picks) < batch; i++ {
			if !q.isSpan(i) && q.Candidates[i].Depth == 1 {
				picks = append(picks, q.pick(i, q.Regions[r].Share, "its values are not known yet"))
			}
		}
		if len(picks) > 0 {
			return picks
		}
	}
	return hierarchical(q)
}

// random picks any candidates.
func random(q *Question) []Pick {
	list := q.allSpans()
	rng := rand.New(rand.NewPCG(q.Seed, 1))
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return q.batchOf(list, "at random")
}

// breadthFirst picks candidates level by level.
func breadthFirst(q *Question) []Pick {
	list := q.allSpans()
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(q.Candidates[a].Depth, q.Candidates[b].Depth) })
	return q.batchOf(list, "next in breadth-first order")
}

func (q *Question) allSpans() []int {
	var list []int
	for i := range q.Candidates {
		if q.isSpan(i) {
			list = append(list, i)
		}
	}
	return list
}

func (q *Question) batchOf(list []int, reason string) []Pick {
	var picks []Pick
	for _, i := range list[:min(batch, len(list))] {
		picks = append(picks, q.pick(i, 1/float64(1+len(picks)), reason))
	}
	return picks
}

// splitter divides a region by picking candidates one by one: always in the part with the most mass the one that divides it
// best for its cost.
type splitter struct {
	q      *Question
	list   []int     // candidates, in pre-order
	parent []int     // position of the nearest candidate above in list; -1: none
	cost   []float64 // of switching it on
	below  []float64 // mass of the part of the subtree not below a picked one
	picked []bool
	part   []int // position of the picked one whose part it is in; -1: the region itself
	root   float64
}

// newSplitter prepares to divide the given candidates of one region.
func newSplitter(q *Question, list []int, mass func(i int) float64) *splitter {
	s := &splitter{
		q: q, list: list, parent: make([]int, len(list)), cost: make([]float64, len(list)),
		below: make([]float64, len(list)), picked: make([]bool, len(list)), part: make([]int, len(list)), root: 1,
	}
	var above []int // positions of the candidates around the present one
	for k, i := range list {
		for len(above) > 0 && q.Candidates[list[above[len(above)-1]]].End <= i {
			above = above[:len(above)-1]
		}
		s.parent[k], s.part[k] = -1, -1
		if len(above) > 0 {
			s.parent[k] = above[len(above)-1]
		}
		above = append(above, k)
		s.below[k], s.cost[k] = mass(i), math.Sqrt(0.5+q.Candidates[i].Hits)
		s.root += s.below[k]
	}
	for k := range slices.Backward(list) {
		if p := s.parent[k]; p >= 0 {
			s.below[p] += s.below[k]
		}
	}
	return s
}

// next picks a candidate and returns its index in the question; -1 when all are picked.
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

// gain returns what picking k reveals of a part with the given mass, per cost: the variance of whether the cause is below k,
// times the mass of the part.
func (s *splitter) gain(k int, whole float64) float64 {
	return s.below[k] * (1 - s.below[k]/whole) / s.cost[k]
}

// take marks k as picked: its part of the subtree leaves the part that it was in.
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
