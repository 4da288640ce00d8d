package detect

import (
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// judgement holds the values that follow from the judged window of a group alone. They are computed when they are first
// needed and remain valid until the window changes: most groups have no requests in an epoch.
type judgement struct {
	window   *group.Window // the judged one
	revision uint64        // of the group
	spread   float64       // CoV of the durations, also if these depend on the size
	cov      *stats.Interval
	variable *Problem          // of kind variable; without the values of the sample
	detailed []group.EdgeShare // the edges of variable with the values of the sample
}

// judgementOf returns the judgement of a group, which is up to date.
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

// forgetJudgements deletes the judgements of groups that were deleted.
func (d *Detector) forgetJudgements() {
	if len(d.judged) > d.Groups.Len() {
		maps.DeleteFunc(d.judged, func(g *group.Group, _ *judgement) bool { return d.Groups.Group(g.ID) != g })
	}
}

// interval returns the CoV of g with its interval.
func (j *judgement) interval(g *group.Group) stats.Interval {
	if j.cov == nil {
		j.cov = new(j.window.CoV(g.JudgedSize()))
	}
	return *j.cov
}

// problem returns the problem of g if its requests are too variable. Its edges must not be changed.
func (j *judgement) problem(g *group.Group, table *trace.Table) Problem {
	if j.variable == nil {
		p := problemOf(g, KindVariable, table)
		typical := j.window.Latency.Quantile(0.5)
		if p.Size != nil {
			typical = p.Size.Typical
		}
		p.Impact = p.Rate * max(0, float64(p.Mean)-typical)
		p.Edges = rankEdges(p.Edges, func(e *group.EdgeShare) float64 { return e.ShareVariance })
		j.variable = &p
	}
	return *j.variable
}

// detail sets the values of a problem of g that come from the sample.
func (j *judgement) detail(g *group.Group, p *Problem) {
	cov := j.interval(g)
	p.CoVLow, p.CoVHigh = cov.Low, cov.High
	switch {
	case j.window == &g.Reference: // it has no sample
	case j.variable == nil || p.Kind != KindVariable || p.Onset != Chronic:
		g.AddEstimates(p.Edges)
	default:
		if j.detailed == nil {
			j.detailed = slices.Clone(p.Edges)
			g.AddEstimates(j.detailed)
		}
		p.Edges = j.detailed
	}
}
