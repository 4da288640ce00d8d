package detect

import (
	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// Detector finds the problems of groups. Neither it nor its groups are safe for concurrent use.
type Detector struct {
	Groups  *group.Grouper
	changes map[*group.Group]*changeDetector // of groups with an expectation, from the end of their next epoch on
	chronic map[analysis.Hash]bool           // open chronic problems
	judged  map[*group.Group]*judgement

	chronicTypes map[*group.Group]*chronicType // by request type
	thresholds   Thresholds                    // of chronicTypes

	// Unhealthy reports whether the requests of a type must not be learned even though there is no evidence against
	// them. It may be nil.
	Unhealthy func(requestType *group.Group) bool

	epochs    uint64                    // number of calls to Watch
	resting   map[*group.Group]*resting // by request type
	deletions uint64                    // value of [group.Grouper.Deletions] when resting was filled
}

// New returns a Detector for groups, which must not have expectations yet.
func New(groups *group.Grouper) *Detector {
	return &Detector{
		Groups:       groups,
		changes:      make(map[*group.Group]*changeDetector),
		chronic:      make(map[analysis.Hash]bool),
		judged:       make(map[*group.Group]*judgement),
		chronicTypes: make(map[*group.Group]*chronicType),
		resting:      make(map[*group.Group]*resting),
	}
}

// changeDetectorOf returns the change detector of g, creating it if necessary.
func (d *Detector) changeDetectorOf(g *group.Group) *changeDetector {
	c := d.changes[g]
	if c == nil {
		c = &changeDetector{asOf: d.epochs}
		d.changes[g] = c
	}
	return c
}

// Learn makes the current window the expectation of every group that has no expectation yet, if the window has enough
// requests and the first epoch of the group ended at time `by` or earlier. It skips request types that are unhealthy or
// have an open problem.
func (d *Detector) Learn(by trace.Nanos, o WatchOptions) {
	ready := func(g *group.Group) bool {
		return !g.Expectation.Learned && g.Current.Total.N >= o.MinSamples && g.Since <= by
	}
	for requestType, groups := range d.Groups.ByType() {
		if requestType.AnyOpenProblem || d.isUnhealthy(requestType) {
			continue
		}
		if ready(requestType) {
			delete(d.resting, requestType)
			requestType.LearnMix(requestType.JudgedMix(groups), groups, o.MinSamples, o.Tests)
			requestType.Learn(o.Tests)
		}
		for _, g := range groups {
			if ready(g) {
				delete(d.resting, requestType)
				g.Learn(o.Tests)
			}
		}
	}
}

func (d *Detector) isUnhealthy(g *group.Group) bool {
	return d.Unhealthy != nil && d.Unhealthy(g.Parent())
}

// Accept closes the problem of a group, or the problems of a request type and all its groups, and forgets their
// expectations. A learning period that starts now determines the new ones. Accept reports whether the group exists.
func (d *Detector) Accept(id analysis.Hash, now trace.Nanos) bool {
	accepted := d.Groups.Group(id)
	if accepted == nil {
		return false
	}
	delete(d.resting, accepted.Parent())
	for g := range d.Groups.Each() {
		if g == accepted || g.Parent() == accepted {
			delete(d.changes, g)
			g.OpenProblem = false
			g.Relearn(now)
		}
	}
	return true
}

// Watched returns the number of groups and request types with an expectation.
func (d *Detector) Watched() int {
	n := 0
	for g := range d.Groups.Each() {
		if g.Expectation.Learned {
			n++
		}
	}
	return n
}
