package search

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/trace"
)

// What a hit is taken to cost where no agent says.
const (
	defaultBytes = 256
	defaultCost  = 2 * time.Microsecond
)

// costs estimates what tracepoints cost.
type costs struct {
	trees []*cct.Tree // in the order of their request types
	rates []float64
	known map[trace.Symbol]*price
	scale Overrun
}

// price is what a tracepoint is expected to cost in all arms, before scaling.
type price struct {
	service trace.Symbol // that executes it; 0: unknown
	types   []typed      // request types that may execute it
	total   Usage
}

// typed is what a tracepoint costs in the requests of one type.
type typed struct {
	tree int // index in costs.trees
	Usage
}

func newCosts(trees map[analysis.Hash]*cct.Tree, rates map[analysis.Hash]float64) *costs {
	c := &costs{known: make(map[trace.Symbol]*price), scale: Overrun{1, 1}}
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
func (c *costs) of(tp trace.Symbol, mask uint32) Usage { return c.scaled(c.price(tp).total, mask) }

// scaled returns u, which is of all arms, for the given ones.
func (c *costs) scaled(u Usage, mask uint32) Usage {
	share := shareOf(mask)
	return Usage{Tracepoints: u.Tracepoints, Hits: u.Hits * share, Bytes: u.Bytes * share * c.scale.Bytes, CPU: u.CPU * share * c.scale.CPU}
}

func (c *costs) price(tp trace.Symbol) *price {
	p := c.known[tp]
	if p == nil {
		p = c.estimate(tp)
		c.known[tp] = p
	}
	return p
}

// estimate prices tp by the places where trees have it. What may be executed anywhere in a service is taken to be executed once
// by every request that gets there, and what no tree knows once by every request.
func (c *costs) estimate(tp trace.Symbol) *price {
	p := &price{total: Usage{Tracepoints: 1}}
	add := func(tree int, u Usage) {
		u.Tracepoints = 0
		p.total.add(u)
		u.Tracepoints = 1
		p.types = append(p.types, typed{tree, u})
	}
	for k, t := range c.trees {
		if at := t.At(tp); len(at) > 0 {
			p.service = cmp.Or(p.service, t.Nodes[at[0]].Service)
			add(k, treeCost(t, at, c.rates[k]))
		}
	}
	if len(p.types) > 0 {
		return p
	}
	for k, t := range c.trees {
		point, service := t.FindUnplaced(tp)
		switch {
		case point == nil:
			add(k, usageOf(c.rates[k], 0, 0))
		case t.HasService(service):
			p.service = service
			add(k, usageOf(c.rates[k], point.Bytes, point.Cost))
		default:
			p.service = service
		}
	}
	return p
}

// everything returns what it costs to have all tracepoints on for all requests, before scaling.
func (c *costs) everything() *price {
	p := &price{}
	for k, t := range c.trees {
		u := typed{tree: k}
		hits := make([]float64, len(t.Nodes))
		for i := range t.Nodes {
			n := &t.Nodes[i]
			switch {
			case n.Requests > 0:
				hits[i] = n.HitRate()
			case n.Parent >= 0:
				hits[i] = hits[n.Parent]
			default:
				hits[i] = 1
			}
			if !n.Baseline() {
				u.add(usageOf(c.rates[k]*hits[i], n.Bytes, n.Cost))
			}
		}
		p.types = append(p.types, u)
		p.total.add(u.Usage)
	}
	return p
}

func treeCost(t *cct.Tree, at []int32, rate float64) Usage {
	var u Usage
	for _, i := range at {
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

// Overrun is by how much agents measured more than was estimated: a factor, at least 1; 0: nothing was measured yet.
type Overrun struct{ Bytes, CPU float64 }

// forgetting is how much of an overrun remains after a call in which nothing was on to be measured.
const forgetting = 0.99

// overrun returns by how much agents measured more than was estimated for the plan that is on. Where nothing was measured it is
// what was found before, forgotten slowly, so that what cost too much is not switched on again at once.
func (n *step) overrun() Overrun {
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
	if share := n.old.explores(); share > 0 {
		estimate.add(n.costs.everything().total.times(share))
	}
	ratio := func(measured, estimated, before float64) float64 {
		if measured <= 0 || estimated <= 0 {
			return 1 + max(0, before-1)*forgetting
		}
		return max(1, measured/estimated)
	}
	return Overrun{
		Bytes: ratio(n.Measured.Bytes, estimate.Bytes, n.State.Overrun.Bytes), CPU: ratio(n.Measured.CPU, estimate.CPU, n.State.Overrun.CPU),
	}
}

// ledger adds up what a plan costs, and refuses what is beyond the budget.
type ledger struct {
	costs    *costs
	budget   *Budget
	total    Usage
	types    []Usage // as costs.trees
	services map[trace.Symbol]Usage
}

func newLedger(c *costs, b *Budget) *ledger {
	return &ledger{costs: c, budget: b, types: make([]Usage, len(c.trees)), services: make(map[trace.Symbol]Usage)}
}

// fits reports whether tp in the given arms can be added to what is on.
func (l *ledger) fits(tp trace.Symbol, mask uint32) bool {
	p := l.costs.price(tp)
	u := l.costs.scaled(p.total, mask)
	if !l.budget.total().allows(l.total.plus(u)) {
		return false
	}
	if p.service != 0 && !l.budget.Service.allows(l.services[p.service].plus(u)) {
		return false
	}
	return !slices.ContainsFunc(p.types, func(t typed) bool {
		return !l.budget.RequestType.allows(l.types[t.tree].plus(l.costs.scaled(t.Usage, mask)))
	})
}

// add takes tp as on in the given arms.
func (l *ledger) add(tp trace.Symbol, mask uint32) {
	p := l.costs.price(tp)
	u := l.costs.scaled(p.total, mask)
	l.total.add(u)
	l.services[p.service] = l.services[p.service].plus(u)
	for _, t := range p.types {
		l.types[t.tree].add(l.costs.scaled(t.Usage, mask))
	}
}

// explore takes everything as on for the given share of all requests, unless that is beyond the budget. It reports whether it
// fits. Services have no part in it that is known.
func (l *ledger) explore(share float64) bool {
	p := l.costs.everything()
	u := p.total.times(share).overrun(l.costs.scale)
	if !l.budget.total().allows(l.total.plus(u)) {
		return false
	}
	if slices.ContainsFunc(p.types, func(t typed) bool {
		return !l.budget.RequestType.allows(l.types[t.tree].plus(t.times(share).overrun(l.costs.scale)))
	}) {
		return false
	}
	l.total.add(u)
	return true
}
