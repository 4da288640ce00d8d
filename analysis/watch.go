package analysis

import (
	"cmp"
	"math"
	"slices"
	"time"

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
	tests.Margin, tests.Rho, tests.Doubt = 0.05, 0.005, 1e-2
	return WatchOptions{Tests: tests, FalseDiscovery: 0.05, MinSamples: 50, Confirm: 2, Calm: 6, Renew: 360, Silence: 60}
}

// watch is what is known about the change of one group.
type watch struct {
	learned   bool
	reference stats.Reference
	size      *SizeModel     // of the requests that the reference is of, which is then that of durations adjusted for size; nil: it is not
	counts    stats.Counts   // of the open epoch
	recent    []stats.Counts // of the last epochs with requests, at most Calm of them
	change    stats.Change
	blocks    []stats.Moments // the logarithms of the durations of what is to be the next reference, epoch by epoch
	healthy   int             // epochs in the next reference

	// Of request types only: the mix of their groups, see mixOthers.
	mixReference stats.MixReference
	mix          stats.Mix
	mixed        []uint64   // requests of the open epoch, by number
	expectedMix  []uint64   // of the learning period
	recentMixes  [][]uint64 // of the last epochs with requests since the evidence began to rise, at most Calm of them
	numbers      map[Hash]int
	number       int  // of groups: their number in the mix of their type
	troubled     bool // the type, or one of its groups, has an open problem

	last   float64 // strongest evidence at the end of the last epoch
	rising int     // epochs in a row in which it grew, and stood above 1
	open   bool
	kind   ProblemKind
	since  trace.Nanos
	judged int // epochs with requests since the problem was opened, or an accepted change was last looked at
	silent int // epochs in a row without
}

// count takes in a request that was just added to the open window.
func (w *watch) count(duration int64) {
	if w.learned {
		w.counts.Add(&w.reference, duration)
	}
}

// mixes takes in, for a request type, the number of the group of a request, and whether it failed.
func (w *watch) mixes(number int, failed bool) {
	switch {
	case w.mixed == nil:
	case failed:
		w.mixed[mixFailed]++
	default:
		w.mixed[number]++
	}
}

// suspicion is one test of one group.
type suspicion struct {
	group  *Group
	kind   ProblemKind
	evalue float64
}

// Watch ends an epoch at time now: it weighs the evidence of every group against its expectation, opens and closes problems,
// and returns those that are open, ranked, chronic ones last. What is judged of groups that are well becomes part of their reference.
func (g *Grouper) Watch(now trace.Nanos, o WatchOptions) []Problem {
	suspicions := g.step(o)
	evalues := make([]float64, len(suspicions))
	for i := range suspicions {
		evalues[i] = suspicions[i].evalue
	}
	alarmed := make(map[*Group]suspicion)
	for _, i := range stats.EBH(evalues, o.FalseDiscovery) {
		s := suspicions[i]
		if known, ok := alarmed[s.group]; !ok || s.evalue > known.evalue {
			alarmed[s.group] = s
		}
	}
	g.Close(now)
	for requestType, groups := range g.byType() {
		g.judge(requestType, groups, alarmed, now, o)
	}
	return g.problems(o)
}

// step weighs the open epoch of every group and returns the strength of the evidence of every test.
func (g *Grouper) step(o WatchOptions) []suspicion {
	var suspicions []suspicion
	for _, group := range g.all() {
		w := &group.watch
		if !w.learned {
			continue
		}
		w.silent++
		if w.counts.N > 0 {
			w.silent = 0
			w.judged++
			w.change.Step(&w.reference, w.counts)
			w.recent = last(append(w.recent, w.counts), o.Calm)
			w.counts = stats.Counts{}
		}
		suspicions = append(suspicions,
			suspicion{group, KindSlow, w.change.Slower()}, suspicion{group, KindVariable, w.change.Variable()})
		if len(w.mixed) > 1 {
			w.mix.Step(&w.mixReference, w.mixed)
			if w.silent == 0 {
				w.recentMixes = last(append(w.recentMixes, slices.Clone(w.mixed)), o.Calm)
			}
			clear(w.mixed)
			suspicions = append(suspicions, suspicion{group, KindShifted, w.mix.Shifted()})
		}
		if w.rise(group.evidence()); w.rising == 0 && !w.open {
			w.recentMixes = nil
		}
	}
	return suspicions
}

// last returns the last n of all, in place: the memory of the others is used again.
func last[T any](all []T, n int) []T {
	if len(all) > n {
		all = append(all[:0], all[len(all)-n:]...)
	}
	return all
}

// rise takes in how strong the evidence now is.
func (w *watch) rise(evidence float64) {
	if evidence > max(1, w.last) {
		w.rising++
	} else if evidence < w.last {
		w.rising = 0
	}
	w.last = evidence
}

// judge opens and closes the problems of one request type and its groups.
func (g *Grouper) judge(requestType *Group, groups []*Group, alarmed map[*Group]suspicion, now trace.Nanos, o WatchOptions) {
	level := g.explains(requestType, groups, alarmed)
	before := requestType.watch.troubled
	requestType.watch.troubled = false
	for i := range 1 + len(groups) {
		group := requestType
		if i > 0 {
			group = groups[i-1]
		}
		w := &group.watch
		s, suspect := alarmed[group]
		reported := i > 0 && requestType.watch.open // with its type
		if w.open {
			g.relent(group, o)
		} else if s.kind = group.kind(s.kind, o); suspect && level == group.Level && !reported && g.convinces(group, s.kind, o) {
			if w.open = !g.accepted(group, s.kind, o); !w.open {
				g.observeOn(group, o)
			} else {
				w.kind, w.since, w.judged = s.kind, now, 0
			}
		}
		requestType.watch.troubled = requestType.watch.troubled || w.open
		g.attend(group, now, o)
	}
	if before && !requestType.watch.troubled {
		g.recover(requestType, groups)
	}
}

// kind returns what to call a change for which the evidence of one kind is strongest: requests that are all slower alike are far from
// where they were, too, but do not vary more.
func (group *Group) kind(strongest ProblemKind, o WatchOptions) ProblemKind {
	now, before := group.Current.Total, group.Reference.Total
	if strongest == KindVariable && now.Mean() > before.Mean() && now.CoV() <= before.CoV()*(1+o.Tests.Margin) {
		return KindSlow
	}
	return strongest
}

// convinces reports whether the evidence against a group that has requests was confirmed, and matters.
func (g *Grouper) convinces(group *Group, kind ProblemKind, o WatchOptions) bool {
	return group.watch.silent == 0 && group.watch.rising >= o.Confirm && g.matters(group, kind, o)
}

// observeOn has what is judged of a group whose change is accepted begin anew now and then, so that it shows soon when it is not any more.
func (g *Grouper) observeOn(group *Group, o WatchOptions) {
	if w := &group.watch; w.judged >= o.Calm {
		g.judgeAnew(group)
		w.judged = 0
	}
}

// accepted reports whether somebody decided to live with what the requests judged of a group are like.
func (g *Grouper) accepted(group *Group, kind ProblemKind, o WatchOptions) bool {
	_, level := g.Types.Rules.expects(group, &o.Chronic)
	switch now := group.Current.Total; kind {
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
func (g *Grouper) matters(group *Group, kind ProblemKind, o WatchOptions) bool {
	impact := g.impact(group)
	return impact > o.MinImpact || kind == KindShifted && impact >= o.MinImpact
}

// attend makes what is judged of a group that is well part of its reference, and samples more of one that may not be.
func (g *Grouper) attend(group *Group, now trace.Nanos, o WatchOptions) {
	switch {
	case !group.watch.learned:
	case !group.watch.open && group.evidence() < quiet:
		g.absorb(group, o)
		group.Open.Sample.Resize(g.options.Sample)
	default:
		group.Open.Sample.Resize(g.options.Attended)
		g.limit(group, now)
	}
}

// recover begins anew with a type whose problem is over: groups that have no expectation yet learn from now on only, and what the
// problem left of evidence in others is no longer held against them.
func (g *Grouper) recover(requestType *Group, groups []*Group) {
	g.calm(requestType)
	for _, group := range groups {
		g.calm(group)
	}
}

// calm forgets what a group that is well again showed during a problem.
func (g *Grouper) calm(group *Group) {
	w := &group.watch
	if !w.learned {
		w.blocks = nil
		group.Since = g.closed
	}
	w.open, w.rising, w.last = false, 0, 0
	w.change, w.mix, w.recentMixes = stats.Change{}, stats.Mix{}, nil
	g.judgeAnew(group)
}

// quiet is the evidence below which a group is taken to be well and what it shows is added to its reference. An e-value of a healthy
// group is 1 on average.
const quiet = 2

// evidence returns the strongest evidence against the group's being well.
func (group *Group) evidence() float64 {
	w := &group.watch
	if !w.learned {
		return math.Inf(1) // what is not learned yet is not healthy either
	}
	return max(w.change.Slower(), w.change.Variable(), w.mix.Shifted())
}

// carries is the part of a request type's excess time that one group must carry to be the problem in the type's place.
const carries = 0.8

// explains returns the level at which the problems of a request type are to be reported: that of the groups if the type as a whole
// raises no alarm, or if a single group, not most of the type, carries nearly all of the time lost.
func (g *Grouper) explains(requestType *Group, groups []*Group, alarmed map[*Group]suspicion) Level {
	if _, ok := alarmed[requestType]; !ok {
		return GroupLevel
	}
	lost := g.lost(requestType)
	for _, group := range groups {
		_, ok := alarmed[group]
		if ok && 2*group.Current.Total.N < requestType.Current.Total.N && g.lost(group) > carries*lost {
			return GroupLevel
		}
	}
	return RequestTypeLevel
}

// lost returns the time that the requests judged took beyond the reference, in ns.
func (g *Grouper) lost(group *Group) float64 {
	if group.Reference.Total.N == 0 || group.Current.Total.N == 0 {
		return 0
	}
	return float64(group.Current.Total.N) * (group.Current.Total.Mean() - group.Reference.Total.Mean())
}

// impact returns the time lost per second, in ns: what the requests took beyond the reference, or, where the mean did not rise, how
// far they spread beyond it.
func (g *Grouper) impact(group *Group) float64 {
	w := &group.Current
	span := w.Last.Sub(w.First).Seconds()
	if !(span > 0) {
		return 0
	}
	spread := float64(w.Total.N) * (w.Total.StdDev() - group.Reference.Total.StdDev())
	return max(g.lost(group), spread, 0) / span
}

// relent closes the problem of a group whose requests are within the expectation again, or that has none any more.
func (g *Grouper) relent(group *Group, o WatchOptions) {
	w := &group.watch
	if w.silent < o.Silence && (w.judged < o.Calm || !w.holds()) {
		return
	}
	g.calm(group)
}

// holds reports whether what the problem is about is, over the last epochs together, within the expectation again.
func (w *watch) holds() bool {
	if w.kind == KindShifted {
		return w.mixReference.Holds(w.recentMix())
	}
	var sum stats.Counts
	for _, c := range w.recent {
		sum.Merge(c)
	}
	return w.reference.Holds(sum)
}

// recentMix returns the mix of the recent epochs together.
func (w *watch) recentMix() []uint64 {
	sum := make([]uint64, len(w.mixed))
	for _, mix := range w.recentMixes {
		for i, n := range mix {
			sum[i] += n
		}
	}
	return sum
}

// shift returns how far the recent mix is from the expected one, in [0, 1].
func (w *watch) shift() float64 {
	recent := w.recentMix()
	var was, is uint64
	for i := range recent {
		was, is = was+w.expectedMix[i], is+recent[i]
	}
	if was == 0 || is == 0 {
		return 0
	}
	var distance float64
	for i := range recent {
		distance += math.Abs(float64(recent[i])/float64(is) - float64(w.expectedMix[i])/float64(was))
	}
	return distance / 2
}

// chronic returns what is judged by though nothing changed.
func (o *WatchOptions) chronic() Thresholds {
	t := o.Chronic
	t.CoV, t.Delayed, t.MinSamples = cmp.Or(t.CoV, math.Inf(1)), cmp.Or(t.Delayed, math.Inf(1)), o.MinSamples
	return t
}

// problems returns the open problems, ranked.
func (g *Grouper) problems(o WatchOptions) []Problem {
	var open []Problem
	for _, group := range g.all() {
		if group.watch.open {
			open = append(open, g.changed(group))
		}
	}
	open = append(open, g.chronicProblems(o.chronic())...)
	Rank(open)
	g.detail(open)
	return open
}

// changed describes the open problem of a group.
func (g *Grouper) changed(group *Group) Problem {
	w := &group.watch
	p := g.problem(group, w.kind)
	p.Onset = Changed
	p.Expected = time.Duration(group.Reference.Total.Mean())
	p.Impact = g.impact(group)
	p.EValue = group.evidence()
	if p.Kind == KindShifted {
		p.Shift = w.shift()
	}
	g.leadChanged(group, &p)
	return p
}

// certain is by how many standard errors the mean must have risen for the edges to be ordered by their part in that.
const certain = 3

// leadChanged orders the edges of a changed problem by their part in what changed: in the rise of the mean where there certainly
// is one, else in the rise of the variance.
func (g *Grouper) leadChanged(group *Group, p *Problem) {
	now, ref := &group.Current, &group.Reference
	rise, low, _ := excess(now.Total, ref.Total)
	g.vanished(group, p)
	if half := rise - low; rise > 0 && rise/half*normal95 > certain {
		lead(p.Edges, func(e *EdgeShare) float64 { return e.Excess / rise })
		return
	}
	spread := now.Total.Variance() - ref.Total.Variance()
	lead(p.Edges, func(e *EdgeShare) float64 {
		cov := now.Tally.Edge(e.Edge).Cov(now.Total) - ref.Tally.Edge(e.Edge).Cov(ref.Total)
		return cov / math.Abs(spread)
	})
}

// vanished adds the edges that no request judged has, but the reference had: time can move away from an edge as well as into it.
func (g *Grouper) vanished(group *Group, p *Problem) {
	var none EdgeTally
	for i := range group.Reference.Tally.Edges {
		e := &group.Reference.Tally.Edges[i]
		if _, found := group.Current.Tally.find(e.Edge); found {
			continue
		}
		none.Edge = e.Edge
		s := g.share(&none, group.Current.Total)
		s.Excess, s.ExcessLow, s.ExcessHigh = excess(none.Moments(group.Current.Total.N), e.CoMoments.Moments(group.Reference.Total.N))
		p.Edges = append(p.Edges, s)
	}
	slices.SortFunc(p.Edges, func(a, b EdgeShare) int { return cmp.Compare(a.Edge, b.Edge) })
}

// Watched returns how many groups and request types have an expectation.
func (g *Grouper) Watched() int {
	n := 0
	for _, group := range g.groups {
		if group.watch.learned {
			n++
		}
	}
	return n
}
