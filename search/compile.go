package search

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// LeaseTime is the time after which a tracepoint is switched off unless its lease is renewed.
const LeaseTime = 10 * time.Minute

// armSizes are the shares of a plan's arms in sixteenths. From the second arm on, each share is the sum of the shares
// before it, so the first arms together get 1, 2, 4, 8 or all 16 sixteenths.
var armSizes = [...]int{1, 1, 2, 4, 8}

const allArms = 1<<len(armSizes) - 1

// ArmNames are the names of a plan's arms, by index.
var ArmNames = [len(armSizes)]string{"a", "b", "c", "d", "e"}

// ArmName returns the text of name, or "" if name isn't the symbol of one of [ArmNames]. It needs no table, so it works
// even before a request has added the name to a table.
func ArmName(name trace.Symbol) string {
	for _, text := range ArmNames {
		if trace.SymbolOf([]byte(text)) == name {
			return text
		}
	}
	return ""
}

// newArms returns the arms of a plan, which together cover all requests.
func newArms() []Arm {
	list := make([]Arm, len(armSizes))
	for i, size := range armSizes {
		list[i] = Arm{Name: trace.SymbolOf([]byte(ArmNames[i])), Share: float64(size) / 16}
	}
	return list
}

// shareOf returns the share of the requests that run in the arms of mask.
func shareOf(mask uint32) float64 {
	sixteenths := 0
	for i, size := range armSizes {
		if mask&(1<<i) != 0 {
			sixteenths += size
		}
	}
	return float64(sixteenths) / 16
}

// armsFor returns the mask of the fewest arms that together get at least 0.7·share of the requests, or of all arms if
// even all of them get less. It always takes the first arms of a plan, so that of any two results, one contains the
// other. Requests with a tracepoint that is on for few requests therefore also have the tracepoints that are on for
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

// Ranks of the tracepoints in a plan, most important first. The rank of an investigation's tracepoints is rankChanged
// plus the problem's onset.
const (
	rankForced = iota
	rankPinned
	rankEnabled
	rankChanged
)

// planEntry is a tracepoint requested by an override or an investigation.
type planEntry struct {
	tp     trace.Symbol
	arms   uint32
	owner  Subject
	cause  string
	value  float64
	rank   int
	renew  bool
	pinned bool
}

// compile makes the plan from overrides and the requests of investigations:
//
//  1. Entries are sorted by rank, then by value.
//  2. Entries that fit into the remaining budget get leases. The others are evicted from their investigations. Forced
//     entries always fit.
func (s *epochStep) compile() {
	old := &s.in.State.Plan
	s.state.Overrun = s.overrun()
	s.costs.scale = s.state.Overrun
	entries := s.planEntries()
	sorting.SliceStable(entries, func(a, b planEntry) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.value, a.value), cmp.Compare(a.tp, b.tp))
	})
	plan := Plan{Version: old.Version}
	l := newLedger(s.costs, &s.in.Budget)
	for _, e := range entries {
		leases := old.leases(e, s.in.Now)
		switch {
		case len(leases) == 0:
		case e.rank > rankForced && !l.fits(e.tp, e.arms):
			s.evict(e)
		default:
			l.add(e.tp, e.arms)
			plan.Leases = append(plan.Leases, leases...)
		}
	}
	if len(plan.Leases) > 0 {
		plan.Arms = newArms()
	}
	sorting.Slice(plan.Leases, compareLeases)
	if !samePlan(old, &plan) {
		plan.Version++
	}
	s.state.Plan = plan
	s.explainRest()
	for i := range s.decisions {
		d := &s.decisions[i]
		d.Estimate, d.Budget, d.Plan = l.total, s.in.Budget, plan.Version
	}
}

// planEntries returns one entry per tracepoint that an override or an investigation requests, except forbidden and
// unavailable tracepoints.
func (s *epochStep) planEntries() []planEntry {
	at := make(map[trace.Symbol]int)
	var list []planEntry
	add := func(e planEntry) {
		if s.excluded.always(e.tp) {
			return
		}
		k, ok := at[e.tp]
		if !ok {
			at[e.tp] = len(list)
			list = append(list, e)
			return
		}
		x := &list[k]
		x.arms |= e.arms
		x.rank, x.value = min(x.rank, e.rank), max(x.value, e.value)
		x.pinned, x.renew = x.pinned || e.pinned, x.renew || e.renew
	}
	for i := range s.state.Overrides {
		if o := &s.state.Overrides[i]; o.Kind != Forbid {
			add(o.planEntry())
		}
	}
	for i := range s.state.Investigations {
		v := &s.state.Investigations[i]
		onset, seen := s.onset[v.Subject]
		for _, r := range v.Requested {
			add(planEntry{
				tp:    r.Tracepoint,
				arms:  r.Arms,
				owner: v.Subject,
				cause: r.Cause,
				value: r.Value,
				rank:  rankChanged + int(onset),
				renew: seen,
			})
		}
	}
	return list
}

func (o *Override) planEntry() planEntry {
	e := planEntry{
		tp:     o.Tracepoint,
		arms:   allArms,
		cause:  "requested by " + cmp.Or(o.By, "a person"),
		rank:   rankEnabled,
		renew:  true,
		pinned: o.Kind == Pin,
	}
	switch {
	case o.Forced:
		e.rank = rankForced
	case o.Kind == Pin:
		e.rank = rankPinned
	}
	return e
}

// leases returns the leases of e in the plan that follows p, one per arm. It renews them while their override or
// investigation lasts, and omits expired leases.
func (p *Plan) leases(e planEntry, now trace.Nanos) []Lease {
	var list []Lease
	for arm := range armSizes {
		if e.arms&(1<<arm) == 0 {
			continue
		}
		l := Lease{
			Tracepoint: e.tp,
			Arm:        int32(arm),
			Owner:      e.owner,
			Cause:      e.cause,
			Since:      now,
			Expires:    now.Add(LeaseTime),
			Pinned:     e.pinned,
		}
		if at, found := slices.BinarySearchFunc(p.Leases, l, compareLeases); found {
			l.Since = p.Leases[at].Since
			if !e.renew {
				l.Expires = p.Leases[at].Expires
			}
		}
		if l.Expires > now {
			list = append(list, l)
		}
	}
	return list
}

func compareLeases(a, b Lease) int {
	return cmp.Or(cmp.Compare(a.Arm, b.Arm), cmp.Compare(a.Tracepoint, b.Tracepoint))
}

// samePlan reports whether a and b enable the same tracepoints in the same arms.
func samePlan(a, b *Plan) bool {
	return slices.EqualFunc(a.Leases, b.Leases, func(x, y Lease) bool { return compareLeases(x, y) == 0 }) &&
		slices.Equal(a.Arms, b.Arms)
}

// evict withdraws e from the investigations that request it, and records the eviction.
func (s *epochStep) evict(e planEntry) {
	for i := range s.state.Investigations {
		v := &s.state.Investigations[i]
		if at := v.requested(e.tp); at >= 0 {
			v.Requested = slices.Delete(slices.Clone(v.Requested), at, at+1)
			if len(v.Requested) == 0 {
				v.BudgetStarved++
			}
			s.recordEviction(v.Subject, e.tp)
		}
	}
	if e.rank <= rankEnabled {
		s.recordEviction(Subject{}, e.tp)
	}
}

// recordEviction records that tp is over budget, in subject's decision of this epoch or, if subject has none yet, in a
// new decision.
func (s *epochStep) recordEviction(subject Subject, tp trace.Symbol) {
	k := slices.IndexFunc(s.decisions, func(d Decision) bool { return d.Subject == subject })
	if k < 0 {
		d := Decision{At: s.in.Now, Subject: subject, Strategy: s.strategy.Name, Reason: WhyBudget}
		if v := s.state.Investigation(subject); v != nil {
			d.From, d.To = v.Status, v.Status
		}
		k = len(s.decisions)
		s.decisions = append(s.decisions, d)
	}
	d := &s.decisions[k]
	d.Picks = slices.DeleteFunc(d.Picks, func(p Pick) bool { return p.Tracepoint == tp })
	d.Rejected = append(d.Rejected, Rejected{tp, WhyBudget})
	if s.in.State.Plan.has(tp) {
		d.Off = append(d.Off, Off{tp, WhyBudget})
	}
}

// explainRest adds a decision for changes of the plan that no other decision explains: overrides, agents that can't
// enable a tracepoint, and leases that ended.
func (s *epochStep) explainRest() {
	old, plan := &s.in.State.Plan, &s.state.Plan
	explained := make(map[trace.Symbol]bool)
	for _, d := range s.decisions {
		for _, p := range d.Picks {
			explained[p.Tracepoint] = true
		}
		for _, o := range d.Off {
			explained[o.Tracepoint] = true
		}
	}
	const why = "an override, an expired lease or a report of an agent"
	d := Decision{At: s.in.Now, Strategy: s.strategy.Name, Reason: why}
	for _, l := range old.Leases {
		if !plan.has(l.Tracepoint) && !explained[l.Tracepoint] {
			explained[l.Tracepoint] = true
			d.Off = append(d.Off, Off{l.Tracepoint, s.whyOff(&l)})
		}
	}
	for _, l := range plan.Leases {
		if !old.has(l.Tracepoint) && !explained[l.Tracepoint] {
			explained[l.Tracepoint] = true
			d.Picks = append(d.Picks, Pick{
				Tracepoint: l.Tracepoint,
				Whole:      true,
				Arms:       allArms,
				Cost:       s.costs.of(l.Tracepoint, allArms),
				Reason:     l.Cause,
			})
		}
	}
	if len(d.Off)+len(d.Picks) > 0 {
		s.decisions = append(s.decisions, d)
	}
}

// whyOff returns the reason why the tracepoint of l is off, given that no investigation switched it off.
func (s *epochStep) whyOff(l *Lease) string {
	switch {
	case s.excluded.forbidden[l.Tracepoint]:
		return WhyForbidden
	case s.excluded.unavailable[l.Tracepoint]:
		return WhyUnavailable
	case l.Expires <= s.in.Now:
		return WhyExpired
	case l.Owner.IsZero():
		return WhyOverrideEnd
	}
	return WhyClosed
}
