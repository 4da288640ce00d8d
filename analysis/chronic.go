package analysis

import (
	"cmp"
	"math"
	"slices"
	"time"

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
	Accepted map[trace.Op]AcceptedLevel
	// Objectives are latency objectives by entry operation: a request type with a mean above its objective is slow.
	Objectives map[trace.Op]time.Duration
}

// AcceptedLevel is what somebody decided to live with. Zero fields accept nothing.
type AcceptedLevel struct {
	CoV     float64       // up to which requests do not count as variable
	Delayed float64       // part of them that may be delayed or time out
	Mean    time.Duration // up to which they do not count as slow
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

// Chronic returns the problems that the windows judged show without any history: variable and slow groups, each at the level
// that explains it best, ranked. Edges of a problem are ordered by what leads.
func (g *Grouper) Chronic(t Thresholds) []Problem {
	problems := g.chronicProblems(t)
	Rank(problems)
	g.detail(problems)
	return problems
}

// chronicProblems returns the chronic problems of request types without a changed one. Once open, a problem is so until what it is about
// itself, not the end of its interval, is within the threshold.
func (g *Grouper) chronicProblems(t Thresholds) []Problem {
	var problems []Problem
	for requestType, groups := range g.byType() {
		if !requestType.watch.troubled {
			problems = append(problems, g.chronicOf(requestType, groups, t)...)
		}
	}
	clear(g.chronic)
	for i := range problems {
		g.chronic[problems[i].ID] = true
	}
	return problems
}

// enoughChanged is the number of requests from which those that are not as expected, but no problem, are judged by themselves.
const enoughChanged = 50

// judged returns the window that chronic problems of a group show in: where requests are as expected, what was learned of them.
func (group *Group) judged() *Window {
	if group.watch.learned && !group.watch.open && group.Current.Total.N < enoughChanged {
		return &group.Reference
	}
	return &group.Current
}

// judgedSize returns the size model of the window judged; nil where it is not judged by size.
func (group *Group) judgedSize() *SizeModel {
	if w := group.judged(); w == &group.Current {
		return w.sizeModel(group.sizing.timeout)
	}
	return group.watch.size
}

// problemID returns the identity over time of a problem.
func problemID(kind ProblemKind, group *Group) Hash {
	return HashOf(uint64(kind), uint64(group.Level), group.ID.Hi, group.ID.Lo)
}

// detailed is how many problems, from the first, come with what the sample says: more than anybody looks at, or a budget allows to
// investigate, at once.
const detailed = 500

// detail fills in the intervals of the first problems.
func (g *Grouper) detail(ranked []Problem) {
	for i := range ranked[:min(len(ranked), detailed)] {
		p := &ranked[i]
		group := g.groups[p.Group]
		_, p.CoVLow, p.CoVHigh = group.judged().cov(p.Size)
		g.estimate(group, p.Edges)
	}
}

// chronicOf judges one request type and its groups.
func (g *Grouper) chronicOf(requestType *Group, groups []*Group, t Thresholds) []Problem {
	groups = slices.DeleteFunc(slices.Clone(groups), func(x *Group) bool { return x.judged().Total.N < t.MinSamples })
	problems := g.slowOf(requestType, groups, t)
	if requestType.judged().Total.N < t.MinSamples || math.IsInf(t.CoV, 1) && math.IsInf(t.Delayed, 1) {
		return problems
	}
	var within []Problem
	if requestType.sizing.key != 0 || !structuralVariance(requestType, groups) { // sizes, not paths, may tell groups apart
		for _, group := range groups {
			if p, ok := g.variable(group, t); ok {
				within = append(within, p)
			}
		}
	}
	if len(within) > 0 {
		return append(problems, within...)
	}
	if p, ok := g.variable(requestType, t); ok {
		problems = append(problems, p)
	}
	return problems
}

// structuralVariance reports whether most of the variance of a request type lies between its groups: then the structure
// explains it, and each group by itself may be steady.
func structuralVariance(requestType *Group, groups []*Group) bool {
	totals := make([]stats.Moments, 0, len(groups))
	for _, group := range groups {
		totals = append(totals, group.judged().Total)
	}
	return len(groups) > 1 && stats.BetweenShare(totals) > structural
}

// variable returns the problem of a group whose CoV, or part of delayed requests, is certainly above the threshold.
func (g *Grouper) variable(group *Group, t Thresholds) (Problem, bool) {
	w := group.judged()
	_, accepted := g.Types.Rules.expects(group, &t)
	threshold := max(t.CoV, accepted.CoV)
	size := group.judgedSize()
	if size == nil && !(w.Total.CoV() > threshold) {
		return Problem{}, false // the interval is the dearer test
	}
	cov, low, _ := w.cov(size)
	bad, badLow := 0.0, 0.0
	if size != nil {
		bad, badLow = size.Delayed+size.TimedOut, size.BadLow
	}
	if g.chronic[problemID(KindVariable, group)] {
		low, badLow = cov, bad
	}
	if !(low > threshold) && !(badLow > max(t.Delayed, accepted.Delayed)) {
		return Problem{}, false
	}
	p := g.problem(group, KindVariable)
	typical := w.Latency.Quantile(0.5)
	if size != nil {
		typical = size.Typical
	}
	p.Impact = p.Rate * max(0, float64(p.Mean)-typical)
	lead(p.Edges, func(e *EdgeShare) float64 { return e.ShareVariance })
	return p, true
}

// slowOf returns the request type if it misses its objective, else those groups that are much slower than the type's others.
func (g *Grouper) slowOf(requestType *Group, groups []*Group, t Thresholds) []Problem {
	objective, accepted := g.Types.Rules.expects(requestType, &t)
	if objective > 0 {
		if g.misses(requestType, float64(max(objective, accepted.Mean)), t) {
			return []Problem{g.slow(requestType, objective)}
		}
		return nil
	}
	if len(groups) < minSiblings || requestType.watch.learned { // then they are judged against what they were
		return nil
	}
	logs := make([]float64, len(groups))
	for i, group := range groups {
		logs[i] = math.Log(group.judged().Total.Mean())
	}
	center := stats.Median(slices.Clone(logs))
	scale := stats.MAD(logs, center, nil)
	var problems []Problem
	for i, group := range groups {
		if logs[i]-center > outlying*scale && scale > 0 && group.judged().Total.Mean() > float64(accepted.Mean) {
			problems = append(problems, g.slow(group, time.Duration(math.Exp(center))))
		}
	}
	return problems
}

// misses reports whether the mean of a group is above a limit: where it is watched over time, certainly at first, so that it does not flap.
func (g *Grouper) misses(group *Group, limit float64, t Thresholds) bool {
	total := group.judged().Total
	least := total.Mean()
	if group.watch.learned && !g.chronic[problemID(KindSlow, group)] {
		least -= normal95 * total.StdDev() / math.Sqrt(float64(total.N))
	}
	return total.N >= t.MinSamples && least > limit
}

func (g *Grouper) slow(group *Group, expected time.Duration) Problem {
	p := g.problem(group, KindSlow)
	p.Expected = expected
	p.Impact = p.Rate * float64(p.Mean-expected)
	lead(p.Edges, func(e *EdgeShare) float64 { return e.ShareMean })
	return p
}

// problem returns what every kind of problem says about the window of group that is judged.
func (g *Grouper) problem(group *Group, kind ProblemKind) Problem {
	w, size := group.judged(), group.judgedSize()
	cov, key := w.Total.CoV(), trace.Symbol(0)
	if size != nil {
		cov, key = size.CoV, group.sizing.key
	}
	return Problem{
		ID:   problemID(kind, group),
		Kind: kind, Onset: Chronic, Level: group.Level,
		Group: group.ID, RequestType: group.RequestType, Entry: group.Entry,
		Requests: w.Total.N, Rate: w.Rate(), Mean: time.Duration(w.Total.Mean()),
		Size: size, SizeKey: key, CoV: cov, CoVLow: math.NaN(), CoVHigh: math.NaN(),
		Edges: g.exactShares(group),
	}
}

// lead scores edges, those of which nothing is known with 0, and orders them by falling score.
func lead(edges []EdgeShare, score func(*EdgeShare) float64) {
	for i := range edges {
		edges[i].Score = score(&edges[i])
		if math.IsNaN(edges[i].Score) || math.IsInf(edges[i].Score, 0) {
			edges[i].Score = 0
		}
	}
	slices.SortFunc(edges, func(a, b EdgeShare) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Edge, b.Edge))
	})
}

// Rank orders problems: changed before chronic; then variable by CoV, slow by excess, shifted by the size of the shift. What ties, or is not known,
// comes by identity.
func Rank(problems []Problem) {
	slices.SortFunc(problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(a.Onset, b.Onset),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(severity(&b), severity(&a)),
			a.ID.Compare(b.ID))
	})
}

// severity is what problems of a kind are ranked by.
func severity(p *Problem) float64 {
	switch p.Kind {
	case KindVariable:
		return p.CoV
	case KindSlow:
		return float64(p.Mean - p.Expected)
	case KindShifted:
		return p.Shift
	}
	return 0
}
