package search

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

func (v *Investigation) want(tp trace.Symbol) int {
	at, found := slices.BinarySearchFunc(v.Wants, tp, compareWant)
	if !found {
		return -1
	}
	return at
}

// refuses returns why tp may not be switched on for this problem; empty: it may.
func (i *inquiry) refuses(tp trace.Symbol) string {
	switch {
	case i.forbidden[tp]:
		return WhyForbidden
	case i.broken[tp]:
		return WhyUnavailable
	case i.silent[Silence{Problem: i.v.Problem, Tracepoint: tp}]:
		return WhySilent
	}
	return ""
}

// pick asks the strategy and takes what it answers. It reports whether anything was switched on.
func (i *inquiry) pick() bool {
	if len(i.question.Candidates) == 0 {
		return false
	}
	taken := make(map[trace.Symbol]bool)
	for _, p := range i.strategy.Pick(&i.question) {
		if taken[p.Tracepoint] || i.v.want(p.Tracepoint) >= 0 {
			continue
		}
		taken[p.Tracepoint] = true
		p.Arms = allArms
		if !p.Whole {
			p.Arms = i.armsFor(wantedRequests)
		}
		i.d.Picks = append(i.d.Picks, p)
	}
	i.adopt()
	for k := 0; k < len(i.question.Candidates) && len(i.rejected) < maxRejected; k++ {
		if tp := i.question.Candidates[k].Tracepoint; !taken[tp] {
			taken[tp] = true
			i.rejected = append(i.rejected, Rejected{tp, WhyLater})
		}
	}
	return len(i.d.Picks) > 0
}

// armsFor returns arms that have the given number of the problem's requests in an epoch.
func (i *inquiry) armsFor(requests float64) uint32 {
	return armsFor(requests / (i.p.Rate * i.Epoch.Seconds()))
}

// adopt makes the picks wants.
func (i *inquiry) adopt() {
	for k := range i.d.Picks {
		i.d.Picks[k].Cost = i.costs.of(i.d.Picks[k].Tracepoint, i.d.Picks[k].Arms)
		i.want(i.d.Picks[k])
	}
}

// want keeps what p names on from now on.
func (i *inquiry) want(p Pick) {
	at, found := slices.BinarySearchFunc(i.v.Wants, p.Tracepoint, compareWant)
	if found {
		return
	}
	w := Want{Tracepoint: p.Tracepoint, Arms: p.Arms, Since: i.Now, Epoch: i.v.Epochs, Cause: p.Reason, Need: p.Need}
	w.Value = p.Score / (1 + i.costs.of(p.Tracepoint, p.Arms).Hits)
	i.v.Wants = slices.Insert(i.v.Wants, at, w)
	if at, found := slices.BinarySearch(i.v.Tried, p.Tracepoint); !found {
		i.v.Tried = slices.Insert(slices.Clone(i.v.Tried), at, p.Tracepoint)
	}
}

func compareWant(w Want, tp trace.Symbol) int { return cmp.Compare(w.Tracepoint, tp) }

// switchOff ends what is known well enough: what explains nothing (and stays silent for a while), what was never executed, and,
// for frugal strategies, everything but the places that are being divided. It reports whether anything was never executed.
func (i *inquiry) switchOff(waiting map[trace.Symbol]bool) (never bool) {
	carried := i.carried()
	dividing := make(map[trace.Symbol]bool)
	for k := range i.question.Regions {
		dividing[i.question.Regions[k].Tracepoint] = true
	}
	var kept []Want
	for _, w := range i.v.Wants {
		c, shown := carried[w.Tracepoint]
		reason := ""
		switch {
		case waiting[w.Tracepoint]:
		case !shown:
			reason, never = WhyNever, true
		case c.high < refutedShare*i.searched[0].score:
			reason = WhyRefuted
		case !dividing[w.Tracepoint] && (i.strategy.Frugal || c.own < refutedShare*i.searched[0].score):
			reason = WhyRefined
		}
		if reason == "" {
			kept = append(kept, w)
			continue
		}
		i.d.Off = append(i.d.Off, Off{w.Tracepoint, reason})
		if reason != WhyRefined {
			i.silence(w.Tracepoint)
		}
	}
	i.v.Wants = kept
	return never
}

func (i *inquiry) silence(tp trace.Symbol) {
	s := Silence{Problem: i.v.Problem, Tracepoint: tp}
	if !i.silent[s] {
		i.silent[s] = true
		s.Until = i.Now.Add(SilencePeriod)
		i.state.Silences = append(i.state.Silences, s)
	}
}

// carries is what a tracepoint is known to carry, over all areas and contexts, as a share of what is wrong.
type carries struct{ high, own float64 }

// carried returns what the tracepoints carry that were executed.
func (i *inquiry) carried() map[trace.Symbol]carries {
	all := make(map[trace.Symbol]carries)
	for _, a := range i.searched {
		for k := 1; k < len(a.classes); k++ {
			c := &a.classes[k]
			if !c.known || !c.shown {
				continue
			}
			x := all[c.tp]
			x.high += a.score * (c.share + c.half)
			x.own += a.score * c.own
			all[c.tp] = x
		}
	}
	return all
}

// armsFor returns arms that together have about the given share of the requests, at least 0.7 of it. They are the first ones
// of a plan, so that of any two answers one contains the other: what is on for few requests is on together with what is on for
// many.
func armsFor(share float64) uint32 {
	for k := range armSizes {
		mask := uint32(1)<<(k+1) - 1
		if shareOf(mask) >= 0.7*share {
			return mask
		}
	}
	return allArms
}
