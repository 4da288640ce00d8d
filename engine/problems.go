package engine

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Problems holds the open problems, and the statistics that refine and explain them.
type Problems struct {
	open        []detect.Problem               // as of the last epoch, ranked
	refinements map[analysis.Hash]*refinements // by group or request type of an open problem
	causes      *causes
	plans       *plans
}

func newProblems(plans *plans) *Problems {
	return &Problems{refinements: make(map[analysis.Hash]*refinements), causes: newCauses(), plans: plans}
}

// Open returns the open problems as of the last epoch, ranked.
func (p *Problems) Open() []detect.Problem { return p.open }

// Sampled returns a uniform sample of the group's requests since its sample started, usually when its problem opened,
// or nil if the group isn't sampled.
func (p *Problems) Sampled(group analysis.Hash) []*observation.Observation {
	if s := p.causes.samples[group]; s != nil {
		return s.Requests()
	}
	return nil
}

// Findings returns the findings about a problem that is open or was closed in the last epoch, or nil if it hasn't been
// explained yet.
func (p *Problems) Findings(problem analysis.Hash) *explain.Findings {
	if f := cmp.Or(p.causes.found[problem], p.causes.closed[problem]); f != nil && f.findings.Requests > 0 {
		return &f.findings
	}
	return nil
}

// observe adds o to the statistics of the open problems of its request type and group. group and simulation may be nil.
func (p *Problems) observe(
	requestType, group *group.Group, o *observation.Observation, simulation *critpath.Simulation,
) {
	p.causes.arrive(requestType.ID, o)
	p.refine(requestType.ID, o, simulation, true)
	if group != nil {
		p.refine(group.ID, o, simulation, false)
	}
}

// refine adds o to the statistics of the group's open problem, if it has one.
func (p *Problems) refine(
	group analysis.Hash, o *observation.Observation, simulation *critpath.Simulation, coarse bool,
) {
	r := p.refinements[group]
	if r == nil {
		return
	}
	if r.pairs != nil {
		r.pairs.Observe(o, coarse)
	}
	a := p.plans.arm(o)
	p.causes.observe(group, o, a.on, simulation)
	r.add(o, a, p.plans, coarse)
}

// attachRefinements sets, in each open problem, the shares measured by the tracepoints of the current plan. It drops
// the statistics of earlier plans and closed problems.
func (p *Problems) attachRefinements(usesPairs bool) {
	open := make(map[analysis.Hash]*refinements, len(p.open))
	for i := range p.open {
		x := &p.open[i]
		r := p.refinements[x.Group]
		if r == nil {
			r = newRefinements()
		}
		switch {
		case !usesPairs:
			r.pairs = nil
		case r.pairs == nil:
			r.pairs = detect.NewPairs(x)
		}
		open[x.Group] = r
		r.attach(x, p.plans.currentSets())
	}
	p.refinements = open
}

// armTimes returns the request durations of each problem by arm.
func (p *Problems) armTimes(arms []arm) (times []search.ArmTimes) {
	for i := range p.open {
		if r := p.refinements[p.open[i].Group]; r != nil {
			times = append(times, r.armTimes(search.OfProblem(p.open[i].ID), arms)...)
		}
	}
	return times
}

// accept makes the current behaviour of the changed problems selected by `which` the new normal, and returns these
// problems.
func (p *Problems) accept(
	by *detect.Detector, now trace.Nanos, which func(*detect.Problem) bool,
) (accepted []*detect.Problem) {
	for i := range p.open {
		if x := &p.open[i]; x.Onset == detect.Changed && which(x) && by.Accept(x.Group, now) {
			accepted = append(accepted, x)
		}
	}
	return accepted
}

// settle makes the behaviour of changed problems that have been open for a day the new normal. A change that lasts a
// day is neither a peak nor a nightly job. settle skips the problems in others, which belong to open incidents: people
// are notified of these and can accept them. It returns entries for the decision log.
func (p *Problems) settle(by *detect.Detector, now trace.Nanos, others []analysis.Hash) (entries []string) {
	lasting := func(x *detect.Problem) bool {
		return now.Sub(x.Opened) >= incident.Day && !slices.Contains(others, x.ID)
	}
	for _, x := range p.accept(by, now, lasting) {
		entries = append(entries,
			fmt.Sprintf("%s %s has been open for a day: from now on, this behaviour counts as normal", x.Kind, x.ID))
	}
	return entries
}

// save implements section.
func (p *Problems) save(s *savedCore) {
	s.Problems = p.open
	for _, id := range hashes(p.refinements) {
		s.Refinements = append(s.Refinements, p.refinements[id].saved(id))
	}
	p.causes.save(s)
}

// restore implements section.
func (p *Problems) restore(s *savedCore) error {
	p.open = s.Problems
	for i := range s.Refinements {
		r, err := restoreRefinements(&s.Refinements[i])
		if err != nil {
			return err
		}
		p.refinements[s.Refinements[i].Group] = r
	}
	return p.causes.restore(s)
}
