package detect

import (
	"cmp"
	"maps"
	"math"

	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Refinement holds the measurements of the tracepoints that one arm of a plan has switched on, for one problem: sums
// over the requests of that arm, by calling context within a baseline edge. The zero value is not usable; see
// [NewRefinement].
//
// Sums are kept for blocks of requests, selected by the hash of their trace, so that every share has an interval
// (jackknife over the blocks) without assumptions about the distribution.
type Refinement struct {
	arm    trace.Symbol
	on     []trace.Symbol // the tracepoints of the arm
	totals [blocks]stats.Moments
	edges  map[trace.Edge]*[blocks]stats.CoMoments
	places map[place]*placed
	sums   map[place]int64         // scratch: inclusive times of one request
	times  []observation.EdgeNanos // scratch
}

// blocks is the number of blocks. 16 blocks suffice, because Student's t with 15 degrees of freedom is close to normal.
const blocks = 16

// place is a calling context within a baseline edge.
type place struct {
	within  trace.Edge
	context trace.Context
}

// placed holds the measurements of a place.
type placed struct {
	parent     trace.Context
	step       trace.Op
	tracepoint trace.Symbol
	hits       uint64
	inclusive  [blocks]stats.CoMoments
	exclusive  [blocks]stats.CoMoments
}

// NewRefinement returns an empty Refinement for requests of the given arm. on holds the tracepoints that the arm has
// switched on.
func NewRefinement(arm trace.Symbol, on []trace.Symbol) *Refinement {
	return &Refinement{
		arm:    arm,
		on:     on,
		edges:  make(map[trace.Edge]*[blocks]stats.CoMoments),
		places: make(map[place]*placed),
		sums:   make(map[place]int64),
	}
}

// Observe adds o. coarse means that the problem concerns a request type, so that its edges are results of
// [trace.ContextEdge].
func (r *Refinement) Observe(o *observation.Observation, coarse bool) {
	block := o.Key() % blocks
	total := o.Duration.Nanoseconds()
	r.totals[block].Add(total)
	r.observeEdges(o, block, coarse)
	clear(r.sums)
	for i := range o.Refined {
		e := &o.Refined[i]
		within := e.Within
		if coarse {
			within = contextEdgeOf(o, e.Within)
		}
		r.addInclusive(o, within, e.Context, e.Nanos)
		if p := r.places[place{within, e.Context}]; p != nil {
			p.exclusive[block].Add(e.Nanos, total)
		}
	}
	for at, nanos := range r.sums {
		r.places[at].inclusive[block].Add(nanos, total)
	}
}

// observeEdges adds the times of all baseline edges of o, including edges that o doesn't refine but other requests do.
func (r *Refinement) observeEdges(o *observation.Observation, block uint64, coarse bool) {
	if coarse {
		r.times = o.AppendContextTimes(r.times[:0])
	} else {
		r.times = o.AppendTimes(r.times[:0])
	}
	total := o.Duration.Nanoseconds()
	for _, x := range r.times {
		sums := r.edges[x.Edge]
		if sums == nil {
			sums = new([blocks]stats.CoMoments)
			r.edges[x.Edge] = sums
		}
		sums[block].Add(x.Nanos, total)
	}
}

// contextEdgeOf returns the [trace.ContextEdge] of the context of the baseline edge e, or 0 if o does not have e.
func contextEdgeOf(o *observation.Observation, e trace.Edge) trace.Edge {
	x := o.Edge(e)
	if x == nil {
		return 0
	}
	return trace.ContextEdge(x.Context)
}

// addInclusive adds nanos to context and to all switched-on contexts above it, at their places within the edge
// `within`.
func (r *Refinement) addInclusive(o *observation.Observation, within trace.Edge, context trace.Context, nanos int64) {
	for {
		c := o.Context(context)
		if c == nil || c.Tracepoint == 0 {
			return
		}
		at := place{within, context}
		p := r.places[at]
		if p == nil {
			p = &placed{parent: c.Parent, step: c.Step(), tracepoint: c.Tracepoint}
			r.places[at] = p
		}
		if _, counted := r.sums[at]; !counted {
			p.hits += uint64(c.Count)
		}
		r.sums[at] += nanos
		context = c.Parent
	}
}

// Durations returns the number of requests, and the mean and the variance of their durations in ns and ns².
func (r *Refinement) Durations() (n uint64, mean, variance float64) {
	m := except(&r.totals, none, (*stats.Moments).Merge)
	return m.N, m.Mean(), m.Variance()
}

// Arm returns the name of r's arm, and the tracepoints that are on in it.
func (r *Refinement) Arm() (name trace.Symbol, on []trace.Symbol) { return r.arm, r.on }

// Requests returns the number of requests.
func (r *Refinement) Requests() uint64 {
	var n uint64
	for i := range r.totals {
		n += r.totals[i].N
	}
	return n
}

// Shares returns the shares of the tracepoints that no request reached, in the order of the arm, followed by the shares
// of all places, ascending by (Within, Context).
func (r *Refinement) Shares() []RefinedShare {
	reached := make(map[trace.Symbol]bool)
	for _, p := range r.places {
		reached[p.tracepoint] = true
	}
	var shares []RefinedShare
	for _, tp := range r.on {
		if !reached[tp] {
			shares = append(shares, RefinedShare{Tracepoint: tp, Arm: r.arm, N: r.Requests()})
		}
	}
	order := sorting.Sorted(maps.Keys(r.places), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.within, b.within), cmp.Compare(a.context, b.context))
	})
	for _, at := range order {
		shares = append(shares, r.share(at, r.places[at]))
	}
	return shares
}

// share returns the share of one place, with its interval.
func (r *Refinement) share(at place, p *placed) RefinedShare {
	t := except(&r.totals, none, (*stats.Moments).Merge)
	x := except(&p.inclusive, none, (*stats.CoMoments).Merge)
	self := except(&p.exclusive, none, (*stats.CoMoments).Merge)
	s := RefinedShare{
		Within:     at.within,
		Context:    at.context,
		Parent:     p.parent,
		Op:         p.step,
		Tracepoint: p.tracepoint,
		Arm:        r.arm,
		N:          t.N,
		Hits:       p.hits,
		Mean:       x.Moments(t.N).Mean(),
		Exclusive:  self.Moments(t.N).Mean(),
		Share:      math.NaN(),
		ShareLow:   math.NaN(),
		ShareHigh:  math.NaN(),
		Self:       math.NaN(),
		ShareMean:  math.NaN(),
	}
	edge := r.edges[at.within]
	if edge == nil {
		return s
	}
	e := except(edge, none, (*stats.CoMoments).Merge)
	s.Share, s.Self = quotient(x.Cov(t), e.Cov(t)), quotient(self.Cov(t), e.Cov(t))
	s.ShareMean = quotient(x.Sum.Float64(), e.Sum.Float64())
	var left [blocks]float64
	for j := range left {
		t := except(&r.totals, j, (*stats.Moments).Merge)
		x := except(&p.inclusive, j, (*stats.CoMoments).Merge)
		e := except(edge, j, (*stats.CoMoments).Merge)
		left[j] = quotient(x.Cov(t), e.Cov(t))
	}
	half := jackknife(&left)
	s.ShareLow, s.ShareHigh = s.Share-half, s.Share+half
	return s
}

// quotient returns a/b, or NaN if b is 0.
func quotient(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

// none makes except sum up all blocks.
const none = -1

// except returns the sum of all blocks except the one with index left, or of all blocks if left is none.
func except[S any](all *[blocks]S, left int, merge func(*S, S)) S {
	var sum S
	for i := range all {
		if i != left {
			merge(&sum, all[i])
		}
	}
	return sum
}

// student95 is the two-sided 95 % quantile of Student's t on blocks−1 degrees of freedom.
const student95 = 2.131

// jackknife returns half the width of the 95 % interval of a statistic. left holds its values with each block left out.
func jackknife(left *[blocks]float64) float64 {
	var mean, sum float64
	for _, v := range left {
		mean += v / blocks
	}
	for _, v := range left {
		sum += (v - mean) * (v - mean)
	}
	return student95 * math.Sqrt(sum*(blocks-1)/blocks)
}
