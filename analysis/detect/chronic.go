package detect

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Thresholds define chronic problems, which we can find without a history.
type Thresholds struct {
	// CoV is the maximum coefficient of variation. Requests are variable if the lower end of the interval of their CoV
	// exceeds this value, and the interval is narrower than the CoV.
	CoV float64
	// Delayed is the maximum fraction of requests that are delayed relative to their size, or time out. If the lower
	// end of the interval of that fraction exceeds it, requests are variable whatever their CoV.
	Delayed float64
	// MinSamples is the minimum number of requests of a judged group.
	MinSamples uint64
	// Accepted holds accepted levels by entry operation.
	Accepted map[trace.Op]group.AcceptedLevel
	// Objectives holds latency objectives by entry operation. A request type with a mean above its objective is slow.
	Objectives map[trace.Op]time.Duration
}

// DefaultThresholds returns the default thresholds. The maximum CoV lies between two values measured in a real
// application: 0.19 for requests that queued for a lock, and 0.09 for other requests.
func DefaultThresholds() Thresholds { return Thresholds{CoV: 0.15, Delayed: 0.02, MinSamples: 50} }

const (
	// outlierScore is the maximum amount by which the logarithm of a group's mean may exceed the median over the groups
	// of its request type, in robust standard deviations (Iglewicz and Hoaglin's limit for modified z-scores). A group
	// beyond it is slow.
	outlierScore = 3.5
	// minSiblings is the minimum number of groups of a request type that we compare with each other.
	minSiblings = 5
)

// structuralShare is the share of the variance of a request type that must lie between its groups for the type, rather
// than its groups, to be the problem.
const structuralShare = 0.5

// of returns the objective of the requests of g, or 0 if they have no objective, and their accepted level. Rules take
// precedence over t.
func (t *Thresholds) of(g *group.Group, rules *group.RuleSet) (objective time.Duration, accepted group.AcceptedLevel) {
	objective, accepted = rules.Expects(g)
	return cmp.Or(objective, t.Objectives[g.Entry]), cmp.Or(accepted, t.Accepted[g.Entry])
}

// Chronic returns the problems that the judged windows show without a history, in the given order: variable and slow
// groups, each at the level that explains it best. The edges of a problem are ranked by their contribution.
func (d *Detector) Chronic(t Thresholds, by Order) []Problem {
	return ranked(d.chronicProblems(nil, t), by)
}

// chronicProblems appends the chronic problems of request types without an open changed problem to changed. An open
// chronic problem stays open until the value itself, not the end of its interval, is within the threshold.
func (d *Detector) chronicProblems(changed []found, t Thresholds) []found {
	d.forgetDeleted()
	if !d.thresholds.equal(&t) {
		clear(d.chronicTypes)
		d.thresholds = t
		d.thresholds.Accepted, d.thresholds.Objectives = maps.Clone(t.Accepted), maps.Clone(t.Objectives)
	}
	all := slices.Grow(changed, len(d.chronic))
	finder := chronicFinder{detector: d, rules: d.Groups.Types.Rules, thresholds: &t}
	for requestType, groups := range d.Groups.ByType() {
		if requestType.AnyOpenProblem {
			delete(d.chronicTypes, requestType)
			continue
		}
		all = append(all, finder.problemsOf(requestType, groups)...)
	}
	clear(d.chronic)
	for i := len(changed); i < len(all); i++ {
		d.chronic[all[i].problem.ID] = true
	}
	return all
}

// equal reports whether t and u are equal.
func (t *Thresholds) equal(u *Thresholds) bool {
	return t.CoV == u.CoV && t.Delayed == u.Delayed && t.MinSamples == u.MinSamples &&
		maps.Equal(t.Accepted, u.Accepted) && maps.Equal(t.Objectives, u.Objectives)
}

// problemID returns the identity of the problem of g with the given kind. It is stable over time.
func problemID(kind ProblemKind, g *group.Group) analysis.Hash {
	return analysis.HashOf(uint64(kind), uint64(g.Level), g.ID.Hi, g.ID.Lo)
}

// maxDetailed is the maximum number of problems with values from the sample. Nobody views more at the same time, and no
// budget allows more investigations.
const maxDetailed = 500

// chronicFinder finds the problems of groups that did not change.
type chronicFinder struct {
	detector   *Detector
	rules      *group.RuleSet
	thresholds *Thresholds
	problems   []found        // of the current request type
	groups     []*group.Group // scratch
}

// problemsOf returns the problems of requestType and its groups. It judges them only if their problems may have
// changed.
func (f *chronicFinder) problemsOf(requestType *group.Group, groups []*group.Group) []found {
	known, rest := f.detector.chronicTypes[requestType], f.detector.resting[requestType]
	if rest != nil {
		if known != nil && known.settled && rest.judged {
			return known.problems
		}
		rest.judged = true
	}
	revisions := requestType.Revision()
	for _, g := range groups {
		revisions += g.Revision()
	}
	if known != nil && known.settled && known.revisions == revisions {
		return known.problems
	}
	f.problems = f.problems[:0]
	f.judge(requestType, groups)
	if known == nil {
		known = &chronicType{}
		f.detector.chronicTypes[requestType] = known
	}
	known.settled = slices.EqualFunc(known.problems, f.problems,
		func(a, b found) bool { return a.problem.ID == b.problem.ID })
	known.revisions = revisions
	known.problems = append(known.problems[:0], f.problems...)
	return known.problems
}

// add adds p, a problem of g.
func (f *chronicFinder) add(g *group.Group, p *Problem) {
	f.problems = append(f.problems, found{p, g, f.detector.judgementOf(g)})
}

// judge finds the problems of one request type and its groups.
func (f *chronicFinder) judge(requestType *group.Group, groups []*group.Group) {
	t := f.thresholds
	f.groups = slices.DeleteFunc(append(f.groups[:0], groups...),
		func(x *group.Group) bool { return x.Judged().Total.N < t.MinSamples })
	groups = f.groups
	f.findSlow(requestType, groups)
	if requestType.Judged().Total.N < t.MinSamples || math.IsInf(t.CoV, 1) && math.IsInf(t.Delayed, 1) {
		return
	}
	within := false
	// sizes may distinguish requests better than groups do
	if requestType.SizeKey() != 0 || !structuralVariance(groups) {
		for _, g := range groups {
			within = f.findVariable(g) || within
		}
	}
	if !within {
		f.findVariable(requestType)
	}
}

// structuralVariance reports whether most of the variance of a request type lies between its groups. In that case the
// structure of the type explains the variance, and each group may be steady.
func structuralVariance(groups []*group.Group) bool {
	totals := make([]stats.Moments, 0, len(groups))
	for _, g := range groups {
		totals = append(totals, g.Judged().Total)
	}
	return len(groups) > 1 && stats.BetweenShare(totals) > structuralShare
}

// findVariable adds a problem if the CoV of g, or its fraction of delayed requests, is certainly above the threshold.
// If the problem is already open, it is enough that the value itself is above the threshold. findVariable reports
// whether it added a problem.
func (f *chronicFinder) findVariable(g *group.Group) bool {
	j := f.detector.judgementOf(g)
	_, accepted := f.thresholds.of(g, f.rules)
	threshold := max(f.thresholds.CoV, accepted.CoV)
	size := g.JudgedSize()
	if size == nil && !(j.spread > threshold) {
		return false // don't compute the interval, which is more expensive
	}
	low, badLow := j.spread, 0.0
	if size != nil {
		low, badLow = size.CoV, size.Delayed+size.TimedOut
	}
	if !f.detector.chronic[problemID(KindVariable, g)] {
		if low = j.interval(g).Low; !precise(j.interval(g)) {
			low = 0
		}
		if size != nil {
			badLow = size.BadLow
		}
	}
	if !(low > threshold) && !(badLow > max(f.thresholds.Delayed, accepted.Delayed)) {
		return false
	}
	f.add(g, j.problem(g, f.detector.Groups.Table))
	return true
}

// findSlow adds a problem if requestType misses its objective. If it has no objective, findSlow adds a problem for each
// group that is much slower than the others.
func (f *chronicFinder) findSlow(requestType *group.Group, groups []*group.Group) {
	objective, accepted := f.thresholds.of(requestType, f.rules)
	if objective > 0 {
		if f.misses(requestType, float64(max(objective, accepted.Mean))) {
			f.addSlow(requestType, objective)
		}
		return
	}
	// learned groups are compared with their expectation
	if len(groups) < minSiblings || requestType.Expectation.Learned {
		return
	}
	logs := make([]float64, len(groups))
	for i, g := range groups {
		logs[i] = math.Log(g.Judged().Total.Mean())
	}
	center := stats.Median(slices.Clone(logs))
	scale := stats.MAD(logs, center, nil)
	for i, g := range groups {
		if logs[i]-center > outlierScore*scale && scale > 0 && g.Judged().Total.Mean() > float64(accepted.Mean) {
			f.addSlow(g, time.Duration(math.Exp(center)))
		}
	}
}

// misses reports whether g has enough requests and a mean above limit. If g has an expectation but no open problem,
// even the lower end of the interval of the mean must be above limit, so that problems don't flap.
func (f *chronicFinder) misses(g *group.Group, limit float64) bool {
	total := g.Judged().Total
	least := total.Mean()
	if g.Expectation.Learned && !f.detector.chronic[problemID(KindSlow, g)] {
		least -= stats.Normal95 * total.StdDev() / math.Sqrt(float64(total.N))
	}
	return total.N >= f.thresholds.MinSamples && least > limit
}

func (f *chronicFinder) addSlow(g *group.Group, expected time.Duration) {
	p := problemOf(g, KindSlow, f.detector.Groups.Table)
	p.Expected = expected
	p.Impact = p.Rate * float64(p.Mean-expected)
	p.rankEdges(WholeMean, func(e *group.EdgeShare) float64 { return e.ShareMean })
	f.add(g, &p)
}
