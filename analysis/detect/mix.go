package detect

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
)

// A deploy, a cache or a new feature changes the call flow of requests for good. That alone is not a problem: if a
// request type shows a mix of groups for some time without being slower, more variable or failing more often, the mix
// becomes the expected one.

// countMix counts the open epoch of requestType for its next mix. It starts again while the type or one of its groups
// has a problem other than a shifted mix.
func (d *Detector) countMix(requestType *group.Group, groups []*group.Group) {
	m := requestType.Expectation.Mix
	if m == nil || requestType.Open.Total.N == 0 {
		return
	}
	shifted := d.isShifted(requestType)
	if requestType.OpenProblem && !shifted || anyOpen(groups) {
		m.Next = group.MixCounts{}
		return
	}
	if e := d.changeDetectorOf(requestType).evalues(); shifted || max(e.slower, e.variable) < healthyEvidence {
		m.Next.Add(requestType, groups)
	}
}

// settleMix makes a shift that opens no problem expected, based only on the requests since the shift.
func (e *epoch) settleMix(requestType *group.Group, groups []*group.Group) {
	c := e.detector.changeDetectorOf(requestType)
	if c.kind != KindShifted && c.rising >= confirm {
		c.kind = KindShifted
		requestType.Expectation.Mix.Next = group.MixCounts{}
		return
	}
	e.renewMix(requestType, groups)
}

// isShifted reports whether requestType has an open problem of kind shifted.
func (d *Detector) isShifted(requestType *group.Group) bool {
	return requestType.OpenProblem && d.changeDetectorOf(requestType).kind == KindShifted
}

func anyOpen(groups []*group.Group) bool {
	for _, g := range groups {
		if g.OpenProblem {
			return true
		}
	}
	return false
}

// renewMix makes the counted mix of a request type the expected one once it has enough epochs and requests, at the end
// of an epoch with requests. If the type's problem is a shifted mix whose requests do not fail more often, renewMix
// closes it and returns true.
func (e *epoch) renewMix(requestType *group.Group, groups []*group.Group) (closed bool) {
	m := requestType.Expectation.Mix
	if m == nil || m.Next.Epochs < e.options.Renew || m.Next.Requests() < e.options.MinSamples {
		return false
	}
	c := e.detector.changeDetectorOf(requestType)
	if c.idleUntil(e.detector.epochs) > 0 {
		return false
	}
	next := m.Next
	m.Next = group.MixCounts{}
	shifted := e.detector.isShifted(requestType)
	if shifted && m.FailsMore(&next) {
		return false
	}
	requestType.LearnMix(next, groups, e.options.MinSamples, e.options.Tests)
	c.forgetMix()
	if shifted {
		e.reset(requestType)
	}
	return shifted
}
