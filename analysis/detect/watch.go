package detect

import (
	"cmp"
	"math"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// WatchOptions are the options for detecting changes. Start from [DefaultWatchOptions].
type WatchOptions struct {
	Tests stats.TestOptions
	// FalseDiscovery is the maximum false discovery rate: the expected fraction of alarms that are false (e-BH over all
	// groups and tests).
	FalseDiscovery float64
	// MinImpact is the added latency, in ns per second of operation, that a change must exceed to be a problem.
	MinImpact float64
	// MinSamples is the minimum number of requests of a group that is learned or judged.
	MinSamples uint64
	// Renew is the number of healthy epochs with requests after which their requests replace the expectation, so that
	// it follows the time of day.
	Renew int
	// Chronic holds the thresholds of chronic problems. Its MinSamples is not used, and a zero CoV or Delayed disables
	// that threshold. Objectives and accepted levels, here and in the rules, always apply.
	Chronic Thresholds
	// Silence is the number of consecutive epochs without requests after which a problem closes.
	Silence int
}

const (
	// confirm is the number of consecutive epochs with growing evidence that open a problem: two disjoint windows
	// confirm each other, and a third would only delay the problem.
	confirm = 2
	// calm is the number of epochs with requests that must, taken together, be within the expectation to close a
	// problem: a minute by default, so that an intermittent problem remains one problem.
	calm = 6
)

// DefaultWatchOptions returns the default options: 5 % false discoveries, confirmed in two disjoint windows. The tests
// are more sensitive than the defaults of package stats, for three reasons: the correlation of requests within an epoch
// is learned; the margin remains even if a limit was learned too low; and a false discovery must pass further
// conditions to open a problem.
func DefaultWatchOptions() WatchOptions {
	tests := stats.DefaultTestOptions()
	tests.Margin, tests.Rho, tests.Alpha = 0.05, 0.005, 1e-2
	return WatchOptions{
		Tests:          tests,
		FalseDiscovery: 0.05,
		MinSamples:     50,
		Renew:          360,
		Silence:        60,
	}
}

// chronic returns the thresholds of chronic problems.
func (o *WatchOptions) chronic() Thresholds {
	t := o.Chronic
	t.CoV, t.Delayed, t.MinSamples = cmp.Or(t.CoV, math.Inf(1)), cmp.Or(t.Delayed, math.Inf(1)), o.MinSamples
	return t
}

// Watch ends an epoch at time now and returns the open problems, ranked, chronic ones last.
//
//  1. Compare the requests of each group in the open epoch with its expectation. This adds to the evidence of several
//     tests.
//  2. Raise alarms for the tests whose evidence suffices in view of the number of all tests (e-BH).
//  3. Add the open epoch to the judged windows.
//  4. In each request type, open problems of groups with alarms, and close others. Add the windows of healthy groups to
//     their reference.
//  5. Describe the open problems, and look for chronic ones in groups that did not change.
func (d *Detector) Watch(now trace.Nanos, o WatchOptions) []Problem {
	tests, rested := d.step(o)
	evalues := make([]float64, len(tests)+rested) // the e-values of groups at rest are too small to matter
	for i := range tests {
		evalues[i] = tests[i].evalue
	}
	e := epoch{
		detector: d,
		options:  &o,
		now:      now,
		alarms:   make(map[*group.Group]testResult),
		shifts:   make(map[*group.Group]bool),
	}
	for _, i := range stats.EBH(evalues, o.FalseDiscovery) {
		t := tests[i]
		if known, ok := e.alarms[t.group]; t.kind == KindShifted {
			e.shifts[t.group] = true
		} else if !ok || t.evalue > known.evalue {
			e.alarms[t.group] = t
		}
	}
	d.Groups.EndEpoch(now)
	for requestType, groups := range d.Groups.ByType() {
		if d.resting[requestType] == nil {
			before := requestType.AnyOpenProblem
			e.judge(requestType, groups)
			if !before { // otherwise it already has groups with large samples
				e.rest(requestType, groups)
			}
		}
	}
	return d.problems(o)
}

// testResult is the result of one test of one group.
type testResult struct {
	group  *group.Group
	kind   ProblemKind
	evalue float64
}

// resting is the state of a request type that has no requests and is healthy, like all of its groups. Nothing changes
// until it has requests again. Most types have no requests in an epoch.
type resting struct {
	tests  int  // number of tests of the type and its groups
	judged bool // its chronic problems are known
}

// step compares the open epoch of every group with its expectation. It skips request types at rest, and returns the
// results of all tests performed and the number of tests of the skipped types.
func (d *Detector) step(o WatchOptions) (tests []testResult, rested int) {
	d.forgetDeleted()
	for requestType, groups := range d.Groups.ByType() {
		if r := d.resting[requestType]; r != nil {
			if requestType.Open.Total.N == 0 {
				rested += r.tests
				continue
			}
			delete(d.resting, requestType)
		}
		tests = d.stepGroup(tests, requestType)
		for _, g := range groups {
			tests = d.stepGroup(tests, g)
		}
		d.countMix(requestType, groups)
	}
	d.epochs++
	return tests, rested
}

// stepGroup compares the open epoch of one group with its expectation, and appends the results of its tests.
func (d *Detector) stepGroup(tests []testResult, g *group.Group) []testResult {
	if !g.Expectation.Learned {
		return tests
	}
	c := d.changeDetectorOf(g)
	c.step(&g.Expectation, d.epochs+1, calm)
	e := c.evalues()
	tests = append(tests, testResult{g, KindSlow, e.slower}, testResult{g, KindVariable, e.variable})
	if g.Expectation.Mix != nil {
		tests = append(tests, testResult{g, KindShifted, e.shifted})
	}
	if c.accumulate(c.strongest()); c.rising == 0 && !g.OpenProblem {
		c.recentMixes = nil
	}
	return tests
}

// rest puts requestType at rest if nothing will change until it has requests again. The type must have been judged.
func (e *epoch) rest(requestType *group.Group, groups []*group.Group) {
	if requestType.AnyOpenProblem {
		return
	}
	tests := 0
	for i := range 1 + len(groups) {
		g := requestType
		if i > 0 {
			g = groups[i-1]
		}
		if !g.Expectation.Learned {
			continue
		}
		c := e.detector.changeDetectorOf(g)
		strongest := c.strongest()
		if g.Current.Total.N > 0 || c.evidence != strongest || strongest >= healthyEvidence ||
			strongest*e.options.FalseDiscovery >= 1 {
			return
		}
		tests += 2
		if g.Expectation.Mix != nil {
			tests++
		}
	}
	e.detector.resting[requestType] = &resting{tests: tests}
}

// problems returns the open problems and the chronic ones, ranked.
func (d *Detector) problems(o WatchOptions) []Problem {
	var open []found
	for requestType, groups := range d.Groups.ByType() {
		if !requestType.AnyOpenProblem {
			continue
		}
		for i := range 1 + len(groups) {
			g := requestType
			if i > 0 {
				g = groups[i-1]
			}
			if g.OpenProblem {
				open = append(open, found{new(d.changeDetectorOf(g).problem(g, d.Groups.Table)), g, d.judgementOf(g)})
			}
		}
	}
	return ranked(d.chronicProblems(open, o.chronic()), ByImpact)
}

// epoch judges groups at the end of an epoch.
type epoch struct {
	detector *Detector
	options  *WatchOptions
	now      trace.Nanos
	alarms   map[*group.Group]testResult // the strongest alarm of each group about its durations
	shifts   map[*group.Group]bool       // request types whose mix raises an alarm

	allFailures *float64 // see failures; nil if not computed yet
}

// judge opens and closes the problems of one request type and its groups. A shifted mix hides no other problem: a
// problem of the type replaces the shifted mix, and problems of groups may be open at the same time.
func (e *epoch) judge(requestType *group.Group, groups []*group.Group) {
	level := e.level(requestType, groups)
	before := requestType.AnyOpenProblem
	requestType.AnyOpenProblem = false
	for i := range 1 + len(groups) {
		g := requestType
		if i > 0 {
			g = groups[i-1]
		}
		alarm, alarmed := e.alarms[g]
		// reported as part of the problem of its type
		reported := i > 0 && requestType.OpenProblem && !e.detector.isShifted(requestType)
		switch shifted := i == 0 && e.detector.isShifted(g); {
		case g.OpenProblem && !shifted:
			e.maybeClose(g)
		case alarmed && level == g.Level && !reported && e.maybeOpen(g, e.kind(g, alarm.kind)):
		case shifted:
			if !e.renewMix(g, groups) {
				e.maybeClose(g)
			}
		case e.shifts[g]:
			if e.maybeOpen(g, KindShifted) {
				g.Expectation.Mix.Next = group.MixCounts{}
			} else {
				e.settleMix(g, groups)
			}
		case i == 0:
			if c := e.detector.changes[g]; c != nil {
				c.kind = KindVariable // the shift, if there was one, is over
			}
			e.renewMix(g, groups)
		}
		requestType.AnyOpenProblem = requestType.AnyOpenProblem || g.OpenProblem
		e.updateReference(g)
	}
	// discard the evidence gathered against other groups during the problem
	if before && !requestType.AnyOpenProblem {
		e.reset(requestType)
		for _, g := range groups {
			e.reset(g)
		}
	}
}

// slowPart is the minimum rise of the mean, as a fraction of the rise of the standard deviation, for requests to count
// as slow rather than variable. It is reached if a fifth of them take longer by the same amount. If fewer do, the mean
// represents no actual request.
const slowPart = 0.5

// kind returns the kind of the problem of g, given the kind of its strongest evidence. Evidence of variation may come
// from a slowdown: slower requests also deviate from their usual durations, and rarely all by the same amount.
func (e *epoch) kind(g *group.Group, strongest ProblemKind) ProblemKind {
	now, before := g.Current.Total, g.Reference.Total
	slower, wider := now.Mean()-before.Mean(), now.StdDev()-before.StdDev()
	if strongest == KindVariable && slower > 0 &&
		(slower >= slowPart*wider || now.CoV() <= before.CoV()*(1+e.options.Tests.Margin)) {
		return KindSlow
	}
	return strongest
}

// maybeOpen opens a problem of g if g has requests, the evidence is confirmed, the change matters, and its level has
// not been accepted. It reports whether it opened a problem. It regularly restarts the window of an accepted change, so
// that a further change shows soon.
func (e *epoch) maybeOpen(g *group.Group, kind ProblemKind) (opened bool) {
	c := e.detector.changeDetectorOf(g)
	if c.idleUntil(e.detector.epochs) > 0 || c.rising < confirm ||
		!e.hasImpact(g, kind) || !e.matters(g, kind) {
		return false
	}
	switch {
	case !e.accepted(g, kind):
		g.OpenProblem, opened = true, true
		c.kind, c.since, c.judged = kind, e.now, 0
	case c.judged >= calm:
		g.RestartWindow()
		c.judged = 0
	}
	return opened
}

// accepted reports whether the current level of g is accepted.
func (e *epoch) accepted(g *group.Group, kind ProblemKind) bool {
	_, level := e.options.Chronic.of(g, e.detector.Groups.Types.Rules)
	switch now := g.Current.Total; kind {
	case KindVariable:
		return now.CoV() <= level.CoV
	case KindSlow:
		return now.Mean() <= float64(level.Mean)
	case KindShifted: // a shift has no level
	}
	return false
}

// hasImpact reports whether a problem of the given kind has enough impact. The rise of the spread counts as well as the
// rise of the mean, because the mean of variable requests may hardly rise. The impact of a shift may be 0, because
// failing requests may be fast.
func (e *epoch) hasImpact(g *group.Group, kind ProblemKind) bool {
	spread := g.Current.Rate() * (g.Current.Total.StdDev() - g.Reference.Total.StdDev())
	loss := max(impact(g), spread)
	return loss > e.options.MinImpact || kind == KindShifted && loss >= e.options.MinImpact
}

// maybeClose closes the problem of g if its requests are within the expectation again, or if it has had no requests for
// WatchOptions.Silence epochs.
func (e *epoch) maybeClose(g *group.Group) {
	c := e.detector.changeDetectorOf(g)
	if c.idleUntil(e.detector.epochs) >= e.options.Silence || c.judged >= calm && c.withinExpectation(&g.Expectation) {
		e.reset(g)
	}
}

// updateReference adds the current window of a healthy group to its reference, unless the request type is unhealthy for
// other reasons. It enlarges the samples of groups with evidence against them.
func (e *epoch) updateReference(g *group.Group) {
	if !g.Expectation.Learned {
		return
	}
	c := e.detector.changeDetectorOf(g)
	well := !g.OpenProblem && c.strongest() < healthyEvidence
	switch {
	case !well:
		g.EnlargeSample(true)
		g.LimitWindow(e.now)
		return
	case e.detector.isUnhealthy(g):
		if g.Current.Total.N > 0 {
			g.RestartWindow()
		}
		g.EnlargeSample(false)
		return
	}
	if g.UpdateReference(e.now, e.options.Renew, e.options.MinSamples, e.options.Tests) {
		c.recent = nil
	}
	g.EnlargeSample(false)
}

// reset closes the problem of g, if there is one, and discards the evidence and the requests of the current window. A
// group without an expectation restarts learning.
func (e *epoch) reset(g *group.Group) {
	if !g.Expectation.Learned {
		g.LearnFrom(e.now)
	}
	g.OpenProblem = false
	if c := e.detector.changes[g]; c != nil {
		c.reset()
	}
	g.RestartWindow()
}

// dominantShare is the minimum share of the added time of a request type that makes a single group the problem instead
// of the type.
const dominantShare = 0.8

// level returns the level for reporting the problems of a request type. It is the group level if the type raises no
// alarm, or if a single group with fewer than half of the requests has nearly all of the added time.
func (e *epoch) level(requestType *group.Group, groups []*group.Group) group.Level {
	if _, ok := e.alarms[requestType]; !ok {
		return group.LevelGroup
	}
	all := timeLost(requestType)
	for _, g := range groups {
		_, ok := e.alarms[g]
		if ok && 2*g.Current.Total.N < requestType.Current.Total.N && timeLost(g) > dominantShare*all {
			return group.LevelGroup
		}
	}
	return group.LevelRequestType
}

// timeLost returns the total time that the current requests took beyond the reference, in ns.
func timeLost(g *group.Group) float64 {
	if g.Reference.Total.N == 0 || g.Current.Total.N == 0 {
		return 0
	}
	return float64(g.Current.Total.N) * (g.Current.Total.Mean() - g.Reference.Total.Mean())
}

// impact returns the added time per second beyond the reference, in ns: the rate × the rise of the mean. It is 0 if the
// mean did not rise.
func impact(g *group.Group) float64 {
	span := g.Current.Last.Sub(g.Current.First).Seconds()
	if !(span > 0) {
		return 0
	}
	return max(0, timeLost(g)) / span
}
