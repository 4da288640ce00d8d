package control

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// lastReported is the state last reported to the engine. We compare with it to report only changes.
type lastReported struct {
	services    map[string]string // catalogue hash by service; "" if known since before the start
	began       time.Time         // start time; earlier services keep their catalogues for CatalogueTTL after it
	catalogues  string            // hashes of the complete catalogues at the last comparison; "" to compare again
	costs       map[string]search.Cost
	unavailable map[string]time.Time // by ID: end of the time for which the tracepoint was reported unavailable
	measured    search.Measured
}

func newLastReported(known []string, now time.Time) lastReported {
	t := lastReported{services: make(map[string]string), began: now, costs: make(map[string]search.Cost), unavailable: make(map[string]time.Time)}
	for _, service := range known {
		t.services[service] = ""
	}
	return t
}

// feedback returns the changes since the last report and a function to call once they are recorded, or nil if nothing
// changed. It includes measurements if measured is true.
func (p *Plane) feedback(measured bool) (f *search.Feedback, recorded func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, now := &search.Feedback{}, p.options.Clock()
	after := p.lastReported
	p.dropReplaced(now)
	p.reportCatalogues(f, &after, now)
	if measured {
		p.reportMeasured(f, &after, now)
	}
	if len(f.Catalogues) == 0 && len(f.Costs) == 0 && len(f.Unavailable) == 0 && f.Measured == nil {
		p.lastReported = after
		return nil, nil
	}
	return f, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lastReported = after
	}
}

// dropReplaced drops catalogues without agents: at once if all their services have other catalogues, otherwise after
// CatalogueTTL, because agents may return after an interrupted connection or a restart. The caller holds mu.
func (p *Plane) dropReplaced(now time.Time) {
	alive := make(map[string]bool)
	for _, c := range p.catalogues {
		if c.agents > 0 && c.complete() {
			for service := range c.services {
				alive[service] = true
			}
		}
	}
	for _, c := range p.catalogues {
		if c.agents > 0 {
			continue
		}
		replaced := true
		for service := range c.services {
			replaced = replaced && alive[service]
		}
		if replaced || now.Sub(c.idle) > p.options.CatalogueTTL {
			p.drop(c)
		}
	}
}

// reportCatalogues adds the services whose catalogues changed to f and `after`. The catalogue of a service is the union
// of its agents' catalogues. The caller holds mu.
func (p *Plane) reportCatalogues(f *search.Feedback, after *lastReported, now time.Time) {
	hashes := slices.DeleteFunc(slices.Sorted(maps.Keys(p.catalogues)), func(hash string) bool { return !p.catalogues[hash].complete() })
	settled := now.Sub(p.lastReported.began) > p.options.CatalogueTTL
	catalogues := strings.Join(hashes, " ")
	if settled {
		catalogues += " all"
	}
	if catalogues == after.catalogues {
		return
	}
	after.catalogues = catalogues
	services := make(map[string][]protocol.Tracepoint)
	for _, hash := range hashes {
		for _, t := range p.catalogues[hash].content() {
			services[t.Service] = append(services[t.Service], t)
		}
	}
	after.services = maps.Clone(p.lastReported.services)
	for service, list := range services {
		slices.SortStableFunc(list, func(a, b protocol.Tracepoint) int { return cmp.Compare(a.ID, b.ID) })
		list = unite(list)
		if hash := protocol.HashCatalogue(list); after.services[service] != hash {
			after.services[service] = hash
			f.Catalogues = append(f.Catalogues, search.Catalogue{Service: service, Tracepoints: announced(list)})
		}
	}
	for service, hash := range p.lastReported.services {
		if services[service] == nil && (hash != "" || settled) {
			delete(after.services, service)
			f.Catalogues = append(f.Catalogues, search.Catalogue{Service: service})
		}
	}
	slices.SortFunc(f.Catalogues, func(a, b search.Catalogue) int { return cmp.Compare(a.Service, b.Service) })
	p.retryUnavailable(f, after)
}

// unite removes repeated IDs from list, which must be ascending by ID. If agents report different owners or parents for
// a tracepoint, its owner or parent becomes unknown.
func unite(list []protocol.Tracepoint) []protocol.Tracepoint {
	n := 0
	for i := range list {
		if n == 0 || list[n-1].ID != list[i].ID {
			list[n] = list[i]
			n++
			continue
		}
		last := &list[n-1]
		if last.Owner != list[i].Owner || last.OwnerKind != list[i].OwnerKind {
			last.Owner, last.OwnerKind = "", ""
		}
		if last.Parent != list[i].Parent {
			last.Parent = "" // a JVM that has loaded fewer classes knows fewer callers
		}
	}
	return list[:n]
}

// retryUnavailable re-enables tracepoints marked unavailable in services whose catalogue has changed. The caller holds
// mu.
func (p *Plane) retryUnavailable(f *search.Feedback, after *lastReported) {
	if len(after.unavailable) == 0 {
		return
	}
	after.unavailable = maps.Clone(after.unavailable)
	for i := range f.Catalogues {
		for _, t := range f.Catalogues[i].Tracepoints {
			if _, found := after.unavailable[t.ID]; found {
				delete(after.unavailable, t.ID)
				f.Unavailable = append(f.Unavailable, search.Unavailable{ID: t.ID})
			}
		}
	}
}

var layers = map[protocol.Layer]cct.Layer{protocol.App: cct.App, protocol.Runtime: cct.Runtime, protocol.Kernel: cct.Kernel}

var kinds = map[protocol.Kind]cct.TracepointKind{
	protocol.SpanPoint: cct.SpanPoint, protocol.VariablePoint: cct.VariablePoint, protocol.ProbePoint: cct.ProbePoint,
}

var spanKinds = map[protocol.SpanKind]trace.Kind{
	"": trace.Internal, protocol.Internal: trace.Internal, protocol.Server: trace.Server, protocol.Client: trace.Client,
	protocol.Producer: trace.Producer, protocol.Consumer: trace.Consumer,
}

// announced converts list to the engine's type.
func announced(list []protocol.Tracepoint) []search.Announced {
	all := make([]search.Announced, len(list))
	for i := range list {
		t := &list[i]
		all[i] = search.Announced{
			ID: t.ID, Name: t.Operation, Span: spanKinds[t.SpanKind], Parent: t.Parent, Owner: t.Owner, OwnerSpan: spanKinds[t.OwnerKind],
			Layer: layers[t.Layer], Kind: kinds[t.Kind], Cost: time.Duration(t.CostNanos), Bytes: int32(t.Bytes), Baseline: t.Baseline,
		}
	}
	return all
}

// reportMeasured adds to f and `after` the usage of the plan, the costs that changed, and the tracepoints that most
// agents couldn't enable or for which an agent missed many records. The caller holds mu.
func (p *Plane) reportMeasured(f *search.Feedback, after *lastReported, now time.Time) {
	outcomes, measured := p.outcomes(p.published.Load().plan.Version)
	if measured.Hits > 0 || measured != p.lastReported.measured && p.lastReported.measured.Hits > 0 {
		f.Measured, after.measured = &measured, measured
	}
	after.costs, after.unavailable = maps.Clone(after.costs), maps.Clone(after.unavailable)
	maps.DeleteFunc(after.costs, func(id string, _ search.Cost) bool { return outcomes[id] == nil })
	maps.DeleteFunc(after.unavailable, func(_ string, until time.Time) bool { return !now.Before(until) })
	for _, id := range slices.Sorted(maps.Keys(outcomes)) {
		o := outcomes[id]
		if _, known := after.unavailable[id]; !known && o.unavailable() > 0 {
			after.unavailable[id] = now.Add(o.unavailable())
			f.Unavailable = append(f.Unavailable, search.Unavailable{ID: id, For: o.unavailable()})
		}
		if o.costed < minHits {
			continue
		}
		cost := search.Cost{ID: id, CPU: time.Duration(o.nanos / o.costed), Bytes: int32(o.bytes / o.costed)}
		before, known := after.costs[id]
		if !known || differ(float64(before.CPU), float64(cost.CPU)) || differ(float64(before.Bytes), float64(cost.Bytes)) {
			after.costs[id] = cost
			f.Costs = append(f.Costs, cost)
		}
	}
}

// differ reports whether the costs a and b differ by more than costFactor.
func differ(a, b float64) bool { return math.Max(a, b) > costFactor*math.Min(a, b) }
