package detect

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Thresholds say what is a problem where nothing is known of the past.
type Thresholds struct {
	// CoV is the coefficient of variation above which, with its interval's lower end, requests count as variable.
	CoV float64
	// Delayed is the part of the requests that may be delayed or time out, for their size, where rules say that size matters: with more,
	// by the interval's lower end, requests count as variable whatever their CoV.
	Delayed float64
	// MinSamples is the number of requests under which nothing is said about a group.
	MinSamples uint64
	// Accepted are levels by entry operation up to which nothing is reported about its requests.
	Accepted map[trace.Op]group.AcceptedLevel
	// Objectives are latency objectives by entry operation: a request type with a mean above its objective is slow.
	Objectives map[trace.Op]time.Duration
}

// DefaultThresholds returns the thresholds of design: requests queueing for a lock measured a CoV of 0.19 in a real application,
// and 0.09 without it.
func DefaultThresholds() Thresholds { return Thresholds{CoV: 0.15, Delayed: 0.02, MinSamples: 50} }

// outlying is how many robust standard deviations the logarithm of a group's mean must lie above those of the other groups of its
// request type to count as slow (Iglewicz and Hoaglin's 3.5 for modified z-scores), and minSiblings the number of groups that such
// a judgement takes.
const (
	outlying    = 3.5
	minSiblings = 5
)

// structural is the part of a request type's variance that must lie between its groups for the type, not the groups, to be the
// problem: the larger part.
const structural = 0.5

// of returns the objective of the requests of a group, 0 for none, and the level that is accepted. Rules go before t.
func (t *Thresholds) of(g *group.Group, rules *group.RuleSet) (objective time.Duration, accepted group.AcceptedLevel) {
	objective, accepted = rules.Expects(g)
	return cmp.Or(objective, t.Objectives[g.Entry]), cmp.Or(accepted, t.Accepted[g.Entry])
}

// Chronic returns the problems that the windows judged show without any history: variable and slow groups, each at the level
// that explains it best, ranked. Edges of a problem are ordered by what leads.
func (d *Detector) Chronic(t Thresholds) []Problem {
	problems := d.chronicProblems(t)
	Rank(problems)
	d.detail(problems)
	return problems
}

// chronicProblems returns the chronic problems of request types without a changed one. Once open, a problem is so until what it is about
// itself, not the end of its interval, is within the threshold.
func (d *Detector) chronicProblems(t Thresholds) []Problem {
	steady := steadyState{rules: d.Groups.Types.Rules, table: d.Groups.Table, thresholds: &t, open: d.chronic}
	for requestType, groups := range d.Groups.ByType() {
		if !requestType.AnyOpenProblem {
			steady.judge(requestType, groups)
		}
	}
	clear(d.chronic)
	for i := range steady.problems {
		d.chronic[steady.problems[i].ID] = true
	}
	return steady.problems
}

// problemID returns the identity over time of a problem.
func problemID(kind ProblemKind, g *group.Group) analysis.Hash {
	return analysis.HashOf(uint64(kind), uint64(g.Level), g.ID.Hi, g.ID.Lo)
}

// detailed is how many problems, from the first, come with what the sample says: more than anybody looks at, or a budget allows to
// investigate, at once.
const detailed = 500

// detail fills in the intervals of the first problems.
func (d *Detector) detail(ranked []Problem) {
	for i := range ranked[:min(len(ranked), detailed)] {
		p := &ranked[i]
		g := d.Groups.Group(p.Group)
		cov := g.Judged().CoV(p.Size)
		p.CoVLow, p.CoVHigh = cov.Low, cov.High
		g.AddEstimates(p.Edges)
	}
}

// steadyState finds problems of groups that did not change.
type steadyState struct {
	rules      *group.RuleSet
	table      *trace.Table
	thresholds *Thresholds
	open       map[analysis.Hash]bool // problems that were open before
	problems   []Problem              // found
}

// judge judges one request type and its groups.
func (s *steadyState) judge(requestType *group.Group, groups []*group.Group) {
	t := s.thresholds
	groups = slices.DeleteFunc(slices.Clone(groups), func(x *group.Group) bool { return x.Judged().Total.N < t.MinSamples })
	s.findSlow(requestType, groups)
	if requestType.Judged().Total.N < t.MinSamples || math.IsInf(t.CoV, 1) && math.IsInf(t.Delayed, 1) {
		return
	}
	within := false
	if requestType.SizeKey() != 0 || !structuralVariance(requestType, groups) { // sizes, not paths, may tell groups apart
		for _, g := range groups {
			within = s.findVariable(g) || within
		}
	}
	if !within {
		s.findVariable(requestType)
	}
}

// structuralVariance reports whether most of the variance of a request type lies between its groups: then the structure
// explains it, and each group by itself may be steady.
func structuralVariance(requestType *group.Group, groups []*group.Group) bool {
	totals := make([]stats.Moments, 0, len(groups))
	for _, g := range groups {
		totals = append(totals, g.Judged().Total)
	}
	return len(groups) > 1 && stats.BetweenShare(totals) > structural
}

// findVariable adds the problem of a group whose CoV, or part of delayed requests, is certainly above the threshold. It reports whether
// there is one.
func (s *steadyState) findVariable(g *group.Group) bool {
	w := g.Judged()
	_, accepted := s.thresholds.of(g, s.rules)
	threshold := max(s.thresholds.CoV, accepted.CoV)
	size := g.JudgedSize()
	if size == nil && !(w.Total.CoV() > threshold) {
		return false // the interval is the dearer test
	}
	cov := w.CoV(size)
	low, bad, badLow := cov.Low, 0.0, 0.0
	if size != nil {
		bad, badLow = size.Delayed+size.TimedOut, size.BadLow
	}
	if s.open[problemID(KindVariable, g)] {
		low, badLow = cov.Value, bad
	}
	if !(low > threshold) && !(badLow > max(s.thresholds.Delayed, accepted.Delayed)) {
		return false
	}
	p := problemOf(g, KindVariable, s.table)
	typical := w.Latency.Quantile(0.5)
	if size != nil {
		typical = size.Typical
	}
	p.Impact = p.Rate * max(0, float64(p.Mean)-typical)
	lead(p.Edges, func(e *group.EdgeShare) float64 { return e.ShareVariance })
	s.problems = append(s.problems, p)
	return true
}

// findSlow adds the problem of a request type that misses its objective, else those of the groups that are much slower than the type's
// others.
func (s *steadyState) findSlow(requestType *group.Group, groups []*group.Group) {
	objective, accepted := s.thresholds.of(requestType, s.rules)
	if objective > 0 {
		if s.misses(requestType, float64(max(objective, accepted.Mean))) {
			s.addSlow(requestType, objective)
		}
		return
	}
	if len(groups) < minSiblings || requestType.Expectation.Learned { // then they are judged against what they were
		return
	}
	logs := make([]float64, len(groups))
	for i, g := range groups {
		logs[i] = math.Log(g.Judged().Total.Mean())
	}
	center := stats.Median(slices.Clone(logs))
	scale := stats.MAD(logs, center, nil)
	for i, g := range groups {
		if logs[i]-center > outlying*scale && scale > 0 && g.Judged().Total.Mean() > float64(accepted.Mean) {
			s.addSlow(g, time.Duration(math.Exp(center)))
		}
	}
}

// misses reports whether the mean of a group is above a limit: where it is watched over time, certainly at first, so that it does not flap.
func (s *steadyState) misses(g *group.Group, limit float64) bool {
	total := g.Judged().Total
	least := total.Mean()
	if g.Expectation.Learned && !s.open[problemID(KindSlow, g)] {
		least -= stats.Normal95 * total.StdDev() / math.Sqrt(float64(total.N))
	}
	return total.N >= s.thresholds.MinSamples && least > limit
}

func (s *steadyState) addSlow(g *group.Group, expected time.Duration) {
	p := problemOf(g, KindSlow, s.table)
	p.Expected = expected
	p.Impact = p.Rate * float64(p.Mean-expected)
	lead(p.Edges, func(e *group.EdgeShare) float64 { return e.ShareMean })
	s.problems = append(s.problems, p)
}
