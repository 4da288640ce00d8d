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

// measuredEpochs is how many epochs long what was measured last is taken to be so: agents tell it less often than epochs end.
const measuredEpochs = 3

// heard is what feedback left behind.
type heard struct {
	services map[trace.Symbol][]cct.Tracepoint // by service; 0: announced as a whole
	costs    map[trace.Symbol]measuredCost     // of tracepoints in services
	broken   map[trace.Symbol]trace.Nanos      // until when
	gone     map[trace.Symbol]trace.Nanos      // tracepoints that no agent announces any more, since when
	measured search.Measured
	at       trace.Nanos // when it was measured
	said     []string    // what people decided since the last epoch, in words
}

type measuredCost struct {
	CPU   time.Duration
	Bytes int32
}

func newHeard() heard {
	return heard{
		services: make(map[trace.Symbol][]cct.Tracepoint), costs: make(map[trace.Symbol]measuredCost),
		broken: make(map[trace.Symbol]trace.Nanos), gone: make(map[trace.Symbol]trace.Nanos),
	}
}

// hear takes feedback. It counts from the end of the epoch on.
func (c *Core) hear(f *search.Feedback) {
	if len(f.Catalogues) > 0 {
		for i := range f.Catalogues {
			c.hearCatalogue(&f.Catalogues[i])
		}
		c.announce(f.At)
	}
	if len(f.Costs) > 0 {
		c.hearCosts(f.At, f.Costs)
	}
	for _, b := range f.Unavailable {
		if id := c.table.Symbol(b.ID); b.For > 0 {
			c.heard.broken[id] = f.At.Add(b.For)
		} else {
			delete(c.heard.broken, id)
		}
	}
	if f.Measured != nil {
		c.heard.measured, c.heard.at = *f.Measured, f.At
	}
}

// Announce takes the tracepoints that agents say they could switch on, all of all services.
func (c *Core) Announce(now trace.Nanos, catalogue []cct.Tracepoint) {
	clear(c.heard.services)
	c.heard.services[0] = catalogue
	c.announce(now)
}

func (c *Core) hearCatalogue(from *search.Catalogue) {
	service := c.table.Symbol(from.Service)
	if len(from.Tracepoints) == 0 {
		delete(c.heard.services, service)
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
	c.heard.services[service] = list
}

// operation returns the identity of an operation as spans of it have it.
func (c *Core) operation(service trace.Symbol, name string, kind trace.Kind) trace.Op {
	return c.table.Op(service, c.table.SymbolBytes(trace.NormalName([]byte(name), nil)), kind)
}

// merge makes one catalogue of those of all services, with what was measured.
func (c *Core) merge() {
	c.catalogue = nil
	for _, service := range slices.Sorted(maps.Keys(c.heard.services)) {
		c.catalogue = append(c.catalogue, c.heard.services[service]...)
	}
	for i := range c.catalogue {
		if x, known := c.heard.costs[c.catalogue[i].ID]; known {
			c.catalogue[i].Cost, c.catalogue[i].Bytes = x.CPU, x.Bytes
		}
	}
	c.indexed = cct.NewCatalogue(c.catalogue, c.table)
	c.causes.announce(c.catalogue)
}

// announce has the trees built anew with what there is now, and notes which tracepoints are gone since the last time.
func (c *Core) announce(now trace.Nanos) {
	before := c.catalogue
	c.merge()
	present := make(map[trace.Symbol]bool, len(c.catalogue))
	for i := range c.catalogue {
		present[c.catalogue[i].ID] = true
		delete(c.heard.gone, c.catalogue[i].ID)
	}
	for i := range before {
		if id := before[i].ID; !present[id] {
			c.heard.gone[id] = now
			delete(c.heard.costs, id)
		}
	}
	for _, t := range c.trees {
		t.grown = true
	}
}

func (c *Core) hearCosts(at trace.Nanos, costs []search.Cost) {
	present := make(map[trace.Symbol]bool, len(c.catalogue))
	for i := range c.catalogue {
		present[c.catalogue[i].ID] = true
	}
	for _, x := range costs {
		if id := c.table.Symbol(x.ID); present[id] {
			c.heard.costs[id] = measuredCost{x.CPU, x.Bytes}
		}
	}
	c.announce(at)
}

// unavailable returns the tracepoints that cannot be switched on at time now, ascending.
func (c *Core) unavailable(now trace.Nanos) []trace.Symbol {
	maps.DeleteFunc(c.heard.broken, func(_ trace.Symbol, until trace.Nanos) bool { return until <= now })
	maps.DeleteFunc(c.heard.gone, func(_ trace.Symbol, since trace.Nanos) bool { return now.Sub(since) > cct.MaxAge })
	var list []trace.Symbol
	list = slices.AppendSeq(list, maps.Keys(c.heard.broken))
	list = slices.AppendSeq(list, maps.Keys(c.heard.gone))
	slices.Sort(list)
	return slices.Compact(list)
}

// measuredUsage returns what agents measured of the present plan; zero: nothing that still holds.
func (c *Core) measuredUsage(now trace.Nanos) search.Usage {
	m := &c.heard.measured
	if m.Plan != c.state.Plan.Version || now.Sub(c.heard.at) > measuredEpochs*c.options.Epoch {
		return search.Usage{}
	}
	return search.Usage{Hits: m.Hits, Bytes: m.Bytes, CPU: m.CPU}
}

// said notes what somebody decided about a tracepoint, for the log of decisions.
func (c *Core) said(by, does string, tracepoint trace.Symbol) {
	c.heard.said = append(c.heard.said, cmp.Or(by, "a person")+" "+does+" "+strconv.Quote(c.table.Text(tracepoint)))
}

// logSaid returns what people decided since the last epoch as decisions: whatever becomes of it, the log has who wanted what.
func (c *Core) logSaid(now trace.Nanos) []search.Decision {
	var list []search.Decision
	for _, what := range c.heard.said {
		list = append(list, search.Decision{At: now, Plan: c.state.Plan.Version, Strategy: c.options.Strategy, Budget: c.options.Budget, Reason: what})
	}
	c.heard.said = nil
	return list
}
