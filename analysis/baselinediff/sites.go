package baselinediff

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Sites is the history of the sites of a running service: the calls at each, by slices of time. It is the counterpart
// of [Recording], which keeps every call. It is not safe for concurrent use.
//
// The content does not depend on the order in which tallies were merged, unless the bound on sites was reached.
type Sites struct {
	table    *trace.Table
	numbers  map[siteKey]int32
	sites    []site     // by number; the first is unused
	targets  []target   // by number of the site
	called   []trace.Op // by number of the site: the target of its step
	series   []siteSeries
	verdicts []verdict            // by number of the site
	crowds   map[trace.Symbol]int // by service: number of its sites
	judged   map[callee]bool      // operations of the sites
	shapes   int                  // of all sites
	refused  uint64               // calls at sites for which there was no room

	serviceNumbers map[trace.Symbol]int32
	names          []trace.Symbol // by number of the service; the first is unused
	calls          map[servicePair]bool
	instances      instances

	total   cells // all traces, with the durations of their primary roots
	skipped skips
	folded  slice // cells before it cover minutes
	hour    hour  // the first that is not yet in the weeks of the sites

	unpacked cells // scratch

	forgotten slice // skipped cells before it were deleted
	late      bool  // there may be others since then

	screened struct { // the windows that verdicts are about
		length, from slice // from is the latest beginning of one
	}
	// summed is about the sums that comparisons remember, see [pastSum]: the latest beginning of a window, and how
	// often calls, or skipped times, before that changed.
	summed struct {
		to      slice
		changes uint64
	}
	indexed *siteIndex  // nil: not known yet
	memory  *liveMemory // nil: there was no comparison
}

// servicePair is the numbers of a service and of one that it calls.
type servicePair struct{ caller, called int32 }

// target is the callee of a site as its step names it.
type target struct {
	service  int32 // number of the service; 0: none
	op       trace.Op
	external bool // whether only attributes name it
}

// siteSeries is the history of a site.
type siteSeries struct {
	counts // with own times
	shapes []shapeSeries
	week   *week // nil: not yet known
}

// shapeSeries counts the calls of one shape at a site.
type shapeSeries struct {
	shape
	counts
}

// Bounds of a history.
const (
	// MaxSites is the largest number of sites. With all shapes and instances they take less than 100 MB.
	MaxSites = 20_000
	// spareSites is the number of free places below which sites without calls are deleted.
	spareSites = MaxSites / 8
	// serviceSites bounds the sites of a service: one whose operations have IDs in their names must leave room for the
	// others. Calls at further sites count at one more, which is named [trace.Overflow].
	serviceSites = MaxSites / 4
	// siteShapes bounds the shapes of a site: calls of others count as one shape of hash 0.
	siteShapes = 16
	// maxAllShapes bounds the shapes of all sites, besides those of hash 0.
	maxAllShapes = 3 * MaxSites
	// Span is the time that a history covers, without the time that was skipped.
	Span = 2 * time.Hour

	// fineSlices are kept as they are; older ones are joined to minutes.
	fineSlices = 5 * slicesPerMinute
	// longestHistory and ahead bound how far a history reaches: traces beyond them have wrong clocks.
	longestHistory = slice(7 * 24 * time.Hour / Slice)
	ahead          = slicesPerMinute
	// keptSkipped is the time for which skipped slices are kept, in case that they are accepted as normal: enough to
	// judge windows by, and until the end of the hour.
	keptSkipped = 65 * slicesPerMinute
)

// NewSites returns an empty history. The names of tallies must be in table before they are merged; the history adds the
// steps.
func NewSites(table *trace.Table) *Sites {
	return &Sites{
		table: table, numbers: make(map[siteKey]int32), sites: make([]site, 1), targets: make([]target, 1), called: make([]trace.Op, 1), series: make([]siteSeries, 1), verdicts: make([]verdict, 1),
		serviceNumbers: make(map[trace.Symbol]int32), names: make([]trace.Symbol, 1),
		calls: make(map[servicePair]bool), instances: newInstances(), crowds: make(map[trace.Symbol]int),
		judged: make(map[callee]bool),
	}
}

// Len returns the number of sites.
func (h *Sites) Len() int { return len(h.sites) - 1 }

// Operations returns the number of operations at the sites: a suspect has scores for each.
func (h *Sites) Operations() int { return len(h.judged) }

// Refused returns the number of calls at sites for which there was no room.
func (h *Sites) Refused() uint64 { return h.refused }

// Merge adds a tally. Sites are added in the order of their keys, so that the bound does not depend on the order of the
// calls in the tally.
func (h *Sites) Merge(t *Tally) {
	h.instances.merge(t, h.folded)
	numbers := h.numbersOf(t)
	for _, at := range slices.Sorted(maps.Keys(t.slices)) {
		s := t.slices[at]
		if at < h.folded {
			at = at.minute()
		}
		h.late = h.late || at < h.forgotten
		if at < h.summed.to {
			h.summed.changes++
		}
		h.total.add(cell{slice: at, calls: uint32(s.requests), nanos: s.duration})
		for k := range s.cells {
			c := &s.cells[k]
			switch number := numbers[k]; {
			case c.calls == 0:
			case number == overflow:
				h.refused += c.calls
			default:
				h.verdicts[number] = verdict{}
				h.merge(&h.series[number], at, c)
			}
		}
	}
}

// numbersOf returns the numbers of the sites of a tally.
func (h *Sites) numbersOf(t *Tally) []int32 {
	numbers := make([]int32, len(t.sites))
	var added []int32
	for i := range t.sites {
		number, known := h.numbers[t.sites[i].siteKey]
		if !known {
			added = append(added, int32(i))
		}
		numbers[i] = number
	}
	slices.SortFunc(added, func(a, b int32) int { return t.sites[a].compare(t.sites[b].siteKey) })
	for _, i := range added {
		numbers[i] = h.admit(&t.sites[i])
	}
	return numbers
}

// admit returns the number of a site or, if its service has too many, of the one that stands for all further ones;
// overflow if there is no room. Calls that other services answer are not counted there a second time.
func (h *Sites) admit(s *tallySite) int32 {
	if h.crowds[s.service] < serviceSites {
		return h.number(s)
	}
	if s.border {
		return overflow
	}
	other := h.table.Op(s.service, h.table.Symbol(trace.Overflow), trace.Internal)
	return h.number(&tallySite{siteKey: siteKey{op: other}, base: other, service: s.service})
}

// number returns the number of a site; overflow if there is no room.
func (h *Sites) number(s *tallySite) int32 {
	if i, ok := h.numbers[s.siteKey]; ok {
		return i
	}
	if len(h.sites) > MaxSites {
		return overflow
	}
	i := int32(len(h.sites))
	h.numbers[s.siteKey] = i
	h.table.Step(s.base, s.target)
	h.sites = append(h.sites, site{siteKey: s.siteKey, base: s.base, service: h.service(s.service), client: s.client})
	target := h.targetOf(s)
	h.targets, h.called = append(h.targets, target), append(h.called, s.target)
	if target.service != 0 {
		h.calls[servicePair{h.sites[i].service, target.service}] = true
	}
	h.series, h.verdicts = append(h.series, siteSeries{}), append(h.verdicts, verdict{})
	h.crowds[s.service]++
	if !s.border {
		h.judged[callee{h.sites[i].service, s.op}] = true
	}
	return i
}

func (h *Sites) targetOf(s *tallySite) target {
	called := s.target
	if s.border {
		called = s.op
	}
	if !s.client || called == 0 {
		return target{}
	}
	o := h.table.Operation(called)
	if o.Service == 0 {
		return target{}
	}
	return target{h.service(o.Service), called, o.Kind == trace.External}
}

// service returns the number of a service, from 1.
func (h *Sites) service(name trace.Symbol) int32 {
	if i, ok := h.serviceNumbers[name]; ok {
		return i
	}
	i := int32(len(h.names))
	h.serviceNumbers[name] = i
	h.names = append(h.names, name)
	return i
}

// merge adds the calls of a site in a slice. It reorders their shapes.
func (h *Sites) merge(into *siteSeries, at slice, c *tallyCell) {
	into.add(cell{at, uint32(c.calls), c.nanos, c.logs})
	slices.SortFunc(c.shapes, func(a, b shapeCount) int { return a.shape.compare(b.shape) })
	for _, x := range c.shapes {
		h.shape(into, x.shape).add(cell{slice: at, calls: uint32(x.calls)})
	}
}

// shape returns the series of a shape, or of the other shapes if there are too many.
func (h *Sites) shape(of *siteSeries, x shape) *shapeSeries {
	for i := range of.shapes {
		if of.shapes[i].shape == x {
			return &of.shapes[i]
		}
	}
	if (len(of.shapes) >= siteShapes || h.shapes >= maxAllShapes) && x.hash != 0 {
		x.hash = 0
		return h.shape(of, x)
	}
	h.shapes++
	if len(of.shapes) == cap(of.shapes) { // grow by one: there are many sites, and their shapes soon stay the same
		of.shapes = append(make([]shapeSeries, 0, len(of.shapes)+1), of.shapes...)
	}
	of.shapes = append(of.shapes, shapeSeries{shape: x})
	return &of.shapes[len(of.shapes)-1]
}

// Accept takes the behaviour of a service in an interval as normal: the interval is no longer skipped, and the calls of
// the service and those to it before the interval are deleted. It takes time linear in the number of cells.
func (h *Sites) Accept(service trace.Symbol, since Interval) {
	h.unskip(sliceRange{sliceOf(since.From).minute(), sliceOf(since.To) + 1})
	number, known := h.serviceNumbers[service]
	if !known {
		return
	}
	callees := (&liveComparison{h: h, liveMemory: &liveMemory{}}).graph().callee
	for i := 1; i < len(h.sites); i++ {
		if h.sites[i].service == number || callees[i].service == number {
			h.verdicts[i], h.series[i].week = verdict{}, nil
			h.age(&h.series[i], &aging{keep: sliceRange{sliceOf(since.From), maxSlice}})
		}
	}
	h.instances.forget(service, sliceOf(since.From))
}

// age applies a to a site. Shapes without cells make room for others. It reports whether cells were deleted or joined.
func (h *Sites) age(s *siteSeries, a *aging) (changed bool) {
	changed = s.age(a)
	empty := false
	for i := range s.shapes {
		changed = s.shapes[i].age(a) || changed
		empty = empty || s.shapes[i].empty()
	}
	if empty {
		before := len(s.shapes)
		s.shapes = slices.DeleteFunc(s.shapes, func(x shapeSeries) bool { return x.empty() })
		h.shapes -= before - len(s.shapes)
	}
	return changed
}

// Age joins slices to minutes and deletes those that the history no longer covers at time now, and those of traces with
// wrong clocks.
func (h *Sites) Age(now trace.Nanos) {
	from, to := h.folded, (sliceOf(now) - fineSlices).minute()
	if to <= from {
		return
	}
	h.folded = to
	h.summed.changes++
	h.learnHours(sliceOf(now))
	plausible := sliceRange{sliceOf(now) - longestHistory, sliceOf(now) + ahead}
	h.total = h.total.within(plausible).fold(from, to)
	coverages := h.coverages(sliceOf(now) - keptSkipped)
	a := &aging{fold: sliceRange{from, to}}
	of := func(service int32) *aging {
		c := &coverages[service]
		a.keep, a.skips, a.forgotten = sliceRange{max(c.oldest, plausible.from), plausible.to}, len(c.skipped) > 0, c.forgotten
		return a
	}
	h.total = h.total.within(of(0).keep)
	for i := range h.series {
		if h.age(&h.series[i], of(h.sites[i].service)) {
			h.verdicts[i] = verdict{}
		}
	}
	idle := sliceOf(now) - slice(Span/Slice)
	h.instances.age(func(service trace.Symbol) *aging { return of(h.serviceNumbers[service]) }, idle)
	if scarce := h.Len() > MaxSites-spareSites; scarce || h.crowded() {
		h.evict(idle, scarce)
	}
	h.skipped = slices.DeleteFunc(h.skipped, func(s skip) bool { return s.to <= coverages[0].oldest })
}

// crowded reports whether a service has too many sites.
func (h *Sites) crowded() bool {
	for _, n := range h.crowds {
		if n >= serviceSites {
			return true
		}
	}
	return false
}

// evict deletes the sites without calls since a slice, of all services or only of those that have too many, and the
// services that no other site names. It renumbers the others.
func (h *Sites) evict(since slice, all bool) {
	old := *h
	h.numbers, h.serviceNumbers = make(map[siteKey]int32), make(map[trace.Symbol]int32)
	h.sites, h.targets, h.called, h.series = make([]site, 1), make([]target, 1), make([]trace.Op, 1), make([]siteSeries, 1)
	h.verdicts, h.indexed = make([]verdict, 1), nil
	h.names, h.calls, h.crowds, h.judged = make([]trace.Symbol, 1), make(map[servicePair]bool), make(map[trace.Symbol]int), make(map[callee]bool)
	for i := 1; i < len(old.sites); i++ {
		s := &old.sites[i]
		if old.series[i].last() < since && (all || old.crowds[old.names[s.service]] >= serviceSites) {
			h.shapes -= len(old.series[i].shapes)
			continue
		}
		h.series[h.number(&tallySite{s.siteKey, s.base, old.called[i], old.names[s.service], s.client})] = old.series[i]
	}
}

// Requests returns the number of traces that began in an interval.
func (h *Sites) Requests(i Interval) uint64 {
	return h.total.within(sliceRange{sliceOf(i.From), sliceOf(i.To)}).calls()
}

// Latest returns the end of the latest slice with requests, at most now; 0 if there is none.
func (h *Sites) Latest(now trace.Nanos) trace.Nanos {
	cells := h.total.within(sliceRange{0, sliceOf(now) + 1})
	if len(cells) == 0 {
		return 0
	}
	return min(now, trace.Nanos(cells[len(cells)-1].slice+1)*trace.Nanos(Slice))
}

// Covered returns the time until now in which traces began at least every two minutes, in whole minutes and without its
// first one: they may have begun at its end.
func (h *Sites) Covered(now trace.Nanos) time.Duration {
	return time.Duration(max(0, sliceOf(now).minute()-h.firstMinute(now)-slicesPerMinute)) * Slice
}

// CoveredSince returns the beginning of the first minute of the time until now in which traces began at least every two
// minutes.
func (h *Sites) CoveredSince(now trace.Nanos) trace.Nanos {
	return trace.Nanos(h.firstMinute(now)) * trace.Nanos(Slice)
}

func (h *Sites) firstMinute(now trace.Nanos) slice {
	current := sliceOf(now).minute()
	first := current
	for _, c := range slices.Backward(h.total.within(sliceRange{0, current})) {
		if c.slice.minute() < first-2*slicesPerMinute {
			break
		}
		first = c.slice.minute()
	}
	return first
}

// Services returns the number of services.
func (h *Sites) Services() int { return len(h.names) - 1 }

// Adjacent reports whether one of two services calls the other.
func (h *Sites) Adjacent(a, b trace.Symbol) bool {
	i, k := h.serviceNumbers[a], h.serviceNumbers[b]
	return h.calls[servicePair{i, k}] || h.calls[servicePair{k, i}]
}

// Minutes returns the number of minutes before an instant in which traces began.
func (h *Sites) Minutes(before trace.Nanos) int {
	n, last := 0, slice(-1)
	for _, c := range h.total.within(sliceRange{0, sliceOf(before)}) {
		if m := c.slice.minute(); m != last {
			n, last = n+1, m
		}
	}
	return n
}

// Related reports whether two services call each other, have common callers or callees, or are connected by further
// such calls.
func (h *Sites) Related(a, b trace.Symbol) bool {
	component := make([]int32, len(h.names)) // by number of the service: a service of the same component; a tree
	for i := range component {
		component[i] = int32(i)
	}
	find := func(i int32) int32 {
		for component[i] != i {
			component[i] = component[component[i]]
			i = component[i]
		}
		return i
	}
	for pair := range h.calls {
		component[find(pair.caller)] = find(pair.called)
	}
	return find(h.serviceNumbers[a]) == find(h.serviceNumbers[b])
}

// resolve maps each service to itself or, if it emits no spans and its name is the address of one that does, to that
// one: cart in cart.default.svc:7070. opaque tells which services emit no spans.
func (h *Sites) resolve() (service []int32, opaque []bool) {
	service, opaque = make([]int32, len(h.names)), make([]bool, len(h.names))
	for i := range h.names {
		service[i], opaque[i] = int32(i), true
	}
	for i := 1; i < len(h.sites); i++ {
		opaque[h.sites[i].service] = false
	}
	for i, name := range h.names {
		if !opaque[i] {
			continue
		}
		text := h.table.Text(name)
		if end := strings.IndexAny(text, ".:"); end > 0 {
			if k, ok := h.serviceNumbers[trace.SymbolOf([]byte(text[:end]))]; ok && !opaque[k] {
				service[i] = k
			}
		}
	}
	return service, opaque
}
