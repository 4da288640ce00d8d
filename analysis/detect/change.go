package detect

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// changeDetector accumulates, epoch by epoch, the evidence that a group has changed from its expectation.
type changeDetector struct {
	change      stats.Change
	mix         stats.Mix      // of request types
	recent      []stats.Counts // of the last epochs with requests, at most calm
	recentMixes [][]uint64     // the same for the mixes of request types, since the evidence began to rise

	evidence float64 // strongest evidence at the end of the last epoch
	rising   int     // consecutive epochs with growing evidence above 1
	judged   int     // epochs with requests since the problem opened or an accepted change was last checked
	idle     int     // consecutive epochs without requests up to asOf
	asOf     uint64  // number of an epoch, see [Detector.epochs]

	kind  ProblemKind // of the last problem, or KindShifted while a mix settles without a problem
	since trace.Nanos // end of the epoch when the problem opened

	values evalues // of change and mix
	valued bool    // values are up to date
}

// evalues are the e-values of the tests of a group.
type evalues struct{ slower, variable, shifted float64 }

// evalues returns the e-values of the evidence so far.
func (c *changeDetector) evalues() evalues {
	if !c.valued {
		c.values, c.valued = evalues{c.change.Slower(), c.change.Variable(), c.mix.Shifted()}, true
	}
	return c.values
}

// idleUntil returns the number of consecutive epochs without requests up to epoch, assuming that there were none after
// c.asOf.
func (c *changeDetector) idleUntil(epoch uint64) int { return c.idle + int(epoch-c.asOf) }

// step adds the open epoch, whose number is epoch, to the evidence, and empties its counts. c keeps the last `calm`
// epochs with requests.
func (c *changeDetector) step(e *group.Expectation, epoch uint64, calm int) {
	c.idle, c.asOf = c.idleUntil(epoch), epoch
	if e.Counts.N > 0 {
		c.idle = 0
		c.judged++
		c.valued = false
		c.change.Step(&e.Reference, e.Counts)
		c.recent = last(append(c.recent, e.Counts), calm)
		e.Counts = stats.Counts{}
	}
	if e.Mix == nil {
		return
	}
	if c.mix.Step(&e.Mix.Reference, e.Mix.Open) {
		c.valued = false
	}
	if c.idle == 0 {
		c.recentMixes = last(append(c.recentMixes, slices.Clone(e.Mix.Open)), calm)
	}
	clear(e.Mix.Open)
}

// last returns the last n elements of all, moved to the start of its memory, or all itself if it is not longer.
func last[T any](all []T, n int) []T {
	if len(all) > n {
		all = append(all[:0], all[len(all)-n:]...)
	}
	return all
}

// healthyEvidence is the upper limit of the evidence against a group that counts as healthy, so that its requests
// become part of its reference. The mean e-value of a healthy group is 1.
const healthyEvidence = 2

// strongest returns the strongest evidence against the health of the group.
func (c *changeDetector) strongest() float64 {
	e := c.evalues()
	return max(e.slower, e.variable, e.shifted)
}

// accumulate records the evidence at the end of an epoch, and whether it grew.
func (c *changeDetector) accumulate(evidence float64) {
	if evidence > max(1, c.evidence) {
		c.rising++
	} else if evidence < c.evidence {
		c.rising = 0
	}
	c.evidence = evidence
}

// reset discards the evidence.
func (c *changeDetector) reset() {
	c.rising, c.evidence = 0, 0
	c.change = stats.Change{}
	c.forgetMix()
}

// forgetMix discards the evidence that the mix shifted.
func (c *changeDetector) forgetMix() {
	c.mix, c.recentMixes, c.valued = stats.Mix{}, nil, false
}

// withinExpectation reports whether the recent epochs together satisfy the expectation that the problem violated.
func (c *changeDetector) withinExpectation(e *group.Expectation) bool {
	if c.kind == KindShifted {
		return e.Mix.Reference.Allows(c.recentMix(e.Mix))
	}
	var sum stats.Counts
	for _, counts := range c.recent {
		sum.Merge(counts)
	}
	return e.Reference.Allows(sum)
}

// recentMix returns the sum of the mixes of the recent epochs.
func (c *changeDetector) recentMix(expected *group.Mix) []uint64 {
	sum := make([]uint64, len(expected.Open))
	for _, mix := range c.recentMixes {
		for i, n := range mix {
			sum[i] += n
		}
	}
	return sum
}

// shift returns the total variation distance between the recent mix and the expected one, in [0, 1].
func (c *changeDetector) shift(expected *group.Mix) float64 {
	recent := c.recentMix(expected)
	var was, is uint64
	for i := range recent {
		was, is = was+expected.Expected[i], is+recent[i]
	}
	if was == 0 || is == 0 {
		return 0
	}
	var distance float64
	for i := range recent {
		distance += math.Abs(float64(recent[i])/float64(is) - float64(expected.Expected[i])/float64(was))
	}
	return distance / 2
}

// problem describes the open problem of g.
func (c *changeDetector) problem(g *group.Group, table *trace.Table) Problem {
	p := problemOf(g, c.kind, table)
	p.Onset, p.Opened = Changed, c.since
	p.Expected = time.Duration(g.Reference.Total.Mean())
	p.Impact = impact(g)
	p.EValue = c.strongest()
	if p.Kind == KindShifted {
		p.Shift = c.shift(g.Expectation.Mix)
		p.Failed, p.UsualFailed = failed(&g.Current), failed(&g.Reference)
	}
	p.Edges = append(p.Edges, g.VanishedShares(table)...)
	sorting.Slice(p.Edges, func(a, b group.EdgeShare) int { return cmp.Compare(a.Edge, b.Edge) })
	rankChangedEdges(g, &p)
	return p
}

// certainRise is the minimum rise of the mean, in standard errors, for edges to be ranked by their share of the rise.
const certainRise = 3

// rankChangedEdges ranks the edges of a changed problem by their share of the rise of the mean if that is certain, and
// otherwise by their share of the rise of the variance. If the call flow changed and requests are no slower, no edge
// has a share: what varies more because of another path, or of failures, is no cause of them.
func rankChangedEdges(g *group.Group, p *Problem) {
	if p.Kind == KindShifted && !p.Slower() {
		p.rankEdges(WholeVariance, func(*group.EdgeShare) float64 { return 0 })
		return
	}
	now, ref := &g.Current, &g.Reference
	rise := stats.Excess(now.Total, ref.Total)
	if half := rise.Value - rise.Low; rise.Value > 0 && rise.Value/half*stats.Normal95 > certainRise {
		p.rankEdges(WholeSlowdown, func(e *group.EdgeShare) float64 { return e.Excess / rise.Value })
		return
	}
	spread := now.Total.Variance() - ref.Total.Variance()
	p.rankEdges(WholeVariance, func(e *group.EdgeShare) float64 {
		cov := now.Tally.Edge(e.Edge).Cov(now.Total) - ref.Tally.Edge(e.Edge).Cov(ref.Total)
		return cov / math.Abs(spread)
	})
}
