package detect

import (
	"cmp"
	"maps"
	"math"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

// WatchOptions say when a change is a problem. Use [DefaultWatchOptions] and change what you need.
type WatchOptions struct {
	Tests stats.TestOptions
	// FalseDiscovery is the part of all alarms that may be false (e-BH over all groups and tests).
	FalseDiscovery float64
	// MinImpact is the time lost per second of operation, in ns, under which a change is left alone.
	MinImpact float64
	// MinSamples is the number of requests from which a group is learned and judged.
	MinSamples uint64
	// Confirm is in how many epochs in a row the evidence must have grown once it suffices: the change shows in windows that
	// share nothing.
	Confirm int
	// Calm is for how many epochs with requests, taken together, a problem's requests must be within the expectation again for it to
	// be gone.
	Calm int
	// Renew is for how many epochs with requests, all well, an expectation holds: then what these showed takes its place, so that it
	// follows the time of day.
	Renew int
	// Chronic says which levels are problems though nothing changed; its MinSamples is not used. Objectives and accepted levels, there and
	// in the rules, hold whatever the thresholds, which are off while they are 0.
	Chronic Thresholds
	// Silence is for how many epochs in a row a problem must have no request for it to be gone.
	Silence int
}

// DefaultWatchOptions returns the options of design: 5 % false discoveries, two disjoint windows. The tests are less cautious than
// package stats would have them: the correlation of requests within an epoch is learned, a limit that was learned wrong is still
// a margin away from what is healthy, and a false discovery has more gates to pass here.
func DefaultWatchOptions() WatchOptions {
	tests := stats.DefaultTestOptions()
	tests.Margin, tests.Rho, tests.Alpha = 0.05, 0.005, 1e-2
	return WatchOptions{Tests: tests, FalseDiscovery: 0.05, MinSamples: 50, Confirm: 2, Calm: 6, Renew: 360, Silence: 60}
}

// chronic returns the thresholds for problems without a change.
func (o *WatchOptions) chronic() Thresholds {
	t := o.Chronic
	t.CoV, t.Delayed, t.MinSamples = cmp.Or(t.CoV, math.Inf(1)), cmp.Or(t.Delayed, math.Inf(1)), o.MinSamples
	return t
}

// Watch ends an epoch at time now and returns the open problems, ranked, chronic ones last.
//
//  1. The requests of the open epoch of each group are held against its expectation, which gives the evidence of several tests.
//  2. Of all tests of all groups those are alarms whose evidence suffices in view of their number (e-BH).
//  3. The open epoch becomes part of the windows that are judged.
//  4. In each request type, problems of alarmed groups are opened, and others closed. Windows of groups that are well become part of their
//     reference.
//  5. Open problems are described; groups without a change may have chronic ones.
func (d *Detector) Watch(now trace.Nanos, o WatchOptions) []Problem {
	tests := d.step(o)
	evalues := make([]float64, len(tests))
	for i := range tests {
		evalues[i] = tests[i].evalue
	}
	e := epoch{detector: d, options: &o, now: now, alarms: make(map[*group.Group]testResult)}
	for _, i := range stats.EBH(evalues, o.FalseDiscovery) {
		t := tests[i]
		if known, ok := e.alarms[t.group]; !ok || t.evalue > known.evalue {
			e.alarms[t.group] = t
		}
	}
	d.Groups.Close(now)
	for requestType, groups := range d.Groups.ByType() {
		e.judge(requestType, groups)
	}
	return d.problems(o)
}

// testResult is one test of one group.
type testResult struct {
	group  *group.Group
	kind   ProblemKind
	evalue float64
}

// step holds the open epoch of every group against its expectation and returns the results of all tests.
func (d *Detector) step(o WatchOptions) (tests []testResult) {
	watched := 0
	for g := range d.Groups.Each() {
		if !g.Expectation.Learned {
			continue
		}
		watched++
		c := d.of(g)
		c.step(&g.Expectation, o.Calm)
		tests = append(tests,
			testResult{g, KindSlow, c.change.Slower()}, testResult{g, KindVariable, c.change.Variable()})
		if g.Expectation.Mix != nil {
			tests = append(tests, testResult{g, KindShifted, c.mix.Shifted()})
		}
		if c.accumulate(c.strongest()); c.rising == 0 && !g.OpenProblem {
			c.recentMixes = nil
		}
	}
	if len(d.changes) > watched { // some made room
		maps.DeleteFunc(d.changes, func(g *group.Group, _ *changeDetector) bool { return d.Groups.Group(g.ID) != g })
	}
	return tests
}

// problems returns the open problems, ranked.
func (d *Detector) problems(o WatchOptions) []Problem {
	var open []Problem
	for g := range d.Groups.Each() {
		if g.OpenProblem {
			open = append(open, d.of(g).problem(g, d.Groups.Table))
		}
	}
	open = append(open, d.chronicProblems(o.chronic())...)
	Rank(open)
	d.detail(open)
	return open
}

// epoch judges groups at the end of an epoch.
type epoch struct {
	detector *Detector
	options  *WatchOptions
	now      trace.Nanos
	alarms   map[*group.Group]testResult // the strongest of each group that has one
}

// judge opens and closes the problems of one request type and its groups.
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
		reported := i > 0 && requestType.OpenProblem // with its type
		switch {
		case g.OpenProblem:
			e.maybeClose(g)
		case alarmed && level == g.Level && !reported:
			e.maybeOpen(g, e.kind(g, alarm.kind))
		}
		requestType.AnyOpenProblem = requestType.AnyOpenProblem || g.OpenProblem
		e.updateReference(g)
	}
	if before && !requestType.AnyOpenProblem { // what the problem left of evidence in others is not held against them
		e.reset(requestType)
		for _, g := range groups {
			e.reset(g)
		}
	}
}

// kind returns the kind of a change for which the evidence of one kind is strongest: requests that are all slower alike are far from
// where they were, too, but do not vary more.
func (e *epoch) kind(g *group.Group, strongest ProblemKind) ProblemKind {
	now, before := g.Current.Total, g.Reference.Total
	if strongest == KindVariable && now.Mean() > before.Mean() && now.CoV() <= before.CoV()*(1+e.options.Tests.Margin) {
		return KindSlow
	}
	return strongest
}

// maybeOpen opens a problem of a group that has requests if the evidence was confirmed, the change matters, and nobody accepted it. Of a
// change that is accepted the window that is judged restarts now and then, so that it shows soon if it grows.
func (e *epoch) maybeOpen(g *group.Group, kind ProblemKind) {
	c := e.detector.of(g)
	if c.silent > 0 || c.rising < e.options.Confirm || !e.matters(g, kind) {
		return
	}
	switch {
	case !e.accepted(g, kind):
		g.OpenProblem = true
		c.kind, c.since, c.judged = kind, e.now, 0
	case c.judged >= e.options.Calm:
		g.RestartWindow()
		c.judged = 0
	}
}

// accepted reports whether somebody decided to live with what the requests judged of a group are like.
func (e *epoch) accepted(g *group.Group, kind ProblemKind) bool {
	_, level := e.options.Chronic.of(g, e.detector.Groups.Types.Rules)
	switch now := g.Current.Total; kind {
	case KindVariable:
		return now.CoV() <= level.CoV
	case KindSlow:
		return now.Mean() <= float64(level.Mean)
	case KindShifted: // no level
	}
	return false
}

// matters reports whether enough time is lost for a problem of that kind. A shift may be one without any: requests that fail are
// fast.
func (e *epoch) matters(g *group.Group, kind ProblemKind) bool {
	lost := impact(g)
	return lost > e.options.MinImpact || kind == KindShifted && lost >= e.options.MinImpact
}

// maybeClose closes the problem of a group whose requests are within the expectation again, or that has none any more.
func (e *epoch) maybeClose(g *group.Group) {
	c := e.detector.of(g)
	if c.silent >= e.options.Silence || c.judged >= e.options.Calm && c.holds(&g.Expectation) {
		e.reset(g)
	}
}

// updateReference makes the window that is judged part of the reference if the group is well. Else the group samples more requests.
func (e *epoch) updateReference(g *group.Group) {
	if !g.Expectation.Learned {
		return
	}
	c := e.detector.of(g)
	well := !g.OpenProblem && c.strongest() < quiet
	if !well {
		g.EnlargeSample(true)
		g.LimitWindow(e.now)
		return
	}
	if g.UpdateReference(e.options.Renew, e.options.MinSamples, e.options.Tests) {
		c.recent = nil
	}
	g.EnlargeSample(false)
}

// reset forgets what a group showed during a problem that is over. A group without an expectation learns from now on only.
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

// carries is the part of a request type's excess time that one group must carry to be the problem in the type's place.
const carries = 0.8

// level returns the level at which the problems of a request type are to be reported: that of the groups if the type as a whole
// raises no alarm, or if a single group, not most of the type, carries nearly all of the time lost.
func (e *epoch) level(requestType *group.Group, groups []*group.Group) group.Level {
	if _, ok := e.alarms[requestType]; !ok {
		return group.LevelGroup
	}
	all := lost(requestType)
	for _, g := range groups {
		_, ok := e.alarms[g]
		if ok && 2*g.Current.Total.N < requestType.Current.Total.N && lost(g) > carries*all {
			return group.LevelGroup
		}
	}
	return group.LevelRequestType
}

// lost returns the time that the requests judged took beyond the reference, in ns.
func lost(g *group.Group) float64 {
	if g.Reference.Total.N == 0 || g.Current.Total.N == 0 {
		return 0
	}
	return float64(g.Current.Total.N) * (g.Current.Total.Mean() - g.Reference.Total.Mean())
}

// impact returns the time lost per second, in ns: what the requests took beyond the reference, or, where the mean did not rise, how
// far they spread beyond it.
func impact(g *group.Group) float64 {
	w := &g.Current
	span := w.Last.Sub(w.First).Seconds()
	if !(span > 0) {
		return 0
	}
	spread := float64(w.Total.N) * (w.Total.StdDev() - g.Reference.Total.StdDev())
	return max(lost(g), spread, 0) / span
}
