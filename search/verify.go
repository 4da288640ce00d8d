package search

import (
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/trace"
)

// standsOut reports whether places do, see outstanding.
func (i *inquiry) standsOut(over bool) bool { return i.outstanding(over) > 0 }

// outstanding returns how many places, three at most, together keep most of what the leading operations carry, are told apart from the
// next and, if the search is to be over, have nothing below them left to try. 0: none do.
func (i *inquiry) outstanding(over bool) int {
	total := 0.0
	for _, a := range i.searched {
		if a.score >= i.searched[0].score/2 {
			total += a.score
		}
	}
	sum := 0.0
	for k := range i.v.Suspects {
		s := &i.v.Suspects[k]
		sum += s.Share
		if k >= standOut || over && s.Open > 0 {
			return 0
		}
		if sum >= keptShare*total {
			if k+1 < len(i.v.Suspects) && s.Low <= i.v.Suspects[k+1].Share {
				return 0
			}
			return k + 1
		}
	}
	return 0
}

// doubtful reports whether the operation that leads may be no slower than it was: noise of another that is not, as often happens in the
// first epochs of a small change. It waits for so many decisions only.
func (i *inquiry) doubtful() bool {
	var excess, square float64
	for _, e := range i.searched[0].edges {
		if isFinite(e.ExcessLow) && isFinite(e.ExcessHigh) {
			excess += e.Excess
			square += (e.ExcessHigh - e.ExcessLow) * (e.ExcessHigh - e.ExcessLow) / 4
		}
	}
	return i.p.Kind != detect.KindVariable && i.p.Onset == detect.Changed && square > 0 && excess < math.Sqrt(square) && i.v.Epochs < 2*patience
}

// verify switches the places next below the best one on again that were judged by few requests, in which what is rare may have
// been missing, and those that stand out only together. It reports whether there are any.
func (i *inquiry) verify() bool {
	if i.v.Verified == i.v.Suspects[0].Context {
		return false
	}
	i.v.Verified = i.v.Suspects[0].Context
	any, below := false, i.verifyingNeeds()
	rivals := i.rivals()
	for _, a := range i.searched {
		for k := 1; k < len(a.classes); k++ {
			c, need := &a.classes[k], 0.0
			above := &a.classes[a.classes[max(c.parent, 0)].region]
			if above.tp == i.v.Suspects[0].Tracepoint && above.op == i.v.Suspects[0].Op {
				need = below
			}
			if slices.Contains(rivals, c.tp) {
				need = verifyRequests
			}
			if c.known && c.n < need {
				any = i.again(c, uint64(need)) || any
			}
		}
	}
	i.adopt()
	return any
}

// rivals returns the tracepoints of the places that only together keep most of what the leading operations carry: which of them comes
// first is to be judged by more requests than that it is one of them. None if one place is enough.
func (i *inquiry) rivals() []trace.Symbol {
	n := i.outstanding(false)
	if n < 2 {
		return nil
	}
	list := make([]trace.Symbol, n)
	for k := range list {
		list[k] = i.v.Suspects[k].Tracepoint
	}
	return list
}

// verifyingNeeds returns how many requests a place must be judged by so that what is slow is hardly missing from them: the
// rarer what is wrong is in the leading operation, the more.
func (i *inquiry) verifyingNeeds() float64 {
	need := 0.0
	for _, e := range i.searched[0].edges {
		if e.Affected > 0 { // it is known
			need = max(need, math.Ceil(certain/e.Affected))
		}
	}
	if need == 0 {
		return verifyRequests
	}
	return min(max(need, minRequests), verifyRequests)
}

// again has c judged by more requests: it stays on or, if it may be, is switched on. It reports whether it will be.
func (i *inquiry) again(c *class, need uint64) bool {
	if i.forbidden[c.tp] || i.broken[c.tp] {
		return false
	}
	if k := slices.IndexFunc(i.d.Off, func(o Off) bool { return o.Tracepoint == c.tp }); k >= 0 {
		i.d.Off = slices.Delete(i.d.Off, k, k+1)
		i.want(Pick{Tracepoint: c.tp, Score: i.v.Suspects[0].Share, Need: need, Arms: i.armsFor(float64(need)), Reason: whyVerify})
	}
	if at := i.v.want(c.tp); at >= 0 {
		i.v.Wants[at].Need, i.v.Wants[at].Epoch = need, i.v.Epochs
		return true
	}
	if !slices.ContainsFunc(i.d.Picks, func(p Pick) bool { return p.Tracepoint == c.tp }) {
		i.d.Picks = append(i.d.Picks, Pick{
			Tracepoint: c.tp, Op: c.op, Context: c.ctx, Score: i.v.Suspects[0].Share, Need: need, Arms: i.armsFor(float64(need)),
			Reason: whyVerify,
		})
	}
	return true
}

const whyVerify = "to be sure of the place"
