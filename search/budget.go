package search

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/trace"
)

// LeaseTime is how long a tracepoint stays on without renewal.
const LeaseTime = 10 * time.Minute

// armSizes are the shares of a plan's arms in sixteenths: each the sum of those before it, so that the first ones together have
// 1, 2, 4, 8 or all 16.
var armSizes = [...]int{1, 1, 2, 4, 8}

const allArms = 1<<len(armSizes) - 1

// arms returns the arms of a plan, together all requests: those that tracepoints are shared out to and, if explore is not 0, one
// that has everything on and that share of the requests.
func arms(explore float64) []Arm {
	list := make([]Arm, len(armSizes), len(armSizes)+1)
	for i, size := range armSizes {
		list[i] = Arm{Name: trace.SymbolOf([]byte(ArmNames[i])), Share: (1 - explore) * float64(size) / 16}
	}
	if explore > 0 {
		list = append(list, Arm{Name: trace.SymbolOf([]byte(ExploreArm)), Share: explore, Everything: true})
	}
	return list
}

// ExploreArm is the text of the name of the arm that has everything on.
const ExploreArm = "x"

// mostExplored bounds the share of the requests that have everything on: they are biased, and lost to the statistics.
const mostExplored = 0.1

// ArmNames are the texts of the names of a plan's arms, by index.
var ArmNames = [len(armSizes)]string{"a", "b", "c", "d", "e"}

// ArmName returns the text of the name of an arm, also before any request has told it to a table; "" if no plan has such an arm.
func ArmName(name trace.Symbol) string {
	for _, text := range append(ArmNames[:], ExploreArm) {
		if trace.SymbolOf([]byte(text)) == name {
			return text
		}
	}
	return ""
}

// shareOf returns the share of the requests that the arms in mask have.
func shareOf(mask uint32) float64 {
	sixteenths := 0
	for i, size := range armSizes {
		if mask&(1<<i) != 0 {
			sixteenths += size
		}
	}
	return float64(sixteenths) / 16
}

// entry is a tracepoint that somebody wants on.
type entry struct {
	tp     trace.Symbol
	arms   uint32
	owner  analysis.Hash
	cause  string
	value  float64
	rank   int // 0 forced, 1 pinned, 2 wished, 3 changed problems, 4 chronic ones
	renew  bool
	pinned bool
}

// compile makes the plan: what people wish and investigations want, the worst left out until it fits the budget.
func (n *step) compile() {
	n.state.Overrun = n.overrun()
	n.costs.scale = n.state.Overrun
	entries := n.entries()
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.value, a.value), cmp.Compare(a.tp, b.tp))
	})
	plan := Plan{Version: n.old.Version}
	l := newLedger(n.costs, &n.Budget)
	for _, e := range entries {
		leases := n.leases(e)
		switch {
		case len(leases) == 0:
		case e.rank > 0 && !l.fits(e.tp, e.arms):
			n.evict(e)
		default:
			l.add(e.tp, e.arms)
			plan.Leases = append(plan.Leases, leases...)
		}
	}
	explore := min(max(0, n.Explore), mostExplored)
	if explore > 0 && !l.explore(explore) {
		explore = 0
	}
	if len(plan.Leases) > 0 || explore > 0 {
		plan.Arms = arms(explore)
	}
	slices.SortFunc(plan.Leases, compareLeases)
	if !samePlan(n.old, &plan) {
		plan.Version++
	}
	n.state.Plan = plan
	n.complain(l.total)
}

// entries returns what is wanted, each tracepoint once.
func (n *step) entries() []entry {
	at := make(map[trace.Symbol]int)
	var list []entry
	add := func(e entry) {
		if n.forbidden[e.tp] || n.broken[e.tp] {
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
	for _, w := range n.state.Wishes {
		e := entry{tp: w.Tracepoint, arms: allArms, cause: "wished by " + cmp.Or(w.By, "a person"), rank: 2, renew: true, pinned: w.Kind == Pin}
		switch {
		case w.Kind == Forbid:
			continue
		case w.Forced:
			e.rank = 0
		case w.Kind == Pin:
			e.rank = 1
		}
		add(e)
	}
	for i := range n.state.Investigations {
		v := &n.state.Investigations[i]
		for _, w := range v.Wants {
			add(entry{
				tp: w.Tracepoint, arms: w.Arms, owner: v.Problem, cause: w.Cause, value: w.Value,
				rank: 3 + int(n.onset[v.Problem]), renew: n.seen[v.Problem],
			})
		}
	}
	return list
}

// leases returns the leases of e, renewed while what wants it lives; expired ones are left out.
func (n *step) leases(e entry) []Lease {
	var list []Lease
	for arm := range armSizes {
		if e.arms&(1<<arm) == 0 {
			continue
		}
		l := Lease{
			Tracepoint: e.tp, Arm: int32(arm), Owner: e.owner, Cause: e.cause, Since: n.Now, Expires: n.Now.Add(LeaseTime), Pinned: e.pinned,
		}
		if at, found := slices.BinarySearchFunc(n.old.Leases, l, compareLeases); found {
			l.Since = n.old.Leases[at].Since
			if !e.renew {
				l.Expires = n.old.Leases[at].Expires
			}
		}
		if l.Expires > n.Now {
			list = append(list, l)
		}
	}
	return list
}

func compareLeases(a, b Lease) int {
	return cmp.Or(cmp.Compare(a.Arm, b.Arm), cmp.Compare(a.Tracepoint, b.Tracepoint))
}

// evict withdraws e from the investigations that want it, and says so.
func (n *step) evict(e entry) {
	for i := range n.state.Investigations {
		v := &n.state.Investigations[i]
		if at := v.want(e.tp); at >= 0 {
			v.Wants = slices.Delete(slices.Clone(v.Wants), at, at+1)
			if len(v.Wants) == 0 {
				v.Starved++
			}
			n.note(v.Problem, e.tp)
		}
	}
	if e.rank <= 2 {
		n.note(analysis.Hash{}, e.tp)
	}
}

// note records in the decision of an investigation, or in one of its own, that tp is over budget.
func (n *step) note(problem analysis.Hash, tp trace.Symbol) {
	k := slices.IndexFunc(n.decisions, func(d Decision) bool { return d.Investigation == problem })
	if k < 0 {
		d := Decision{At: n.Now, Investigation: problem, Strategy: n.strategy, Reason: WhyBudget}
		if v := n.state.Investigation(problem); v != nil {
			d.From, d.To = v.Status, v.Status
		}
		k = len(n.decisions)
		n.decisions = append(n.decisions, d)
	}
	d := &n.decisions[k]
	d.Picks = slices.DeleteFunc(d.Picks, func(p Pick) bool { return p.Tracepoint == tp })
	d.Rejected = append(d.Rejected, Rejected{tp, WhyBudget})
	if n.old.has(tp) {
		d.Off = append(d.Off, Off{tp, WhyBudget})
	}
}

// has reports whether tp is on in any arm.
func (p *Plan) has(tp trace.Symbol) bool {
	return slices.ContainsFunc(p.Leases, func(l Lease) bool { return l.Tracepoint == tp })
}

// samePlan reports whether the same tracepoints are on for the same requests.
func samePlan(a, b *Plan) bool {
	return slices.EqualFunc(a.Leases, b.Leases, func(x, y Lease) bool { return compareLeases(x, y) == 0 }) &&
		slices.Equal(a.Arms, b.Arms)
}

// complain adds a decision for changes of the plan that no other explains: wishes, agents' complaints, ended leases.
func (n *step) complain(total Usage) {
	plan := &n.state.Plan
	told := make(map[trace.Symbol]bool)
	for _, d := range n.decisions {
		for _, p := range d.Picks {
			told[p.Tracepoint] = true
		}
		for _, o := range d.Off {
			told[o.Tracepoint] = true
		}
	}
	d := Decision{At: n.Now, Strategy: n.strategy, Reason: "what people or agents decided"}
	for _, l := range n.old.Leases {
		if !plan.has(l.Tracepoint) && !told[l.Tracepoint] {
			told[l.Tracepoint] = true
			d.Off = append(d.Off, Off{l.Tracepoint, n.whyOff(&l)})
		}
	}
	for _, l := range plan.Leases {
		if !n.old.has(l.Tracepoint) && !told[l.Tracepoint] {
			told[l.Tracepoint] = true
			d.Picks = append(d.Picks, Pick{Tracepoint: l.Tracepoint, Whole: true, Arms: allArms, Cost: n.costs.of(l.Tracepoint, allArms), Reason: l.Cause})
		}
	}
	if len(d.Off)+len(d.Picks) > 0 {
		n.decisions = append(n.decisions, d)
	}
	for i := range n.decisions {
		n.decisions[i].Estimate, n.decisions[i].Budget, n.decisions[i].Plan = total, n.Budget, plan.Version
	}
}

func (n *step) whyOff(l *Lease) string {
	switch {
	case n.forbidden[l.Tracepoint]:
		return WhyForbidden
	case n.broken[l.Tracepoint]:
		return WhyUnavailable
	case l.Expires <= n.Now:
		return WhyExpired
	case l.Owner.IsZero():
		return WhyUnwished
	}
	return WhyClosed
}

// finish puts the state in order and returns the decisions.
func (n *step) finish() []Decision {
	slices.SortFunc(n.state.Silences, func(a, b Silence) int {
		return cmp.Or(a.Problem.Compare(b.Problem), cmp.Compare(a.Tracepoint, b.Tracepoint))
	})
	for i := range n.state.Investigations {
		v := &n.state.Investigations[i]
		v.Wants = slices.DeleteFunc(slices.Clone(v.Wants), func(w Want) bool { return !n.state.Plan.has(w.Tracepoint) })
		if len(v.Wants) > 0 {
			v.Starved = 0
		}
	}
	return n.decisions
}
