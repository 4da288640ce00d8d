package compare

import (
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/trace"
)

// SharedPlace is a host, a node or a zone that is slow or fails: the calls of several services cost clearly more at
// their instances there than at their other instances.
type SharedPlace struct {
	Key, Value trace.Symbol // of the attribute that names it
	Services   []ServicePart
	Part       float64 // part (0–1) of the cost of these services that their instances in it carry
}

// ServicePart is the share that a service's instances in one place have in its additional cost.
type ServicePart struct {
	Service trace.Symbol
	InstancePart
}

// Has reports whether the place slows down a service.
func (p *SharedPlace) Has(service trace.Symbol) bool {
	return slices.ContainsFunc(p.Services, func(s ServicePart) bool { return s.Service == service })
}

// leastShared is the minimum number of services that must be slow in a place. A single one shows only a slow instance.
const leastShared = 2

// Shared returns the place where the largest number of suspects is slow, provided that it accounts for at least half of
// their cost. The result has no services if no two suspects share a place. c is the comparison of the window.
//
// Shared judges the calls of all services in a place together, because each service may have too few calls to
// distinguish its instances.
func (m *Comparer) Shared(window history.Interval, c *Comparison, suspects []*Suspect) (best SharedPlace) {
	var order []*placeCost
	found := make(map[history.InstanceKey]*placeCost)
	for _, s := range suspects {
		x := m.instancesOf(window, c, s)
		for _, key := range history.PlaceKeys {
			costs, total := x.costs(m.Instances.Of(s.Service, key))
			if len(costs) > 1 && (total <= 0 || total < x.least) {
				continue
			}
			for i := range costs {
				k := costs[i].InstanceKey
				if k.Service = 0; k.Value == 0 { // any service
					continue
				}
				if found[k] == nil {
					found[k] = &placeCost{key: k}
					order = append(order, found[k])
				}
				found[k].add(&x, s.Service, costs, i, total)
			}
		}
	}
	for _, p := range order {
		if part := p.part(); len(p.services) > len(best.Services) && p.standsOut() && part >= leastVisible {
			best = SharedPlace{Key: p.key.Key, Value: p.key.Value, Services: p.services, Part: part}
		}
	}
	if len(best.Services) < leastShared {
		return SharedPlace{}
	}
	at := found[history.InstanceKey{Key: best.Key, Value: best.Value}]
	best.Services = append(best.Services, at.only...)
	return best
}

// placeCost compares the calls of services in a place with their calls elsewhere.
type placeCost struct {
	key      history.InstanceKey
	services []ServicePart // slow there, and not elsewhere
	only     []ServicePart // only there: they prove nothing, but have the same cause
	in, all  float64       // cost of the services, in the place and everywhere
	whole    contrast
	thirds   [history.SteadyParts]contrast
}

// contrast compares the cost of a call in a place with the cost of a call elsewhere, for several services at once.
// Services are weighted like the strata of the Mantel-Haenszel estimator.
type contrast struct{ in, out, calls float64 }

// contrastOf returns the contrast of one service, given its calls in the place and elsewhere and their costs.
func contrastOf(in, out usage, costIn, costOut float64) contrast {
	all := in.calls + out.calls
	if all == 0 {
		return contrast{}
	}
	return contrast{costIn * out.calls / all, costOut * in.calls / all, in.calls * out.calls / all}
}

// add adds the contrast of a service.
func (c *contrast) add(x contrast) {
	c.in += x.in
	c.out += x.out
	c.calls += x.calls
}

// clear reports whether calls in the place cost clearly more.
func (c *contrast) clear() bool {
	return c.calls >= history.MinHistory/2 && c.in > 0 && c.in >= clearlyMore*c.out
}

// add adds service, a suspect. costs[i] is the cost in the place, and total the cost of all values.
func (p *placeCost) add(x *instanceComparison, service trace.Symbol, costs []instanceCost, i int, total float64) {
	sum := func(of func(*instanceCost) *usage) contrast {
		var in, out usage
		costIn, costOut := 0.0, 0.0
		for k := range costs {
			u := of(&costs[k])
			cost := x.excess(&costs[k], u) * u.calls
			if k == i {
				in.add(*u)
				costIn += cost
			} else {
				out.add(*u)
				costOut += cost
			}
		}
		return contrastOf(in, out, costIn, costOut)
	}
	own := sum(inWhole)
	p.whole.add(own)
	for k := range p.thirds {
		p.thirds[k].add(sum(inThird(k)))
	}
	v := &costs[i]
	p.in, p.all = p.in+v.cost, p.all+total
	part := ServicePart{service, InstancePart{v.Key, v.Value, uint64(v.whole.calls), 1, len(costs)}}
	switch {
	case len(costs) == 1: // whatever the cost, because it depends on which operations are called
		p.only = append(p.only, part)
	case own.in > 0 && own.in >= clearlyMore*own.out && v.cost >= leastVisible*total:
		part.Part = v.cost / total
		p.services = append(p.services, part)
	}
}

// part returns the share (0–1) that the place has in the cost of the services.
func (p *placeCost) part() float64 { return p.in / max(p.all, 1e-9) }

// standsOut reports whether calls in the place cost clearly more, in the whole window and in each third of it.
func (p *placeCost) standsOut() bool {
	for k := range p.thirds {
		if !p.thirds[k].clear() {
			return false
		}
	}
	return p.whole.clear()
}
