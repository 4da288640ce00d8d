package search

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// wantedRequests is the number of requests of the problem, per epoch, for which a pick should be on.
const wantedRequests = 24

// requested returns the index of tp in v.Requested, or -1 if it isn't there.
func (v *Investigation) requested(tp trace.Symbol) int {
	at, found := slices.BinarySearchFunc(v.Requested, tp, compareRequest)
	if !found {
		return -1
	}
	return at
}

func compareRequest(r TracepointRequest, tp trace.Symbol) int { return cmp.Compare(r.Tracepoint, tp) }

// settled reports whether waiting would not improve the evidence for tp, because tp is off or has been on for longer
// than patience.
func (v *Investigation) settled(tp trace.Symbol) bool {
	at := v.requested(tp)
	return at < 0 || v.Epochs-v.Requested[at].Epoch > patience
}

// pending returns the requested tracepoints whose share is still uncertain or has been judged by too few requests. If
// such a tracepoint was on for too few requests, pending quadruples the share of requests that it is on for.
func (s *investigationStep) pending() map[trace.Symbol]bool {
	v := s.v
	pending := make(map[trace.Symbol]bool)
	judged := requestsOf(v.Evidence)
	for k := range v.Requested {
		r := &v.Requested[k]
		uncertain := slices.ContainsFunc(s.searched, func(o *operationScope) bool {
			return slices.Contains(o.uncertain, r.Tracepoint)
		})
		short := judged[r.Tracepoint] < max(minRequests, r.Need) && !v.settled(r.Tracepoint)
		if uncertain || short && v.Epochs > r.Epoch+1 {
			r.Arms = armsFor(4 * shareOf(r.Arms))
		}
		if uncertain || short {
			pending[r.Tracepoint] = true
		}
	}
	return pending
}

// pick requests the tracepoints that the strategy picks, and reports whether there are any.
func (s *investigationStep) pick() bool {
	if len(s.question.Candidates) == 0 {
		return false
	}
	taken := make(map[trace.Symbol]bool)
	for _, p := range s.epoch.strategy.Pick(&s.question) {
		if taken[p.Tracepoint] || s.v.requested(p.Tracepoint) >= 0 {
			continue
		}
		taken[p.Tracepoint] = true
		p.Arms = allArms
		if !p.Whole {
			p.Arms = s.armsFor(wantedRequests)
		}
		s.decision.Picks = append(s.decision.Picks, p)
	}
	s.requestPicks()
	for k := 0; k < len(s.question.Candidates) && len(s.rejected) < maxRejected; k++ {
		if tp := s.question.Candidates[k].Tracepoint; !taken[tp] {
			taken[tp] = true
			s.rejected = append(s.rejected, Rejected{tp, WhyLater})
		}
	}
	return len(s.decision.Picks) > 0
}

// armsFor returns the mask of arms that get about the given number of the problem's requests per epoch.
func (s *investigationStep) armsFor(requests float64) uint32 {
	return armsFor(requests / (s.problem.Rate * s.epoch.in.Epoch.Seconds()))
}

// requestPicks requests the picks of the decision, and sets their cost.
func (s *investigationStep) requestPicks() {
	for k := range s.decision.Picks {
		p := &s.decision.Picks[k]
		p.Cost = s.epoch.costs.of(p.Tracepoint, p.Arms)
		s.request(p)
	}
}

// request adds p to the requested and tried tracepoints, unless it is already requested.
func (s *investigationStep) request(p *Pick) {
	v := s.v
	at, found := slices.BinarySearchFunc(v.Requested, p.Tracepoint, compareRequest)
	if found {
		return
	}
	r := TracepointRequest{
		Tracepoint: p.Tracepoint,
		Arms:       p.Arms,
		Since:      s.epoch.in.Now,
		Epoch:      v.Epochs,
		Cause:      p.Reason,
		Need:       p.Need,
	}
	r.Value = p.Score / (1 + s.epoch.costs.of(p.Tracepoint, p.Arms).Hits)
	v.Requested = slices.Insert(v.Requested, at, r)
	if at, found := slices.BinarySearch(v.Tried, p.Tracepoint); !found {
		v.Tried = slices.Insert(slices.Clone(v.Tried), at, p.Tracepoint)
	}
}

// switchOff ends the requests for tracepoints that explain nothing, were never executed, or are known well enough. The
// first two kinds cool down. With a frugal strategy, it also switches off tracepoints whose region isn't searched.
// Tracepoints in waiting stay on. switchOff reports whether any tracepoint was never executed.
func (s *investigationStep) switchOff(waiting map[trace.Symbol]bool, regions []Region) (never bool) {
	carried := carriedBy(s.searched)
	dividing := make(map[trace.Symbol]bool)
	for k := range regions {
		dividing[regions[k].Tracepoint] = true
	}
	least := refutedShare * s.searched[0].score
	var kept []TracepointRequest
	for _, r := range s.v.Requested {
		c, executed := carried[r.Tracepoint]
		reason := ""
		switch {
		case waiting[r.Tracepoint]:
		case !executed:
			reason, never = WhyNever, true
		case c.high < least:
			reason = WhyRefuted
		case !dividing[r.Tracepoint] && (s.epoch.strategy.Frugal || c.own < least):
			reason = WhyRefined
		}
		if reason == "" {
			kept = append(kept, r)
			continue
		}
		s.decision.Off = append(s.decision.Off, Off{r.Tracepoint, reason})
		if reason != WhyRefined {
			s.epoch.excluded.coolDown(s.v.Subject, r.Tracepoint, s.epoch.in.Now)
		}
	}
	s.v.Requested = kept
	return never
}

// carried is the share of the problem that a tracepoint is known to carry, over all scopes and contexts. high is the
// upper bound of its inclusive share, and own is its own share.
type carried struct{ high, own float64 }

// carriedBy returns the shares of the tracepoints that are known and were executed.
func carriedBy(scopes []*operationScope) map[trace.Symbol]carried {
	all := make(map[trace.Symbol]carried)
	for _, o := range scopes {
		for k := 1; k < len(o.locations); k++ {
			l := &o.locations[k]
			if !l.known || !l.executed {
				continue
			}
			c := all[l.tp]
			c.high += o.score * (l.share + l.half)
			c.own += o.score * l.own
			all[l.tp] = c
		}
	}
	return all
}
