package engine

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/cct"
)

// refinements hold the statistics of one problem by set of enabled tracepoints.
type refinements struct {
	bySet map[uint64]*detect.Refinement
	bare  stats.Moments // durations of requests without tracepoints, while a plan had some
	pairs *detect.Pairs // nil unless the strategy uses pairs
}

// refine adds a request to the statistics of the open problem of a group, if it has one.
func (c *Core) refine(group analysis.Hash, o *observation.Observation, simulation *critpath.Simulation, coarse bool) {
	r := c.refinements[group]
	if r == nil {
		return
	}
	if r.pairs != nil {
		r.pairs.Observe(o, coarse)
	}
	a := c.plans.arm(o)
	c.causes.observe(group, o, a.on, simulation)
	r.add(o, a, &c.plans, coarse)
}

// add adds a request, for which arm a applied, to r.
func (r *refinements) add(o *observation.Observation, a *arm, of *plans, coarse bool) {
	if a.set == 0 {
		if o.Plan > 0 && len(o.Behind) == 0 && len(of.current()) > 0 {
			r.bare.Add(o.Duration.Nanoseconds())
		}
		return
	}
	refinement := r.bySet[a.set]
	if refinement == nil {
		refinement = detect.NewRefinement(a.name, a.on)
		r.bySet[a.set] = refinement
	}
	refinement.Observe(o, coarse)
}

// attachRefinements adds to every problem the shares that the current plan's tracepoints showed, and drops the
// statistics of earlier plans and closed problems.
func (c *Core) attachRefinements() {
	open := make(map[analysis.Hash]*refinements, len(c.problems))
	for i := range c.problems {
		p := &c.problems[i]
		r := c.refinements[p.Group]
		if r == nil {
			r = &refinements{bySet: make(map[uint64]*detect.Refinement)}
		}
		switch {
		case !c.strategy.UsesPairs:
			r.pairs = nil
		case r.pairs == nil:
			r.pairs = detect.NewPairs(p)
		}
		open[p.Group] = r
		r.attach(p, c.plans.currentSets(), c.trees.Of(p.RequestType))
	}
	c.refinements = open
}

// attach adds to p the shares that the tracepoints of the present arms showed, and drops the statistics of others. The
// tree holds the references of healthy requests; it may be nil.
func (r *refinements) attach(p *detect.Problem, present []arm, t *cct.Tree) {
	present = append(present, r.partsOf(present)...)
	for set := range r.bySet {
		if !slices.ContainsFunc(present, func(a arm) bool { return a.set == set }) {
			delete(r.bySet, set)
		}
	}
	p.Refined = r.shares(p, present, t)
	p.Attribute()
}

// shares returns the shares of p that the tracepoints of the given arms showed.
func (r *refinements) shares(p *detect.Problem, arms []arm, t *cct.Tree) []detect.RefinedShare {
	var shares []detect.RefinedShare
	seen := make(map[uint64]bool) // arms with equal sets share their statistics
	for i := range arms {
		if refinement := r.bySet[arms[i].set]; refinement != nil && !seen[arms[i].set] {
			seen[arms[i].set] = true
			of := refinement.Shares()
			addReferences(p, t, arms[i].on, of)
			shares = append(shares, of...)
		}
	}
	slices.SortStableFunc(shares, func(a, b detect.RefinedShare) int {
		return cmp.Or(cmp.Compare(a.Within, b.Within), cmp.Compare(a.Context, b.Context), cmp.Compare(a.Arm, b.Arm), cmp.Compare(a.Tracepoint, b.Tracepoint))
	})
	return shares
}
