package search

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Minimum shares for a region to be searched.
const (
	refutedShare = 0.1  // of the leading operation's share; locations that can't carry this much are switched off
	liveShare    = 0.15 // of the best region's share
)

// Question is the input of a [Strategy], which picks some of its candidates.
type Question struct {
	Regions    []Region           // regions that may carry the problem, best first
	Candidates []Candidate        // candidates in all regions; the candidates of a region are adjacent and in pre-order
	Requests   float64            // expected number of requests of the problem in an epoch
	Pairs      []detect.PairShare // edges that vary together, the largest share first
	Seed       uint64
}

// Region is a part of the problem that nothing explains yet: a known location with the unknown locations below it, down
// to the next known locations. A location is known once enough requests have run with its tracepoint on.
type Region struct {
	Tracepoint trace.Symbol // 0 for a baseline operation
	Op         trace.Op
	Share      float64            // share of the problem
	SD         float64            // standard deviation of Share
	Sampled    bool               // whether the stacks of its operation's slow requests are known
	From, To   int                // its candidates: Candidates[From:To]
	Edges      []*group.EdgeShare // edges of the problem in the region's operation
}

// Candidate is a tracepoint in a region that is off.
type Candidate struct {
	Tracepoint  trace.Symbol
	Op          trace.Op
	Context     trace.Context
	Node        int32 // first node in the tree; -1 if not in the tree, so that it may run anywhere in the service
	Region      int
	Parent      int // index of the nearest candidate above, or -1 if the region has none
	End         int // its subtree is Candidates[i:End]
	Depth       int // 1 directly below the region's location
	Layer       cct.Layer
	Kind        cct.TracepointKind
	PriorWeight float64 // weight of the cause being here rather than below
	Hits        float64 // expected number of spans per request
	Standing    float64 // share of the time of slow requests that it accounts for; 0 if unknown
	Calls       bool    // it is a call of another service; known only if there is a sample
	Inside      bool    // it can lie between the neighbours of the region's edges
	Unanchored  bool    // it may run anywhere in the operation
}

// Pick returns the pick of candidate i, for all requests.
func (q *Question) Pick(i int, score float64, reason string) Pick {
	c := &q.Candidates[i]
	return Pick{
		Tracepoint: c.Tracepoint,
		Op:         c.Op,
		Context:    c.Context,
		Region:     c.Region,
		Score:      score,
		Whole:      true,
		Reason:     reason,
	}
}

// IsSpan reports whether candidate i records a span rather than a variable.
func (q *Question) IsSpan(i int) bool { return q.Candidates[i].Kind != cct.VariablePoint }

// spans returns the candidates of region r that are spans.
func (q *Question) spans(r int) []int {
	var list []int
	for i := q.Regions[r].From; i < q.Regions[r].To; i++ {
		if q.IsSpan(i) {
			list = append(list, i)
		}
	}
	return list
}

// Within returns the spans among the candidates of region r that can lie between the neighbours of its edges, or all
// spans if none can.
func (q *Question) Within(r int) []int {
	list := q.spans(r)
	inside := slices.DeleteFunc(slices.Clone(list), func(i int) bool { return !q.Candidates[i].Inside })
	if len(inside) == 0 {
		return list
	}
	return inside
}

// open counts the candidates in the region of each location. Candidates that may lie in any region are counted for
// every function with enough own share. excluded returns a reason for tracepoints that may not be switched on.
func (o *operationScope) open(excluded func(tp trace.Symbol) string) []int {
	counts, anywhere := make([]int, len(o.locations)), 0
	for k := range o.locations {
		l := &o.locations[k]
		switch {
		case l.known || l.offStack || l.kind == cct.VariablePoint || excluded(l.tp) != "":
		case o.sampled && l.layer == cct.Kernel: // it may explain a function, but need not divide it
		case l.anyRegion:
			anywhere++
		default:
			counts[l.region]++
		}
	}
	least := liveShare * o.locations[o.bestFunction()].own
	for k := range o.locations {
		if l := &o.locations[k]; l.known && l.layer == cct.App && l.own >= least {
			counts[k] += anywhere
		}
	}
	return counts
}

// bestFunction returns the known function with the largest own share, which may be the operation itself. Only functions
// may call unanchored tracepoints: a thread that waits in the kernel runs no tracepoints, and runtimes announce the
// tracepoints that they call.
func (o *operationScope) bestFunction() int32 {
	best := int32(0)
	for k := range o.locations {
		if l := &o.locations[k]; l.known && l.layer == cct.App && l.own > o.locations[best].own {
			best = int32(k)
		}
	}
	return best
}

// knownLocation identifies a known location by its scope and its index in the scope.
type knownLocation struct {
	scope *operationScope
	index int32
}

// share returns the location's own share of the problem.
func (k knownLocation) share() float64 { return k.scope.score * k.scope.locations[k.index].own }

// regionsOf returns the regions that may carry the problem, best first, and the known location of each. Their
// candidates are not set yet.
func regionsOf(scopes []*operationScope) (regions []Region, at []knownLocation) {
	var known []knownLocation
	most := 0.0
	for _, o := range scopes {
		for i := range o.locations {
			if o.locations[i].known {
				k := knownLocation{o, int32(i)}
				known = append(known, k)
				most = max(most, k.share())
			}
		}
	}
	sorting.SliceStable(known, func(x, y knownLocation) int { return cmp.Compare(y.share(), x.share()) })
	for _, k := range known {
		l := &k.scope.locations[k.index]
		sd := k.scope.score * l.ownSD
		if k.share() < liveShare*most || k.share()+1.96*sd < refutedShare*scopes[0].score {
			continue
		}
		regions = append(regions, Region{
			Tracepoint: l.tp,
			Op:         l.op,
			Share:      k.share(),
			SD:         sd,
			Sampled:    k.scope.sampled,
			Edges:      k.scope.edges,
		})
		at = append(at, k)
	}
	return regions, at
}

// candidateList collects the candidates of regions.
type candidateList struct {
	excluded   func(tp trace.Symbol) string // returns a reason for tracepoints that may not be switched on
	candidates []Candidate
	rejected   []Rejected
}

// fill sets q.Candidates and the candidates of each region. at[r] must be the known location of q.Regions[r]. fill
// returns the tracepoints that are not worth switching on, or that may not be switched on, each with the reason.
func (q *Question) fill(
	at []knownLocation, scopes []*operationScope, excluded func(tp trace.Symbol) string,
) []Rejected {
	size := 0
	for _, o := range scopes {
		size += len(o.locations)
	}
	c := candidateList{excluded: excluded, candidates: make([]Candidate, 0, size)}
	for r, k := range at {
		q.Regions[r].From = len(c.candidates)
		c.region(k.scope, k.index, r)
		q.Regions[r].To = len(c.candidates)
	}
	q.Candidates = c.candidates
	return c.rejected
}

// region appends the candidates of region r, whose known location is `at`, in pre-order. The best function of the scope
// also gets the candidates that may lie in any region.
func (c *candidateList) region(o *operationScope, at int32, r int) {
	best := o.bestFunction() == at
	c.below(o, at, r, func(l *location) bool { return !l.anyRegion || best && at == 0 }, -1, 1)
	if best && at != 0 {
		c.below(o, 0, r, func(l *location) bool { return l.anyRegion }, -1, 1)
	}
}

// below appends the unknown locations below location `at` that wanted accepts.
func (c *candidateList) below(o *operationScope, at int32, r int, wanted func(*location) bool, parent, depth int) {
	for _, child := range o.locations[at].children {
		l := &o.locations[child]
		if l.known || !wanted(l) {
			continue
		}
		i := c.add(l, r, parent, depth)
		if i < 0 {
			c.below(o, child, r, wanted, parent, depth)
			continue
		}
		c.below(o, child, r, wanted, i, depth+1)
		c.candidates[i].End = len(c.candidates)
	}
}

// add appends l and returns its index. If l may not be switched on, or isn't worth trying, it rejects l and returns -1.
func (c *candidateList) add(l *location, r, parent, depth int) int {
	why := c.excluded(l.tp)
	switch {
	case why != "" || !l.offStack:
	case l.layer == cct.Kernel:
		why = WhyRare
	default:
		why = WhyOffStack
	}
	if why != "" {
		c.rejected = append(c.rejected, Rejected{l.tp, why})
		return -1
	}
	c.candidates = append(c.candidates, Candidate{
		Tracepoint:  l.tp,
		Op:          l.op,
		Context:     l.ctx,
		Node:        l.node,
		Region:      r,
		Parent:      parent,
		End:         len(c.candidates) + 1,
		Depth:       depth,
		Layer:       l.layer,
		Kind:        l.kind,
		PriorWeight: l.priorWeight,
		Hits:        l.hits,
		Standing:    l.standing,
		Calls:       l.calls,
		Inside:      l.inside,
		Unanchored:  l.anyRegion,
	})
	return len(c.candidates) - 1
}
