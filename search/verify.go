package search

import (
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/trace"
)

// Rules for verification.
const (
	certain        = 3  // −ln of the probability that all requests that judged a location were unaffected
	verifyRequests = 60 // maximum number of requests that must judge a location to verify it
	whyVerify      = "verifies the location"
)

// doubtfulExcess reports whether the excess of the edges of a changed problem is less than one standard error.
func doubtfulExcess(p *detect.Problem, edges []*group.EdgeShare) bool {
	var excess, square float64
	for _, e := range edges {
		if isFinite(e.ExcessLow) && isFinite(e.ExcessHigh) {
			excess += e.Excess
			square += (e.ExcessHigh - e.ExcessLow) * (e.ExcessHigh - e.ExcessLow) / 4
		}
	}
	return p.Kind != detect.KindVariable && p.Onset == detect.Changed && square > 0 && excess < math.Sqrt(square)
}

// verify collects more requests to judge two kinds of locations: locations next below the best suspect that few
// requests judged, because rare slowness may be missing from those requests, and suspects that stand out only together.
// It does so once for each best suspect, and reports whether any location needs more requests.
func (s *investigationStep) verify() bool {
	top := &s.v.Suspects[0]
	if s.v.Verified == top.Context {
		return false
	}
	s.v.Verified = top.Context
	verifying, needBelow := false, verifyingNeed(s.searched[0].edges)
	rivals := s.ranking().rivals()
	for _, o := range s.searched {
		for k := 1; k < len(o.locations); k++ {
			l, need := &o.locations[k], 0.0
			above := &o.locations[o.locations[max(l.parent, 0)].region]
			if above.tp == top.Tracepoint && above.op == top.Op {
				need = needBelow
			}
			if slices.Contains(rivals, l.tp) {
				need = verifyRequests
			}
			if l.known && l.requests < need {
				verifying = s.judgeAgain(l, uint64(need)) || verifying
			}
		}
	}
	s.requestPicks()
	return verifying
}

// verifyingNeed returns the number of requests that must judge a location so that they almost certainly include
// affected ones. The rarer affected requests are in edges, the larger is the result. It lies between minRequests and
// verifyRequests.
func verifyingNeed(edges []*group.EdgeShare) float64 {
	need := 0.0
	for _, e := range edges {
		if e.Affected > 0 { // the fraction is known
			need = max(need, math.Ceil(certain/e.Affected))
		}
	}
	if need == 0 {
		return verifyRequests
	}
	return min(max(need, minRequests), verifyRequests)
}

// judgeAgain keeps the tracepoint of l on, or switches it on, until need requests have judged it. It returns false if
// the tracepoint must stay off.
func (s *investigationStep) judgeAgain(l *location, need uint64) bool {
	if s.epoch.excluded.always(l.tp) {
		return false
	}
	p := Pick{
		Tracepoint: l.tp,
		Op:         l.op,
		Context:    l.ctx,
		Score:      s.v.Suspects[0].Share,
		Need:       need,
		Arms:       s.armsFor(float64(need)),
		Reason:     whyVerify,
	}
	if k := slices.IndexFunc(s.decision.Off, func(o Off) bool { return o.Tracepoint == l.tp }); k >= 0 {
		s.decision.Off = slices.Delete(s.decision.Off, k, k+1)
		s.request(&p)
	}
	if at := s.v.requested(l.tp); at >= 0 {
		s.v.Requested[at].Need, s.v.Requested[at].Epoch = need, s.v.Epochs
		return true
	}
	if !s.picked(l.tp) {
		s.decision.Picks = append(s.decision.Picks, p)
	}
	return true
}

// picked reports whether the decision picks tp.
func (s *investigationStep) picked(tp trace.Symbol) bool {
	return slices.ContainsFunc(s.decision.Picks, func(p Pick) bool { return p.Tracepoint == tp })
}
