package engine

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// measuredEpochs is the number of epochs for which a measurement of agents counts: they report less often than epochs
// end.
const measuredEpochs = 3

// agentFeedback is the state that changes other than settings leave behind: the latest reports of agents, and log
// entries.
type agentFeedback struct {
	services    map[trace.Symbol][]cct.Tracepoint // catalogues by service; 0: all services, from Announce
	costs       map[trace.Symbol]measuredCost     // by tracepoint
	unavailable map[trace.Symbol]trace.Nanos      // tracepoints that agents could not enable, until a time
	removed     map[trace.Symbol]trace.Nanos      // tracepoints that are in no catalogue any more, since a time
	measured    search.Measured
	at          trace.Nanos // of measured
	log         []string    // entries about overrides since the last epoch
}

type measuredCost struct {
	CPU   time.Duration
	Bytes int32
}

func newAgentFeedback() agentFeedback {
	return agentFeedback{
		services: make(map[trace.Symbol][]cct.Tracepoint), costs: make(map[trace.Symbol]measuredCost),
		unavailable: make(map[trace.Symbol]trace.Nanos), removed: make(map[trace.Symbol]trace.Nanos),
	}
}

// applyFeedback applies a report of agents, with effect from the end of the epoch.
func (c *Core) applyFeedback(f *search.Feedback) {
	if len(f.Catalogues) > 0 {
		for i := range f.Catalogues {
			c.setCatalogue(&f.Catalogues[i])
		}
		c.updateCatalogue(f.At)
	}
	if len(f.Costs) > 0 {
		c.setCosts(f.At, f.Costs)
	}
	for _, b := range f.Unavailable {
		if id := c.table.Symbol(b.ID); b.For > 0 {
			c.feedback.unavailable[id] = f.At.Add(b.For)
		} else {
			delete(c.feedback.unavailable, id)
		}
	}
	if f.Measured != nil {
		c.feedback.measured, c.feedback.at = *f.Measured, f.At
	}
}

// Announce replaces the catalogues of all services.
func (c *Core) Announce(now trace.Nanos, catalogue []cct.Tracepoint) {
	clear(c.feedback.services)
	c.feedback.services[0] = catalogue
	c.updateCatalogue(now)
}

// setCatalogue replaces the catalogue of a service.
func (c *Core) setCatalogue(from *search.Catalogue) {
	service := c.table.Symbol(from.Service)
	if len(from.Tracepoints) == 0 {
		delete(c.feedback.services, service)
		return
	}
	list, ops := make([]cct.Tracepoint, len(from.Tracepoints)), make(map[trace.Symbol]trace.Op, len(from.Tracepoints))
	for i := range from.Tracepoints {
		t := &from.Tracepoints[i]
		x := &list[i]
		*x = cct.Tracepoint{
			ID: c.table.Symbol(t.ID), Op: c.operation(service, t.Name, t.Span), Parent: c.table.Symbol(t.Parent),
			Cost: t.Cost, Bytes: t.Bytes, Layer: t.Layer, Kind: t.Kind, Baseline: t.Baseline,
		}
		if t.Owner != "" {
			x.Owner = c.operation(service, t.Owner, t.OwnerSpan)
		}
		ops[x.ID] = x.Op
	}
	for i := range list {
		if x := &list[i]; x.Kind == cct.VariablePoint { // its operation is that of the span it annotates
			x.Op = cmp.Or(ops[x.Parent], x.Owner, x.Op)
		}
	}
	c.feedback.services[service] = list
}

// operation returns the identity that spans of an operation have.
func (c *Core) operation(service trace.Symbol, name string, kind trace.Kind) trace.Op {
	return c.table.Op(service, c.table.SymbolBytes(trace.NormalName([]byte(name), nil)), kind)
}

// mergeCatalogues sets c.catalogue to the catalogues of all services, with measured costs.
func (c *Core) mergeCatalogues() {
	c.catalogue, c.owners = nil, make(map[trace.Symbol]trace.Symbol)
	for _, service := range slices.Sorted(maps.Keys(c.feedback.services)) {
		c.catalogue = append(c.catalogue, c.feedback.services[service]...)
	}
	for i := range c.catalogue {
		t := &c.catalogue[i]
		if x, known := c.feedback.costs[t.ID]; known {
			t.Cost, t.Bytes = x.CPU, x.Bytes
		}
		if t.Kind != cct.ProbePoint {
			c.owners[t.ID] = c.table.Operation(t.Op).Service
		}
	}
	c.indexed = cct.NewCatalogue(c.catalogue, c.table)
	c.causes.announce(c.catalogue)
}

// updateCatalogue merges the catalogues, records the tracepoints that are in none any more, and has the trees rebuilt.
func (c *Core) updateCatalogue(now trace.Nanos) {
	before := c.catalogue
	c.mergeCatalogues()
	present := make(map[trace.Symbol]bool, len(c.catalogue))
	for i := range c.catalogue {
		present[c.catalogue[i].ID] = true
		delete(c.feedback.removed, c.catalogue[i].ID)
	}
	for i := range before {
		if id := before[i].ID; !present[id] {
			c.feedback.removed[id] = now
			delete(c.feedback.costs, id)
		}
	}
	for _, t := range c.trees {
		t.grown = true
	}
}

// setCosts records measured costs of tracepoints that are in a catalogue.
func (c *Core) setCosts(at trace.Nanos, costs []search.Cost) {
	present := make(map[trace.Symbol]bool, len(c.catalogue))
	for i := range c.catalogue {
		present[c.catalogue[i].ID] = true
	}
	for _, x := range costs {
		if id := c.table.Symbol(x.ID); present[id] {
			c.feedback.costs[id] = measuredCost{x.CPU, x.Bytes}
		}
	}
	c.updateCatalogue(at)
}

// returnsSoon is the time for which the search waits for a tracepoint that cannot be enabled.
const returnsSoon = 2 * time.Minute

// unavailable returns the tracepoints that cannot be enabled at time now, ascending, those of them that agents could
// not enable while the plan had them, and those of these that can soon be.
func (c *Core) unavailable(now trace.Nanos) (list, unproven, returning []trace.Symbol) {
	f := &c.feedback
	maps.DeleteFunc(f.unavailable, func(_ trace.Symbol, until trace.Nanos) bool { return until <= now })
	maps.DeleteFunc(f.removed, func(_ trace.Symbol, since trace.Nanos) bool { return now.Sub(since) > cct.MaxAge })
	unproven = slices.Sorted(maps.Keys(f.unavailable))
	list = slices.AppendSeq(slices.Clone(unproven), maps.Keys(f.removed))
	slices.Sort(list)
	for _, tp := range unproven {
		if f.unavailable[tp] <= now.Add(returnsSoon) {
			returning = append(returning, tp)
		}
	}
	return slices.Compact(list), unproven, returning
}

// measuredUsage returns the usage that agents measured under the current plan; zero if there is no recent measurement.
func (c *Core) measuredUsage(now trace.Nanos) search.Usage {
	m := &c.feedback.measured
	if m.Plan != c.state.Plan.Version || now.Sub(c.feedback.at) > measuredEpochs*c.options.Epoch {
		return search.Usage{}
	}
	return search.Usage{Hits: m.Hits, Bytes: m.Bytes, CPU: m.CPU}
}

// logOverride adds an entry to the log of decisions about the override of a tracepoint.
func (c *Core) logOverride(by, verb string, tracepoint trace.Symbol) {
	c.logEntry(by, verb+" "+strconv.Quote(c.table.Text(tracepoint)))
}

// logEntry adds an entry to the log of decisions, about something that someone did.
func (c *Core) logEntry(by, did string) {
	c.feedback.log = append(c.feedback.log, cmp.Or(by, "a person")+" "+did)
}

// takeLogEntries returns the entries of [Core.logEntry] since the last epoch as decisions and removes them.
func (c *Core) takeLogEntries(now trace.Nanos) []search.Decision {
	var list []search.Decision
	for _, entry := range c.feedback.log {
		list = append(list, search.Decision{At: now, Plan: c.state.Plan.Version, Strategy: c.options.Strategy, Budget: c.options.Budget, Reason: entry})
	}
	c.feedback.log = nil
	return list
}
