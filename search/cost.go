package search

import (
	"cmp"
	"maps"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// The assumed cost of a hit if no agent has reported it.
const (
	defaultBytes = 256
	defaultCost  = 2 * time.Microsecond
)

// costs estimates and caches the costs of tracepoints.
type costs struct {
	trees []*cct.Tree // in the order of their request types
	rates []float64
	known map[trace.Symbol]*price
	scale Overrun
}

// price is the expected cost of a tracepoint in all arms, before scaling.
type price struct {
	service trace.Symbol // service that runs it; 0 if unknown
	total   Usage
}

func newCosts(trees map[analysis.Hash]*cct.Tree, rates map[analysis.Hash]float64) *costs {
	c := &costs{known: make(map[trace.Symbol]*price), scale: Overrun{1, 1}}
	for _, h := range sorting.Sorted(maps.Keys(trees), analysis.Hash.Compare) {
		if trees[h] != nil {
			c.trees, c.rates = append(c.trees, trees[h]), append(c.rates, rates[h])
		}
	}
	return c
}

// of returns the expected cost of tp in the arms of mask, summed over all request types.
func (c *costs) of(tp trace.Symbol, mask uint32) Usage { return c.scaled(c.price(tp).total, mask) }

// scaled converts u from all arms to the arms of mask, and applies the overrun.
func (c *costs) scaled(u Usage, mask uint32) Usage {
	share := shareOf(mask)
	return Usage{
		Tracepoints: u.Tracepoints,
		Hits:        u.Hits * share,
		Bytes:       u.Bytes * share * c.scale.Bytes,
		CPU:         u.CPU * share * c.scale.CPU,
	}
}

// price returns the price of tp, estimated once.
func (c *costs) price(tp trace.Symbol) *price {
	p := c.known[tp]
	if p == nil {
		p = c.estimate(tp)
		c.known[tp] = p
	}
	return p
}

// estimate prices tp by its nodes in the trees. An unanchored tracepoint is assumed to run once in every request that
// reaches its service. A tracepoint that no tree contains is assumed to run once in every request.
func (c *costs) estimate(tp trace.Symbol) *price {
	p := &price{total: Usage{Tracepoints: 1}}
	known := false
	for k, t := range c.trees {
		if at := t.At(tp); len(at) > 0 {
			known = true
			p.service = cmp.Or(p.service, t.Nodes[at[0]].Service)
			p.total.add(treeCost(t, at, c.rates[k]))
		}
	}
	if known {
		return p
	}
	for k, t := range c.trees {
		point, service := t.FindUnplaced(tp)
		switch {
		case point == nil:
			p.total.add(usageOf(c.rates[k], 0, 0))
		case t.HasService(service):
			p.service = service
			p.total.add(usageOf(c.rates[k], point.Bytes, point.Cost))
		default:
			p.service = service
		}
	}
	return p
}

// treeCost returns the cost of a tracepoint with the nodes `at` in t, for rate requests per second.
func treeCost(t *cct.Tree, at []int32, rate float64) Usage {
	var u Usage
	for _, i := range at {
		n := &t.Nodes[i]
		u.add(usageOf(rate*nodeHits(t, i), n.Bytes, n.Cost))
	}
	return u
}

// usageOf returns the cost of the given number of hits per second. bytes and cost are per hit; 0 stands for the
// default.
func usageOf(hits float64, bytes int32, cost time.Duration) Usage {
	return Usage{
		Hits: hits, Bytes: hits * float64(cmp.Or(bytes, defaultBytes)), CPU: hits * cmp.Or(cost, defaultCost).Seconds(),
	}
}

// nodeHits returns the expected number of spans per request at node i: the hit rate of the nearest node, at or above i,
// that some request could run, or 1 if there is no such node.
func nodeHits(t *cct.Tree, i int32) float64 {
	for ; i >= 0; i = t.Nodes[i].Parent {
		if t.Nodes[i].Requests > 0 {
			return t.Nodes[i].HitRate()
		}
	}
	return 1
}

// Overrun is the ratio of measured to estimated cost, at least 1. A field that is 0 stands for 1.
type Overrun struct{ Bytes, CPU float64 }

// overrunDecay is the fraction of the overrun above 1 that remains after a call of [Next] without measurements.
const overrunDecay = 0.99

// overrun returns the overrun of the current plan. If there are no measurements, the previous overrun decays slowly, so
// that tracepoints that cost too much aren't switched on again at once.
func (s *epochStep) overrun() Overrun {
	old := &s.in.State.Plan
	masks := make(map[trace.Symbol]uint32)
	var order []trace.Symbol
	for _, l := range old.Leases {
		if masks[l.Tracepoint] == 0 {
			order = append(order, l.Tracepoint)
		}
		masks[l.Tracepoint] |= 1 << l.Arm
	}
	var estimate Usage
	for _, tp := range order {
		estimate.add(s.costs.of(tp, masks[tp]))
	}
	ratio := func(measured, estimated, before float64) float64 {
		if measured <= 0 || estimated <= 0 {
			return 1 + max(0, before-1)*overrunDecay
		}
		return max(1, measured/estimated)
	}
	return Overrun{
		Bytes: ratio(s.in.Measured.Bytes, estimate.Bytes, s.in.State.Overrun.Bytes),
		CPU:   ratio(s.in.Measured.CPU, estimate.CPU, s.in.State.Overrun.CPU),
	}
}

// ledger adds up the cost of a plan and compares it with the budget.
type ledger struct {
	costs    *costs
	budget   *Budget
	total    Usage
	services map[trace.Symbol]Usage
}

func newLedger(c *costs, b *Budget) *ledger {
	return &ledger{costs: c, budget: b, services: make(map[trace.Symbol]Usage)}
}

// fits reports whether the remaining budget has room for tp in the arms of mask.
func (l *ledger) fits(tp trace.Symbol, mask uint32) bool {
	p := l.costs.price(tp)
	u := l.costs.scaled(p.total, mask)
	if !l.budget.total().allows(l.total.plus(u)) {
		return false
	}
	return p.service == 0 || l.budget.Service.allows(l.services[p.service].plus(u))
}

// add adds the cost of tp in the arms of mask to the totals.
func (l *ledger) add(tp trace.Symbol, mask uint32) {
	p := l.costs.price(tp)
	u := l.costs.scaled(p.total, mask)
	l.total.add(u)
	l.services[p.service] = l.services[p.service].plus(u)
}
