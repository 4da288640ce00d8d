package control

import (
	"cmp"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// lastReported is the state last reported to the engine. We compare the current state to it and report only changes.
type lastReported struct {
	services    map[string]uint64 // hash of the catalogue by service; 0 if the service was known before the start
	began       time.Time         // start time; earlier services keep their catalogues for CatalogueTTL after it
	catalogues  string            // hashes of the complete catalogues at the last comparison; "" to compare again
	costs       map[string]search.Cost
	unavailable map[string]time.Time // by ID: end of the time for which the tracepoint was reported unavailable
	measured    search.Measured
}

func newLastReported(known []string, now time.Time) lastReported {
	t := lastReported{
		services:    make(map[string]uint64),
		began:       now,
		costs:       make(map[string]search.Cost),
		unavailable: make(map[string]time.Time),
	}
	for _, service := range known {
		t.services[service] = 0
	}
	return t
}

// feedback returns the changes since the last report and a function to call once they are recorded. Both are nil if
// nothing has changed. The changes include measurements if measured is true.
func (p *Plane) feedback(measured bool) (f *search.Feedback, recorded func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, now := &search.Feedback{}, p.options.Clock()
	after := p.lastReported
	p.catalogues.dropReplaced(now, p.options.CatalogueTTL)
	after.reportCatalogues(f, &p.catalogues, now.Sub(after.began) > p.options.CatalogueTTL)
	if measured {
		outcomes, total := p.agents.sums(p.published.Load().plan.Version, now)
		after.reportMeasured(f, outcomes, total, now)
	}
	if measured {
		f.Stacks = takeStacks(p.stacks)
	}
	if len(f.Catalogues) == 0 && len(f.Costs) == 0 && len(f.Unavailable) == 0 && f.Measured == nil &&
		len(f.Stacks) == 0 {
		p.lastReported = after
		return nil, nil
	}
	if measured { // if f can't be recorded, newer stacks will do
		p.stacks = make(map[stackKey]*stackTimes)
	}
	return f, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lastReported = after
	}
}

// reportCatalogues adds to f and t the services whose catalogues have changed. The catalogue of a service is the union
// of its agents' catalogues. settled means that agents have had time to register since the start.
func (t *lastReported) reportCatalogues(f *search.Feedback, known *catalogues, settled bool) {
	complete := known.complete()
	var hashes strings.Builder
	for _, c := range complete {
		hashes.WriteString(c.Hash + " ")
	}
	if settled {
		hashes.WriteString("all")
	}
	if hashes.String() == t.catalogues {
		return
	}
	t.catalogues = hashes.String()
	services := make(map[string][]search.Announced)
	for _, c := range complete {
		for _, x := range c.content() {
			services[x.service] = append(services[x.service], x.Announced)
		}
	}
	before := t.services
	t.services = maps.Clone(before)
	for service, list := range services {
		sorting.SliceStable(list, func(a, b search.Announced) int { return cmp.Compare(a.ID, b.ID) })
		list = unite(list)
		if hash := hashOf(list); before[service] != hash {
			t.services[service] = hash
			f.Catalogues = append(f.Catalogues, search.Catalogue{Service: service, Tracepoints: list})
		}
	}
	for service, hash := range before {
		if services[service] == nil && (hash != 0 || settled) {
			delete(t.services, service)
			f.Catalogues = append(f.Catalogues, search.Catalogue{Service: service})
		}
	}
	sorting.Slice(f.Catalogues, func(a, b search.Catalogue) int { return cmp.Compare(a.Service, b.Service) })
	t.retryUnavailable(f)
}

// unite removes repeated IDs from list, which must be ascending by ID. If agents report different owners or parents for
// a tracepoint, its owner or parent becomes unknown.
func unite(list []search.Announced) []search.Announced {
	n := 0
	for i := range list {
		if n == 0 || list[n-1].ID != list[i].ID {
			list[n] = list[i]
			n++
			continue
		}
		last := &list[n-1]
		if last.Owner != list[i].Owner || last.OwnerSpan != list[i].OwnerSpan {
			last.Owner, last.OwnerSpan = "", trace.Internal
		}
		if last.Parent != list[i].Parent {
			last.Parent = "" // a JVM that has loaded fewer classes knows fewer callers
		}
	}
	return list[:n]
}

// hashSeed is random, because hashes do not survive a restart.
var hashSeed = maphash.MakeSeed()

// hashOf returns a nonzero hash of list.
func hashOf(list []search.Announced) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	for i := range list {
		maphash.WriteComparable(&h, list[i])
	}
	return max(1, h.Sum64())
}

// retryUnavailable re-enables tracepoints marked unavailable in services whose catalogue has changed.
func (t *lastReported) retryUnavailable(f *search.Feedback) {
	if len(t.unavailable) == 0 {
		return
	}
	t.unavailable = maps.Clone(t.unavailable)
	for i := range f.Catalogues {
		for _, x := range f.Catalogues[i].Tracepoints {
			if _, found := t.unavailable[x.ID]; found {
				delete(t.unavailable, x.ID)
				f.Unavailable = append(f.Unavailable, search.Unavailable{ID: x.ID})
			}
		}
	}
}

var layers = map[protocol.Layer]cct.Layer{
	protocol.App: cct.App, protocol.Runtime: cct.Runtime, protocol.Kernel: cct.Kernel,
}

var kinds = map[protocol.Kind]cct.TracepointKind{
	protocol.SpanPoint: cct.SpanPoint, protocol.VariablePoint: cct.VariablePoint, protocol.ProbePoint: cct.ProbePoint,
}

var spanKinds = map[protocol.SpanKind]trace.Kind{
	"": trace.Internal, protocol.Internal: trace.Internal, protocol.Server: trace.Server, protocol.Client: trace.Client,
	protocol.Producer: trace.Producer, protocol.Consumer: trace.Consumer,
}

// announced converts t to the engine's type.
func announced(t *protocol.Tracepoint) search.Announced {
	return search.Announced{
		ID:        t.ID,
		Name:      t.Operation,
		Parent:    t.Parent,
		Owner:     t.Owner,
		Cost:      time.Duration(t.CostNanos),
		Bytes:     int32(t.Bytes),
		Span:      spanKinds[t.SpanKind],
		OwnerSpan: spanKinds[t.OwnerKind],
		Layer:     layers[t.Layer],
		Kind:      kinds[t.Kind],
		Baseline:  t.Baseline,
	}
}

// reportMeasured adds to f and t the usage of the plan, the costs that changed, and the tracepoints that most agents
// couldn't enable or for which an agent missed many records.
func (t *lastReported) reportMeasured(
	f *search.Feedback, outcomes map[string]*outcome, measured search.Measured, now time.Time,
) {
	if measured.Hits > 0 || measured != t.measured && t.measured.Hits > 0 {
		f.Measured, t.measured = &measured, measured
	}
	t.costs, t.unavailable = maps.Clone(t.costs), maps.Clone(t.unavailable)
	maps.DeleteFunc(t.costs, func(id string, _ search.Cost) bool { return outcomes[id] == nil })
	maps.DeleteFunc(t.unavailable, func(_ string, until time.Time) bool { return !now.Before(until) })
	for _, id := range slices.Sorted(maps.Keys(outcomes)) {
		o := outcomes[id]
		if _, known := t.unavailable[id]; !known && o.unavailable() > 0 {
			t.unavailable[id] = now.Add(o.unavailable())
			f.Unavailable = append(f.Unavailable, search.Unavailable{ID: id, For: o.unavailable()})
		}
		if o.costed < minHits {
			continue
		}
		cost := search.Cost{ID: id, CPU: time.Duration(o.nanos / o.costed), Bytes: int32(o.bytes / o.costed)}
		before, known := t.costs[id]
		changed := differ(float64(before.CPU), float64(cost.CPU)) || differ(float64(before.Bytes), float64(cost.Bytes))
		if !known || changed {
			t.costs[id] = cost
			f.Costs = append(f.Costs, cost)
		}
	}
}

// differ reports whether the larger of the costs a and b is more than costFactor times the smaller.
func differ(a, b float64) bool { return math.Max(a, b) > costFactor*math.Min(a, b) }
