package detect

import (
	"github.com/sibyl-trace/sibyl/analysis/group"
)

// A deploy, a cache or a new feature may change the call flow of requests for good. That alone is not a problem: if a
// request type has the same new mix of groups for some time, and its requests are not slower, not more variable and
// don't fail more often, the mix becomes the expected one.

// countMix counts the open epoch of requestType for its next mix. It discards the counts while the type or one of its
// groups has a problem other than a shifted mix.
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

// settleMix handles a shift that opens no problem: in time, the new mix becomes the expected one. Once the shift is
// confirmed, settleMix restarts the counts of the new mix, so that they include only requests since the shift.
func (e *epoch) settleMix(requestType *group.Group, groups []*group.Group) {
	c := e.detector.changeDetectorOf(requestType)
	if c.kind != KindShifted && c.rising >= confirm {
		c.kind = KindShifted
		requestType.Expectation.Mix.Next = group.MixCounts{}
		return
	}
	e.renewMix(requestType, groups)
}

// isShifted reports whether requestType has an open problem of KindShifted.
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

// renewMix makes the counted mix of a request type the expected mix. It does so only at the end of an epoch with
// requests, once there are enough epochs and requests. If the open problem of the type is a shifted mix, and its
// requests do not fail more often than expected, renewMix closes the problem and returns true.
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
