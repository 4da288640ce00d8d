// Package explain finds explanations of a problem: variables associated with the durations of its requests
// ([Associate]), differences between the requests of one host or version and the others ([Contrast]), differences in
// frequency between two sets of requests ([Frequencies]), edges of different request types whose times rise and fall
// together ([Common]), the time that faster edges would save ([Recoveries]), and variables to split a group by
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
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure the search for explanations. The zero value selects the defaults.
type Options struct {
	Alpha float64 // probability of reporting any variable if no variable matters; default 0.02
	Edges int     // number of leading edges to explain, in addition to the duration; default 3
	Seed  uint64  // seed of the permutations
	// Concurrency returns the number of requests in service when o arrived, or NaN if it is unknown. A nil Concurrency
	// means that it is always unknown. See [Load].
	Concurrency func(o *observation.Observation) float64
	// On reports whether a tracepoint was enabled for o. If it was enabled and the context of the tracepoint is
	// missing, that context was not executed; if it was not enabled, we don't know. A nil On means that no tracepoint
	// was enabled.
	On func(o *observation.Observation, tracepoint trace.Symbol) bool
}

// Limits and thresholds of [Associate].
const (
	minRequests = 12 // minimum number of requests for any test
	// manyRequests is the minimum number of requests for extrapolating p-values from a few permutations, and for
	// confirming findings in both halves of the requests. With fewer requests, all variables are permuted together (see
	// [study.permutationP]) and findings are not confirmed, because the halves are too small.
	manyRequests = 64
	permutations = 1000 // number of permutations for extrapolation
	maxFound     = 4    // maximum number of variables reported for one target
	maxRejected  = 4    // number of rejected variables that ends the search for one target
	screened     = 0.1  // maximum uncorrected p-value of candidates
	confirming   = 0.1  // maximum p-value in each half
	minEffect    = 0.02
)

// Association describes the relation of the variables of requests to their times.
type Association struct {
	Explanations []detect.Explanation // of the duration, then of edges, by descending effect
	// Joint is the first canonical correlation (0–1) between the numeric candidates and the targets (the duration and
	// the leading edges), or NaN if there are no candidates.
	Joint float64
	// Unrelated holds the attributes that explain less than a tenth of the variance of every target with 95 %
	// confidence, in ascending order of (Context, Key). They need not be recorded for this problem.
	Unrelated []UnrelatedVariable
}

// UnrelatedVariable is an attribute that does not explain a problem.
type UnrelatedVariable struct {
	Context trace.Context
	Key     trace.Symbol
	Name    string
}

// leastCarried is the minimum share of a problem that an edge must have for its times to be explained. Explanations of
// other edges would mislead readers.
const leastCarried = 0.05

// Associate finds the variables of the requests that are associated with their durations, and with their times in the
// leading edges of p. The requests must be a uniform sample, in any order. Equal arguments yield equal results. Fewer
// than 12 requests yield no explanations.
//
// These are the steps for each target:
//
//  1. Test every variable alone with an F test: a numeric variable by its correlation, a categorical variable by η².
//  2. Report the variable with the smallest p-value if that is at most alpha, corrected for the number of pairs of a
//     variable and a target (Holm), and if it is confirmed in each half of the requests.
//  3. Test the remaining variables on the variation that the reported ones leave, by partial correlation or its
//     equivalent for categories. A variable that only correlates with the cause explains nothing more.
//  4. Repeat steps 2 and 3 until no variable is reported.
//
// If several variables are equivalent (an attribute copied to many spans, a context and its child), one of them
// represents all: attributes take precedence over derived variables, then the variable nearest to the root. Categories
// with few requests are pooled, so an identifier explains nothing.
//
// Tests use the logarithm of times plus a hundredth of the mean duration, so that irrelevant differences do not matter.
// Latencies are skewed products of many factors, and neither a single extreme request nor the noise of slow ones should
// dominate. Ranks would ignore how slow the slowest requests are: a value that makes 2 % of the requests ten times
// slower accounts for at most 6 % of the variance of ranks. Numeric variables, however, are represented by their ranks,
// because their units are arbitrary and latency need only be monotonic in them. Effects, in contrast, are fractions of
// the variance of the times themselves. If the problem is judged at equal size, they refer to the times at equal size,
// and the size is not reported.
func Associate(p *detect.Problem, requests []*observation.Observation, table *trace.Table, o Options) Association {
	o.Alpha = cmp.Or(o.Alpha, 0.02)
	o.Edges = cmp.Or(o.Edges, 3)
	s := newStudy(o, table, requests)
	a := Association{Joint: math.NaN()}
	if len(s.requests) < minRequests {
		return a
	}
	s.collect()
	carrying := *p
	carrying.Edges = slices.DeleteFunc(slices.Clone(p.Edges),
		func(e group.EdgeShare) bool { return e.Score < leastCarried })
	s.addTargets(&carrying)
	if len(s.targets) == 0 {
		return a
	}
	s.testAll()
	for i := range s.targets {
		a.Explanations = append(a.Explanations, s.explain(&s.targets[i])...)
	}
	sortExplanations(a.Explanations, p)
	a.Joint = s.joint()
	a.Unrelated = s.unrelated()
	return a
}

// sortedRequests returns the requests in order of their keys, without duplicates.
func sortedRequests(requests []*observation.Observation) []*observation.Observation {
	out := slices.Clone(requests)
	sorting.Slice(out, func(a, b *observation.Observation) int {
		return cmp.Or(cmp.Compare(a.Key(), b.Key()), a.Trace.Compare(b.Trace), cmp.Compare(a.Root, b.Root))
	})
	return slices.CompactFunc(out,
		func(a, b *observation.Observation) bool { return a.Trace == b.Trace && a.Root == b.Root })
}

// sortExplanations sorts the explanations of the duration before the explanations of edges, and both in descending
// order of the share of the problem explained.
func sortExplanations(all []detect.Explanation, p *detect.Problem) {
	weight := func(x *detect.Explanation) float64 {
		for i := range p.Edges {
			if p.Edges[i].Edge == x.Target && x.Target != 0 && p.Edges[i].Score > 0 {
				return x.Effect * p.Edges[i].Score
			}
		}
		return x.Effect
	}
	sorting.SliceStable(all, func(a, b detect.Explanation) int {
		if (a.Target == 0) != (b.Target == 0) {
			return cmp.Compare(min(1, a.Target), min(1, b.Target))
		}
		return cmp.Or(cmp.Compare(weight(&b), weight(&a)), cmp.Compare(a.Target, b.Target))
	})
}

// study is the state of one search for explanations, such as [Associate].
type study struct {
	options  Options
	table    *trace.Table
	requests []*observation.Observation // by key
	held     []bool                     // by request: whether it is in the half held out
	columns  []column
	targets  []target
	tried    int
	size     trace.Symbol      // attribute with the size, if requests are judged at equal size; otherwise 0
	splits   bool              // whether a span off the path counts as a value of its attributes, as for [Splits]
	known    map[cellKey]int32 // scratch
}

func newStudy(o Options, table *trace.Table, requests []*observation.Observation) *study {
	return &study{options: o, table: table, requests: sortedRequests(requests), known: make(map[cellKey]int32)}
}

// target is a time to explain.
type target struct {
	edge  trace.Edge // 0 for the duration
	nanos []float64
	logs  []float64 // logarithms, for testing
	first []float64 // by column: its p-value alone; NaN if it cannot be tested
	bound []float64 // by column: upper limit of the share of variance that it explains alone
	// lowest holds, for random orders of the requests, the smallest p-value of any column alone. It is nil if not yet
	// computed. See study.permutationP.
	lowest []float64
}

// addTargets adds the targets that vary: the duration and the leading edges.
func (s *study) addTargets(p *detect.Problem) {
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
	sorting.SliceStable(leading, func(a, b group.EdgeShare) int { return cmp.Compare(b.Score, a.Score) })
	for _, e := range leading[:min(len(leading), s.options.Edges)] {
		nanos := make([]float64, n)
		for i, o := range s.requests {
			nanos[i] = float64(edgeNanos(o, e.Edge, p.Level))
		}
		s.addTarget(e.Edge, nanos, floor)
	}
}

// addTarget adds a target if its times vary. floor is added to the times before their logarithms are taken.
func (s *study) addTarget(edge trace.Edge, nanos []float64, floor float64) {
	logs := make([]float64, len(nanos))
	for i, v := range nanos {
		logs[i] = math.Log(v + floor)
	}
	if slices.Min(logs) < slices.Max(logs) {
		s.targets = append(s.targets, target{edge: edge, nanos: nanos, logs: logs})
	}
}

// edgeNanos returns the time of o in edge, in ns. level determines whether edge is an edge of a group or of a request
// type.
func edgeNanos(o *observation.Observation, edge trace.Edge, level group.Level) int64 {
	var sum int64
	for i := range o.Edges {
		e := &o.Edges[i]
		if level == group.LevelGroup && e.Edge == edge ||
			level == group.LevelRequestType && trace.ContextEdge(e.Context) == edge {
			sum += e.Nanos
		}
	}
	return sum
}

// testAll tests every column alone on every target.
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

// explain returns the explanations of t.
func (s *study) explain(t *target) []detect.Explanation {
	var out []detect.Explanation
	for _, c := range s.causes(t) {
		if s.columns[c.column].isAttribute(s.size) {
			continue // edges take longer for larger requests, as expected
		}
		x := s.explanation(t, &s.columns[c.column], c.level)
		reported := slices.ContainsFunc(out,
			func(y detect.Explanation) bool { return x.Variable == y.Variable && x.Where == y.Where })
		if x.Effect >= minEffect && !reported {
			out = append(out, x)
		}
	}
	return out
}

// cause is a variable that accounts for part of a target.
type cause struct {
	column int
	level  float64 // corrected p-value
}

// causes returns the variables that account for t, the strongest first.
func (s *study) causes(t *target) []cause {
	candidates := s.candidates(t)
	f := newFit(t.logs)
	var found []cause
	level := 0.0
	for rejected := 0; len(found) < maxFound && rejected < maxRejected; {
		best := s.best(f, candidates)
		if best < 0 {
			break
		}
		k := candidates[best]
		c := &s.columns[k]
		tests := float64(s.tried - len(found))
		if !(f.gain(c).pValue()*tests <= s.options.Alpha) {
			break
		}
		candidates = slices.Delete(candidates, best, best+1)
		p := s.pValue(f, t, c, tests)
		if !(p <= s.options.Alpha) || !s.confirmed(t, found, k) {
			rejected++
			continue
		}
		level = max(level, p) // Holm's adjusted p-values ascend
		found = append(found, cause{k, level})
		f.control(c.controls(s.many()))
	}
	return found
}

// many reports whether there are enough requests to confirm findings.
func (s *study) many() bool { return len(s.requests) >= manyRequests }

// candidates returns the indices of the columns that can be causes of t.
func (s *study) candidates(t *target) []int {
	var candidates []int
	for k, p := range t.first {
		if p <= screened {
			candidates = append(candidates, k)
		}
	}
	return candidates
}

// best returns the index of the candidate that explains most, which is the candidate with the smallest p-value, or -1
// if no candidate can be tested. If several are equal, it returns the first, because columns are in order of
// preference.
func (s *study) best(f *fit, candidates []int) int {
	best, lowest, part := -1, math.Inf(1), 0.0
	for i, k := range candidates {
		g := f.gain(&s.columns[k])
		if p := g.pValue(); p < lowest || p == lowest && g.part > part+1e-9 {
			best, lowest, part = i, p, g.part
		}
	}
	if best < 0 {
		return best
	}
	return s.asNumber(f, candidates, best, part)
}

// preferNumber is the minimum fraction of the variance explained by the categories of a number that the number itself
// must explain to be preferred over them.
const preferNumber = 0.7

// asNumber returns the index of the numeric column of the same variable if candidates[best] is categorical and the
// numeric column is significant and explains nearly as much. Otherwise it returns best.
func (s *study) asNumber(f *fit, candidates []int, best int, part float64) int {
	for i, k := range candidates {
		if c := &s.columns[k]; i != best && c.codes == nil && c.id == s.columns[candidates[best]].id {
			if g := f.gain(c); g.part >= preferNumber*part && g.pValue()*float64(s.tried) <= s.options.Alpha {
				return i
			}
		}
	}
	return best
}

// pValue returns the p-value of the gain of c, one of the columns, beyond f. The p-value is corrected for the given
// number of tests, so it may exceed 1. pValue permutes requests only if the F test is significant.
func (s *study) pValue(f *fit, t *target, c *column, tests float64) float64 {
	g := f.gain(c)
	p := g.pValue()
	switch {
	case !(p*tests <= s.options.Alpha):
		return p * tests
	case s.many():
		return max(p, f.extrapolated(c, g, permutations, s.options.Seed)) * tests
	}
	return max(p*tests, s.permutationP(f, t, p))
}

// permutationP returns the probability, over random orders of the requests, that any column has a p-value of at most p
// for any target. It is a corrected p-value that is valid for any distribution of times and any correlation of
// variables (Westfall and Young 1993, "Resampling-Based Multiple Testing", minP). f is the fit of t; other targets are
// tested without controls.
func (s *study) permutationP(f *fit, t *target, p float64) float64 {
	orders := int(2/s.options.Alpha) - 1 // the smallest possible result is half of alpha
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
		// rounding depends on the order
		if slices.ContainsFunc(lowest, func(of []float64) bool { return of[k] <= p*(1+1e-6) }) {
			extreme++
		}
	}
	return float64(extreme) / float64(orders+1)
}

// confirmed reports whether column k explains t, beyond the causes found, in each half of the requests. If there are
// too few requests to tell, it returns true.
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

// joint returns the first canonical correlation between numeric candidates and targets, or NaN if there are no
// candidates.
func (s *study) joint() float64 {
	var xs, ys [][]float64
	for i := range s.targets {
		ys = append(ys, s.targets[i].logs)
	}
	limit := len(s.requests) / 8 // more columns would correlate with anything
	for k := range s.columns {
		if c := &s.columns[k]; c.codes == nil && len(xs) < limit &&
			slices.ContainsFunc(s.targets, func(t target) bool { return t.first[k] <= screened }) {
			xs = append(xs, c.ranks)
		}
	}
	c, err := stats.CanonicalCorrelations(xs, ys)
	if err != nil {
		return math.NaN()
	}
	return c[0]
}

// unrelatedBound is the maximum share of variance that an unrelated variable explains.
const unrelatedBound = 0.1

// unrelated returns the attributes that explain less than unrelatedBound of the variance of every target, with 95 %
// confidence.
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
	sorting.Slice(out, func(a, b UnrelatedVariable) int {
		return cmp.Or(cmp.Compare(a.Context, b.Context), cmp.Compare(a.Key, b.Key))
	})
	return out
}
