package history

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// RandomCalls makes the calls of a random application. Its sites have very different numbers of calls. Some are
// borders, some have no known target, and some appear late. Now and then a site becomes slow or changes its shapes.
type RandomCalls struct {
	*rand.Rand
	Table    *trace.Table
	Services []trace.Symbol
	sites    []randomSite
}

type randomSite struct {
	tallySite
	calls   float64 // per epoch
	nanos   float64
	shapes  []shapeCount
	slow    float64
	changed bool
	inner   bool // whether the service has inner spans, starting at some time
}

func NewRandomCalls(seed uint64) *RandomCalls {
	c := &RandomCalls{Rand: rand.New(rand.NewPCG(seed, 1)), Table: &trace.Table{}}
	for i := range 7 {
		c.Services = append(c.Services, c.Table.Symbol(fmt.Sprintf("s%d", i)))
	}
	for range 40 {
		c.Add()
	}
	return c
}

// Add adds a site. Its caller may be any other step.
func (c *RandomCalls) Add() {
	service := c.Services[c.IntN(len(c.Services))]
	kind := []trace.Kind{trace.Server, trace.Client, trace.Internal}[c.IntN(3)]
	op := c.Table.Op(service, c.Table.Symbol(fmt.Sprintf("op%d", c.IntN(12))), kind)
	s := tallySite{tallyKey: tallyKey{SiteKey: SiteKey{Op: op}}, base: op, service: service}
	if k := c.IntN(len(c.sites) + 1); k < len(c.sites) {
		s.Parent = c.sites[k].Op
	}
	s.client = c.Table.Operation(op).Kind == trace.Client
	if s.client && c.IntN(3) > 0 {
		kind := []trace.Kind{trace.Server, trace.External}[c.IntN(2)]
		s.target = c.Table.Op(c.Services[c.IntN(len(c.Services))],
			c.Table.Symbol(fmt.Sprintf("op%d", c.IntN(12))), kind)
		s.Op = op.To(s.target)
	}
	if s.Parent != 0 && c.IntN(6) == 0 {
		s.Border, s.client, s.target, s.Op = true, true, 0, op
		s.service = c.Services[c.IntN(len(c.Services))]
	}
	if slices.ContainsFunc(c.sites, func(x randomSite) bool { return x.SiteKey == s.SiteKey }) {
		return
	}
	x := randomSite{
		tallySite: s,
		calls:     0.05 * float64(int(1)<<c.IntN(9)),
		nanos:     1e5 * (1 + 9*c.Float64()),
		slow:      1,
		inner:     kind == trace.Server && !s.Border,
	}
	if !s.Border {
		for k := range 1 + c.IntN(3) {
			x.shapes = append(x.shapes,
				shapeCount{Shape{uint64(1 + c.IntN(3) + 3*k), c.IntN(4) == 0, c.IntN(4) > 0}, 0})
		}
	}
	c.sites = append(c.sites, x)
}

// Tally returns the calls of the epoch that ends at a slice. A few of them arrive late.
func (c *RandomCalls) Tally(end Slice) *Tally {
	t := NewTally()
	for i := range c.sites {
		s := &c.sites[i]
		switch c.IntN(600) {
		case 0:
			s.slow = 1 + 2*c.Float64()
		case 1:
			s.changed = true
		case 2, 3, 4, 5, 6, 7:
			s.slow, s.changed = 1, false
		}
		n := int(s.calls)
		if c.Float64() < s.calls-float64(n) {
			n++
		}
		number := t.add(s.tallySite)
		for range n {
			at := end - 1
			if c.IntN(20) == 0 {
				at -= Slice(c.IntN(4))
			}
			if c.IntN(3000) == 0 {
				at -= Slice(c.IntN(400))
			}
			into := t.slice(at)
			if len(into.requests) == 0 || c.IntN(4) == 0 {
				into.entry(entryKey{root: 1}).add(spent{nanos: 2e6})
			}
			cell := into.cell(number)
			own := timeUnit * int64(s.nanos*s.slow*c.ExpFloat64()/timeUnit)
			times, local := spent{nanos: own}, spent{nanos: 3 * own}
			if c.IntN(8) == 0 {
				times, local = spent{beside: own}, spent{beside: 3 * own}
			}
			cell.add(times)
			if s.inner && end%1000 > 300 {
				cell.addLocal(times, local)
			}
			if len(s.shapes) > 0 {
				k := min(c.IntN(len(s.shapes)), c.IntN(len(s.shapes)))
				if s.changed {
					k = len(s.shapes) - 1
				}
				if c.IntN(2000) == 0 {
					cell.count(Shape{uint64(100 + c.IntN(20)), false, true}, 1)
				} else {
					cell.count(s.shapes[k].Shape, 1)
				}
			}
		}
	}
	return t
}

// KnowLong makes a history know most of its sites for a long time.
func (c *RandomCalls) KnowLong(h *Sites) {
	for i := range h.series {
		if h.sites[i].Op%3 > 0 && h.series[i].Week == nil {
			h.series[i].Week = &Week{}
		}
	}
}

// Forget makes comparisons judge all sites again.
func Forget(h *Sites) { h.Changes.all = h.Changes.next() }
