// Package explain finds out what accounts for a problem that package analysis found: which variables go along with the durations of its
// requests ([Associate]), what requests of one host or version have that others do not ([Contrast]), which edges of different request
// types rise and fall together ([Common]), how much would come back ([Recoveries]), and by which variable a group is worth being split
// ([Splits]). It is pure, like package analysis.
package explain

import (
	"cmp"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options choose how explanations are looked for. The zero value takes the defaults.
type Options struct {
	Alpha float64 // probability of naming any variable where none matters; 0: 0.02
	Edges int     // leading edges that are explained beside the duration; 0: 3
	Seed  uint64  // of the permutations
	// Concurrency returns how many requests were being served when o arrived, NaN where it is not known. Nil: never known.
	// [Load] is one way to know it.
	Concurrency func(o *observation.Observation) float64
	// On reports whether a tracepoint was on for o. Where it was, a context of it that is missing was not executed; else it is not known
	// whether it was. Nil: never on.
	On func(o *observation.Observation, tracepoint trace.Symbol) bool
}

// Bounds of [Associate].
const (
	minRequests = 12 // under which nothing is tested
	// manyRequests is the number from which on p-values are extrapolated from a few permutations and what is found must hold in both
	// halves of the requests by itself. With fewer, all variables are permuted together (see [study.byOrder]), and nothing is held out:
	// half of so few would confirm nothing.
	manyRequests = 64
	permutations = 1000 // to extrapolate from
	maxNamed     = 4    // variables named for one target
	maxDoubted   = 4    // variables that may fail to be confirmed before the search for one target ends
	screened     = 0.1  // p-value, uncorrected, up to which a variable may be a cause and is looked at again beside others
	confirming   = 0.1  // p-value that each half must reach
	leastEffect  = 0.02
)

// Association is what the variables of requests have to do with their times.
type Association struct {
	Explanations []detect.Explanation // the duration's before those of edges, by falling effect
	// Joint is the first canonical correlation, 0–1, between the numeric variables that were looked at closely and the targets (the
	// duration and the leading edges): what they explain together. NaN where there are none.
	Joint float64
	// Unrelated holds the attributes that certainly explain less than a tenth of the variance of every target. They need not be
	// recorded for its sake. Ascending by (Context, Key).
	Unrelated []UnrelatedVariable
	Tried     int // pairs of variable and target that were tested
}

// UnrelatedVariable is an attribute that explains nothing.
type UnrelatedVariable struct {
	Context trace.Context
	Key     trace.Symbol
	Name    string
}

// Associate finds out which variables of the requests go with their durations, and with their times in the leading edges of
// p. Requests are a uniform sample; their order does not matter. The same requests give the same answer.
//
// For each target:
//
//  1. Every variable is tested by itself: a numeric one by its correlation, a categorical one by η², both as an F test.
//  2. The one with the smallest p-value is named if the p-value, corrected for the number of pairs of variable and target (Holm),
//     is at most alpha, and if it holds in each of two halves of the requests by itself.
//  3. The others are tested again for what they explain beyond those named: by partial correlation, and likewise for
//     categories. A variable that only goes along with the cause has nothing left.
//  4. 2 and 3 are repeated until nothing is named.
//
// Of variables that say the same (an attribute copied on many spans, a context and its child), one stands for all: the nearest to the root,
// an attribute before what is derived. Categories with few requests are pooled, so that an identifier explains nothing.
//
// Tests use the logarithm of times, plus a hundredth of the mean duration so that nothing hangs on differences which do not
// matter: latencies are skewed products of many factors, and neither a single extreme request nor the noise of slow ones should
// decide. Ranks, the other cure, are blind to how slow the slowest are: a value that makes 2 % of the requests ten times slower
// accounts for at most 6 % of the variance of ranks. Numeric variables are taken by rank: their units are anyone's guess, and
// latency need only rise with them. Effects, on the other hand, are fractions of the variance of the times themselves, which the
// problem is about: where requests are judged by size, of the times at equal size, and the size itself is not named.
func Associate(p *detect.Problem, requests []*observation.Observation, table *trace.Table, o Options) Association {
	o.Alpha = cmp.Or(o.Alpha, 0.02)
	o.Edges = cmp.Or(o.Edges, 3)
	s := newStudy(o, table, requests)
	a := Association{Joint: math.NaN()}
	if len(s.requests) < minRequests {
		return a
	}
	s.collect()
	s.aim(p)
	if len(s.targets) == 0 {
		return a // nothing varies
	}
	s.testAll()
	for i := range s.targets {
		a.Explanations = append(a.Explanations, s.explain(&s.targets[i])...)
	}
	sortExplanations(a.Explanations, p)
	a.Joint = s.joint()
	a.Unrelated = s.unrelated()
	a.Tried = s.tried
	return a
}

// sortedRequests returns the requests by key, each once.
func sortedRequests(requests []*observation.Observation) []*observation.Observation {
	out := slices.Clone(requests)
	slices.SortFunc(out, func(a, b *observation.Observation) int {
		return cmp.Or(cmp.Compare(a.Key(), b.Key()), a.Trace.Compare(b.Trace), cmp.Compare(a.Root, b.Root))
	})
	return slices.CompactFunc(out, func(a, b *observation.Observation) bool { return a.Trace == b.Trace && a.Root == b.Root })
}

// sortExplanations orders those of the duration before those of edges, then by the part of the problem that they explain.
func sortExplanations(all []detect.Explanation, p *detect.Problem) {
	weight := func(x *detect.Explanation) float64 {
		for i := range p.Edges {
			if p.Edges[i].Edge == x.Target && x.Target != 0 && p.Edges[i].Score > 0 {
				return x.Effect * p.Edges[i].Score
			}
		}
		return x.Effect
	}
	slices.SortStableFunc(all, func(a, b detect.Explanation) int {
		if (a.Target == 0) != (b.Target == 0) {
			return cmp.Compare(min(1, a.Target), min(1, b.Target))
		}
		return cmp.Or(cmp.Compare(weight(&b), weight(&a)), cmp.Compare(a.Target, b.Target))
	})
}

// study is one run of [Associate].
type study struct {
	options  Options
	table    *trace.Table
	requests []*observation.Observation // by key
	held     []bool                     // of each request whether it is in the second half
	columns  []column
	targets  []target
	tried    int
	size     trace.Symbol      // attribute at equal values of which the problem is; 0: none
	known    map[cellKey]int32 // scratch
}

func newStudy(o Options, table *trace.Table, requests []*observation.Observation) *study {
	return &study{options: o, table: table, requests: sortedRequests(requests), known: make(map[cellKey]int32)}
}

// target is what is to be explained.
type target struct {
	edge  trace.Edge // 0: the duration
	nanos []float64
	logs  []float64 // what is tested
	first []float64 // of each column the p-value by itself; NaN: cannot be tested
	bound []float64 // of each column the upper end of the interval of what it explains by itself
	// lowest is of random orders of the requests, each the smallest p-value of any column by itself; nil: not known yet. See study.byOrder.
	lowest []float64
}

// aim fills in the targets: the duration and the leading edges, as far as they vary.
func (s *study) aim(p *detect.Problem) {
	n := len(s.requests)
	if p.EqualSize() {
		s.size = p.SizeKey
	}
	durations := make([]float64, n)
	var sum float64
	for i, o := range s.requests {
		durations[i] = float64(p.Judged(o))
		sum += durations[i]
	}
	floor := sum / float64(n) / 100
	s.addTarget(0, durations, floor)
	leading := slices.DeleteFunc(slices.Clone(p.Edges), func(e group.EdgeShare) bool { return e.Edge == 0 })
	slices.SortStableFunc(leading, func(a, b group.EdgeShare) int { return cmp.Compare(b.Score, a.Score) })
	for _, e := range leading[:min(len(leading), s.options.Edges)] {
		nanos := make([]float64, n)
		for i, o := range s.requests {
			nanos[i] = float64(edgeNanos(o, e.Edge, p.Level))
		}
		s.addTarget(e.Edge, nanos, floor)
	}
}

func (s *study) addTarget(edge trace.Edge, nanos []float64, floor float64) {
	logs := make([]float64, len(nanos))
	for i, v := range nanos {
		logs[i] = math.Log(v + floor)
	}
	if slices.Min(logs) < slices.Max(logs) {
		s.targets = append(s.targets, target{edge: edge, nanos: nanos, logs: logs})
	}
}

// edgeNanos returns the time of o in an edge of the given level, in ns.
func edgeNanos(o *observation.Observation, edge trace.Edge, level group.Level) int64 {
	var sum int64
	for i := range o.Edges {
		e := &o.Edges[i]
		if level == group.LevelGroup && e.Edge == edge || level == group.LevelRequestType && trace.ContextEdge(e.Context) == edge {
			sum += e.Nanos
		}
	}
	return sum
}

// testAll tests every column by itself for every target.
func (s *study) testAll() {
	n := len(s.requests)
	for i := range s.targets {
		t := &s.targets[i]
		f := newFit(t.logs)
		t.first = make([]float64, len(s.columns))
		t.bound = make([]float64, len(s.columns))
		for k := range s.columns {
			g := f.gain(&s.columns[k])
			t.first[k] = g.pValue()
			t.bound[k] = upperBound(g.adjusted(), n)
			if g.pValue() == g.pValue() {
				s.tried++
			}
		}
	}
}

// explain returns what the causes of t account for.
func (s *study) explain(t *target) []detect.Explanation {
	var out []detect.Explanation
	for _, c := range s.causes(t) {
		if s.columns[c.column].isAttribute(s.size) {
			continue // that edges take longer for larger requests is expected
		}
		x := s.explanation(t, &s.columns[c.column], c.level)
		named := slices.ContainsFunc(out, func(y detect.Explanation) bool { return x.Variable == y.Variable && x.Where == y.Where })
		if x.Effect >= leastEffect && !named {
			out = append(out, x)
		}
	}
	return out
}

// cause is a variable that was found to account for a target.
type cause struct {
	column int
	level  float64 // corrected p-value
}

// causes returns the variables that account for t, in the order in which they were found.
func (s *study) causes(t *target) []cause {
	open := s.screen(t)
	f := newFit(t.logs)
	var found []cause
	level := 0.0
	for doubted := 0; len(found) < maxNamed && doubted < maxDoubted; {
		best := s.best(f, open)
		if best < 0 {
			break
		}
		k := open[best]
		c := &s.columns[k]
		left := float64(s.tried - len(found))
		if !(f.gain(c).pValue()*left <= s.options.Alpha) {
			break
		}
		open = slices.Delete(open, best, best+1)
		p := s.pValue(f, t, c, left)
		if !(p <= s.options.Alpha) || !s.confirmed(t, found, k) {
			doubted++
			continue
		}
		level = max(level, p) // Holm's adjusted p-values do not fall
		found = append(found, cause{k, level})
		f.control(c.controls(s.many()))
	}
	return found
}

func (s *study) many() bool { return len(s.requests) >= manyRequests }

// screen returns the columns that may be causes of t, as numbers.
func (s *study) screen(t *target) []int {
	var open []int
	for k, p := range t.first {
		if p <= screened {
			open = append(open, k)
		}
	}
	return open
}

// best returns which of the open columns explains best: that with the smallest p-value; -1 if nothing can be tested. Of equal ones it is the first, as
// columns are in the order of preference.
func (s *study) best(f *fit, open []int) int {
	best, lowest, part := -1, math.Inf(1), 0.0
	for i, k := range open {
		g := f.gain(&s.columns[k])
		if p := g.pValue(); p < lowest || p == lowest && g.part > part+1e-9 {
			best, lowest, part = i, p, g.part
		}
	}
	if best < 0 {
		return best
	}
	return s.asNumber(f, open, best, part)
}

// plainer is the part of what the categories of a number explain that a line must explain to be preferred: "the more, the
// slower" says more than "slow where it is 4".
const plainer = 0.7

// asNumber returns, if open[best] is a number taken as categories, which of open is the number itself, should it explain nearly as
// much and be certain; else best.
func (s *study) asNumber(f *fit, open []int, best int, part float64) int {
	for i, k := range open {
		if c := &s.columns[k]; i != best && c.codes == nil && c.id == s.columns[open[best]].id {
			if g := f.gain(c); g.part >= plainer*part && g.pValue()*float64(s.tried) <= s.options.Alpha {
				return i
			}
		}
	}
	return best
}

// pValue returns the p-value, corrected for the given number of tests, of what c, one of the columns, explains beyond what f accounts for. One
// that is not significant by the F test is not looked at more closely.
func (s *study) pValue(f *fit, t *target, c *column, tests float64) float64 {
	g := f.gain(c)
	p := g.pValue()
	switch {
	case !(p*tests <= s.options.Alpha):
		return p * tests
	case s.many():
		return max(p, f.extrapolated(c, g, permutations, s.options.Seed)) * tests
	}
	return max(p*tests, s.byOrder(f, t, p))
}

// byOrder returns the probability that any column has so small a p-value for any target if the requests were in another order: what it takes
// to be significant among so many, whatever the distribution of times and however variables correlate (Westfall and Young 1993,
// "Resampling-Based Multiple Testing", minP). F is the fit of t, with what accounts for it; of other targets nothing is accounted for.
func (s *study) byOrder(f *fit, t *target, p float64) float64 {
	orders := int(2/s.options.Alpha) - 1 // so that the least that can come out is half of alpha
	lowest := make([][]float64, len(s.targets))
	for i := range s.targets {
		x := &s.targets[i]
		switch {
		case x == t && len(f.vectors) > 1:
			lowest[i] = f.lowest(s.columns, orders, s.options.Seed)
			continue
		case x.lowest == nil:
			x.lowest = newFit(x.logs).lowest(s.columns, orders, s.options.Seed)
		}
		lowest[i] = x.lowest
	}
	extreme := 1
	for k := range orders {
		if slices.ContainsFunc(lowest, func(of []float64) bool { return of[k] <= p*(1+1e-6) }) { // the last bits depend on the order
			extreme++
		}
	}
	return float64(extreme) / float64(orders+1)
}

// confirmed reports whether column k explains t beyond what was found in both halves of the requests by themselves.
func (s *study) confirmed(t *target, found []cause, k int) bool {
	if !s.many() {
		return true
	}
	for _, half := range []bool{false, true} {
		rows := make([]int, 0, len(s.requests))
		for i, held := range s.held {
			if held == half {
				rows = append(rows, i)
			}
		}
		f := newFit(pick(t.logs, rows))
		for _, u := range found {
			c := s.columns[u.column].of(rows)
			f.control(c.controls(true))
		}
		c := s.columns[k].of(rows)
		if g := f.gain(&c); !(g.pValue() <= confirming) {
			return false
		}
	}
	return true
}

// joint returns the first canonical correlation between numeric columns and targets.
func (s *study) joint() float64 {
	var xs, ys [][]float64
	for i := range s.targets {
		ys = append(ys, s.targets[i].logs)
	}
	limit := len(s.requests) / 8 // with more, everything correlates
	for k := range s.columns {
		if c := &s.columns[k]; c.codes == nil && len(xs) < limit && slices.ContainsFunc(s.targets, func(t target) bool { return t.first[k] <= screened }) {
			xs = append(xs, c.ranks)
		}
	}
	c, err := stats.CanonicalCorrelation(xs, ys)
	if err != nil {
		return math.NaN()
	}
	return c.Correlations[0]
}

// unrelatedBound is the part of the variance under which a variable is of no use.
const unrelatedBound = 0.1

// unrelated returns the attributes with nothing to say about any target.
func (s *study) unrelated() []UnrelatedVariable {
	useful := make(map[columnID]bool)
	tested := make(map[columnID]bool)
	for k := range s.columns {
		c := &s.columns[k]
		for _, id := range append([]columnID{c.id}, c.copies...) {
			tested[id] = id.kind == attribute
			if slices.ContainsFunc(s.targets, func(t target) bool { return !(t.bound[k] < unrelatedBound) }) {
				useful[id] = true
			}
		}
	}
	var out []UnrelatedVariable
	for id, recorded := range tested {
		if recorded && !useful[id] {
			out = append(out, UnrelatedVariable{Context: id.context, Key: id.key, Name: s.name(id)})
		}
	}
	slices.SortFunc(out, func(a, b UnrelatedVariable) int {
		return cmp.Or(cmp.Compare(a.Context, b.Context), cmp.Compare(a.Key, b.Key))
	})
	return out
}
