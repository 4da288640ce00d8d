package search

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// LeaseTime is how long a tracepoint stays on without renewal.
const LeaseTime = 10 * time.Minute

// What a hit is taken to cost where no agent says.
const (
	defaultBytes = 256
	defaultCost  = 2 * time.Microsecond
)

// armSizes are the shares of a plan's arms in sixteenths: each the sum of those before it, so that the first ones together have
// 1, 2, 4, 8 or all 16.
var armSizes = [...]int{1, 1, 2, 4, 8}

const allArms = 1<<len(armSizes) - 1

// arms returns the arms of every plan. Together they are all requests.
func arms() []Arm {
	list := make([]Arm, len(armSizes))
	for i, size := range armSizes {
		list[i] = Arm{Name: trace.SymbolOf([]byte(ArmNames[i])), Share: float64(size) / 16}
	}
	return list
}

// ArmNames are the texts of the names of a plan's arms, by index.
var ArmNames = [len(armSizes)]string{"a", "b", "c", "d", "e"}

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

// costs estimates what tracepoints cost.
type costs struct {
	trees []*cct.Tree // in the order of their request types
	rates []float64
	known map[trace.Symbol]Usage // with all arms
	scale Usage                  // measured over estimated, at least 1
}

func newCosts(trees map[analysis.Hash]*cct.Tree, rates map[analysis.Hash]float64) *costs {
	c := &costs{known: make(map[trace.Symbol]Usage), scale: Usage{Bytes: 1, CPU: 1}}
	var types []analysis.Hash
	for h := range trees {
		types = append(types, h)
	}
	slices.SortFunc(types, analysis.Hash.Compare)
	for _, h := range types {
		if trees[h] != nil {
			c.trees, c.rates = append(c.trees, trees[h]), append(c.rates, rates[h])
		}
	}
	return c
}

// of returns what tp is expected to cost in the given arms, over all request types.
func (c *costs) of(tp trace.Symbol, mask uint32) Usage {
	u, ok := c.known[tp]
	if !ok {
		for k, t := range c.trees {
			u.add(treeCost(t, tp, c.rates[k]))
		}
		if u.Hits == 0 && len(c.rates) > 0 && !c.placed(tp) {
			u = usageOf(slices.Max(c.rates), 0, 0) // anywhere: taken to be executed once by the most frequent requests
		}
		c.known[tp] = u
	}
	share := shareOf(mask)
	return Usage{Tracepoints: 1, Hits: u.Hits * share, Bytes: u.Bytes * share * c.scale.Bytes, CPU: u.CPU * share * c.scale.CPU}
}

func treeCost(t *cct.Tree, tp trace.Symbol, rate float64) Usage {
	var u Usage
	for _, i := range t.At(tp) {
		n := &t.Nodes[i]
		u.add(usageOf(rate*nodeHits(t, i), n.Bytes, n.Cost))
	}
	return u
}

func usageOf(hits float64, bytes int32, cost time.Duration) Usage {
	return Usage{
		Hits: hits, Bytes: hits * float64(cmp.Or(bytes, defaultBytes)), CPU: hits * cmp.Or(cost, defaultCost).Seconds(),
	}
}

// placed reports whether a tree has tp.
func (c *costs) placed(tp trace.Symbol) bool {
	return slices.ContainsFunc(c.trees, func(t *cct.Tree) bool { return len(t.At(tp)) > 0 })
}

// nodeHits returns how many spans a request is expected to emit at node i: as seen, else as often as the nearest seen place
// above.
func nodeHits(t *cct.Tree, i int32) float64 {
	for ; i >= 0; i = t.Nodes[i].Parent {
		if t.Nodes[i].Requests > 0 {
			return t.Nodes[i].HitRate()
		}
	}
	return 1
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
	n.costs.scale = n.scale()
	entries := n.entries()
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.value, a.value), cmp.Compare(a.tp, b.tp))
	})
	plan := Plan{Version: n.old.Version, Arms: arms()}
	var total Usage
	for _, e := range entries {
		u := n.costs.of(e.tp, e.arms)
		sum := total
		sum.add(u)
		if e.rank > 0 && !n.Budget.allows(sum) {
			n.evict(e)
			continue
		}
		total = sum
		plan.Leases = append(plan.Leases, n.leases(e)...)
	}
	slices.SortFunc(plan.Leases, compareLeases)
	if len(plan.Leases) == 0 {
		plan.Arms = nil
	}
	if !samePlan(n.old, &plan) {
		plan.Version++
	}
	n.state.Plan = plan
	n.complain(total)
}

// allows reports whether u is within the budget.
func (b *Budget) allows(u Usage) bool {
	return (b.Tracepoints == 0 || u.Tracepoints <= b.Tracepoints) && (b.Bytes == 0 || u.Bytes <= b.Bytes) && (b.CPU == 0 || u.CPU <= b.CPU)
}

// scale returns by how much agents measured more than was estimated for the plan that is on.
func (n *step) scale() Usage {
	masks := make(map[trace.Symbol]uint32)
	var order []trace.Symbol
	for _, l := range n.old.Leases {
		if masks[l.Tracepoint] == 0 {
			order = append(order, l.Tracepoint)
		}
		masks[l.Tracepoint] |= 1 << l.Arm
	}
	var estimate Usage
	for _, tp := range order {
		estimate.add(n.costs.of(tp, masks[tp]))
	}
	ratio := func(measured, estimated float64) float64 {
		if estimated <= 0 {
			return 1
		}
		return max(1, measured/estimated)
	}
	return Usage{Bytes: ratio(n.Measured.Bytes, estimate.Bytes), CPU: ratio(n.Measured.CPU, estimate.CPU)}
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
		(len(b.Leases) == 0 || slices.Equal(a.Arms, b.Arms))
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
