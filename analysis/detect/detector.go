package detect

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// Detector finds the problems of groups. It is not safe for concurrent use, nor with a use of its groups.
type Detector struct {
	Groups  *group.Grouper
	changes map[*group.Group]*changeDetector // of groups with an expectation, from the end of their next epoch on
	chronic map[analysis.Hash]bool           // problems without a change that are open
}

// New returns a Detector for groups, none of which has an expectation.
func New(groups *group.Grouper) *Detector {
	return &Detector{Groups: groups, changes: make(map[*group.Group]*changeDetector), chronic: make(map[analysis.Hash]bool)}
}

// of returns the change detector of a group.
func (d *Detector) of(g *group.Group) *changeDetector {
	c := d.changes[g]
	if c == nil {
		c = &changeDetector{}
		d.changes[g] = c
	}
	return c
}

// Learn makes the window that is judged the expectation of every group that has none yet, whose first epoch ended by the given time, and
// that has enough requests. It learns nothing of request types with an open problem.
func (d *Detector) Learn(by trace.Nanos, o WatchOptions) {
	ready := func(g *group.Group) bool {
		return !g.Expectation.Learned && g.Current.Total.N >= o.MinSamples && g.Since <= by
	}
	for requestType, groups := range d.Groups.ByType() {
		if requestType.AnyOpenProblem {
			continue
		}
		if ready(requestType) {
			requestType.LearnMix(groups, o.MinSamples, o.Tests)
			requestType.Learn(o.Tests)
		}
		for _, g := range groups {
			if ready(g) {
				g.Learn(o.Tests)
			}
		}
	}
}

// Accept forgets the expectation of a group, or of a request type and all its groups, and closes its problem: the requests of a learning
// period from time now on are the new expectation. It reports whether there is such a group.
func (d *Detector) Accept(id analysis.Hash, now trace.Nanos) bool {
	accepted := d.Groups.Group(id)
	if accepted == nil {
		return false
	}
	for g := range d.Groups.Each() {
		if g == accepted || g.Parent() == accepted {
			delete(d.changes, g)
			g.OpenProblem = false
			g.Relearn(now)
		}
	}
	return true
}

// Resplit takes in that a group was split, or its split undone, at time now: its requests are in other groups from now on, so that the
// expectation of its request type is learned anew.
func (d *Detector) Resplit(whole analysis.Hash, now trace.Nanos) {
	for g := range d.Groups.Each() {
		if g.Whole == whole && g.Level == group.LevelGroup {
			d.Accept(g.RequestType, now)
			return
		}
	}
}

// Unsteady returns the groups that are well but whose CoV was above a level when they were, and those that are split: wholes whose
// splits are worth judging, those with most requests first, at most n.
func (d *Detector) Unsteady(cov float64, n int) []analysis.Hash {
	requests := make(map[analysis.Hash]uint64)
	for g := range d.Groups.Each() {
		if g.Level != group.LevelGroup || !g.Expectation.Learned || g.Parent().AnyOpenProblem || d.evidence(g) >= quiet {
			continue
		}
		if g.Reference.Total.CoV() > cov || d.Groups.Keys.Splits.Bins(g.Whole) != nil {
			requests[g.Whole] += g.Reference.Total.N
		}
	}
	wholes := slices.SortedFunc(maps.Keys(requests), func(a, b analysis.Hash) int {
		return cmp.Or(cmp.Compare(requests[b], requests[a]), a.Compare(b))
	})
	return wholes[:min(n, len(wholes))]
}

// Watched returns how many groups and request types have an expectation.
func (d *Detector) Watched() int {
	n := 0
	for g := range d.Groups.Each() {
		if g.Expectation.Learned {
			n++
		}
	}
	return n
}

// evidence returns the strongest evidence against the group's being well. A group without an expectation is not known to be well.
func (d *Detector) evidence(g *group.Group) float64 {
	if !g.Expectation.Learned {
		return math.Inf(1)
	}
	if c := d.changes[g]; c != nil {
		return c.strongest()
	}
	return (&changeDetector{}).strongest()
}
