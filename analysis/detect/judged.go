package detect

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// judgement caches values that depend only on the judged window of a group. They are computed on first use and remain
// valid until the window changes. This saves most of the work, because most groups have no requests in an epoch.
type judgement struct {
	window   *group.Window // the judged window
	revision uint64        // of the group
	spread   float64       // CoV of the durations, even if they depend on the size
	cov      *stats.Interval
	variable *Problem          // of kind variable; without the values of the sample
	detailed []group.EdgeShare // the edges of variable with the values of the sample
}

// judgementOf returns the judgement of g, brought up to date.
func (d *Detector) judgementOf(g *group.Group) *judgement {
	j := d.judged[g]
	if j == nil {
		j = &judgement{}
		d.judged[g] = j
	}
	if w := g.Judged(); j.window != w || j.revision != g.Revision() {
		*j = judgement{window: w, revision: g.Revision(), spread: w.Total.CoV()}
	}
	return j
}

// forgetDeleted deletes the state of groups that were deleted.
func (d *Detector) forgetDeleted() {
	if n := d.Groups.Deletions(); n != d.deletions {
		d.deletions = n
		clear(d.resting)
		deleted := func(g *group.Group) bool { return d.Groups.Group(g.ID) != g }
		maps.DeleteFunc(d.changes, func(g *group.Group, _ *changeDetector) bool { return deleted(g) })
		maps.DeleteFunc(d.judged, func(g *group.Group, _ *judgement) bool { return deleted(g) })
		maps.DeleteFunc(d.chronicTypes, func(g *group.Group, _ *chronicType) bool { return deleted(g) })
	}
}

// interval returns the CoV of the judged window of g, with its interval.
func (j *judgement) interval(g *group.Group) stats.Interval {
	if j.cov == nil {
		j.cov = new(j.window.CoV(g.JudgedSize()))
	}
	return *j.cov
}

// problem returns the problem that g has if its requests are too variable. The caller decides whether they are, and
// must not modify the result.
func (j *judgement) problem(g *group.Group, table *trace.Table) *Problem {
	if j.variable == nil {
		p := problemOf(g, KindVariable, table)
		typical := j.window.Latency.Quantile(0.5)
		if p.Size != nil {
			typical = p.Size.Typical
		}
		p.Impact = p.Rate * max(0, float64(p.Mean)-typical)
		p.rankEdges(WholeVariance, func(e *group.EdgeShare) float64 { return e.ShareVariance })
		j.variable = &p
	}
	return j.variable
}

// detail sets the values of p that come from the sample. p must be a copy of f.problem.
func (f *found) detail(p *Problem) {
	j, g := f.judged, f.group
	cov := j.interval(g)
	p.CoVLow, p.CoVHigh = cov.Low, cov.High
	switch {
	case j.window == &g.Reference: // a reference has no sample
	case f.problem == j.variable:
		if j.detailed == nil {
			j.detailed = slices.Clone(p.Edges)
			g.AddEstimates(j.detailed)
		}
		p.Edges = j.detailed
	default:
		p.Edges = slices.Clone(p.Edges)
		g.AddEstimates(p.Edges)
	}
}

// found is a problem together with the judgement of its group, which detail uses to add the values of the sample.
type found struct {
	problem *Problem // without the values of the sample
	group   *group.Group
	judged  *judgement
}

// chronicType holds the chronic problems of a request type. They stay the same until a window or the thresholds change.
type chronicType struct {
	revisions uint64 // sum of the revisions of the type and its groups
	settled   bool   // the same problems were open before
	problems  []found
}

// ranked returns all problems in the given order. Only the first maxDetailed have the values of the sample.
func ranked(all []found, by Order) []Problem {
	order := slices.Clone(all)
	sorting.Slice(order, func(a, b found) int {
		p, q := a.problem, b.problem
		return cmp.Or(cmp.Compare(p.Onset, q.Onset), cmp.Compare(by.figure(q), by.figure(p)), p.ID.Compare(q.ID))
	})
	problems := make([]Problem, len(order))
	for i := range order {
		problems[i] = *order[i].problem
		if i < maxDetailed {
			order[i].detail(&problems[i])
		}
	}
	return problems
}
