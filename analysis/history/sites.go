// Package history counts the calls of a running service. A [Tally] counts calls of closed traces by [Site] and [Slice]
// of time. [Sites] joins tallies, and keeps two hours of them in few bytes: calls, own times and shapes of each site
// ([Series]), by instance, host, zone and version ([Instance]), and by hour of the last week ([Week]). Sites ages its
// content, skips times of unhealthy services ([Sites.Skip]), and saves it. It answers questions about the calls
// themselves, such as their rates and errors ([Sites.Uses]). Package compare judges them.
//
// The package is pure, like package analysis, and uses critical paths only.
package history

import (
	"bytes"
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/internal/scratch"
	"github.com/sibyl-trace/sibyl/trace"
)

// Sites is the history of the sites of a running service: the calls at each, by slices of time. Its counterpart
// compare.Recording keeps every call. Sites is not safe for concurrent use.
//
// The content does not depend on the order of the tallies, unless the limit on sites was reached.
type Sites struct {
	table   *trace.Table
	numbers map[SiteKey]int32
	sites   []Site     // by number; the first is unused
	targets []target   // by number of the site
	called  []trace.Op // by number of the site: the target of its step
	series  []Series
	crowds  map[trace.Symbol]int // by service: number of its sites
	judged  map[Callee]bool      // operations at the sites
	shapes  int                  // of all sites
	refused uint64               // calls at sites without room

	serviceNumbers map[trace.Symbol]int32
	names          []trace.Symbol // by number of the service; the first is unused
	calls          map[servicePair]bool
	instances      instances
	addresses      addresses
	answerers      *answerers // nil if not yet known
	messages       messages

	entries  map[entryKey]*entry
	total    Cells   // the requests of all entries except the long ones, with their durations
	longFrom float64 // see [LongFrom]; 0 if not yet known
	skipped  skips
	folded   Slice // cells before it cover minutes
	hour     Hour  // the first hour that is not yet in the weeks of the sites

	unpacked Cells // scratch

	forgotten Slice // skipped cells before it were deleted
	late      bool  // there may be skipped cells before it again

	compared Slice // latest start of a window that was compared
	// changes counts the changes of the history. The others are values of it: after the last change of all sites, after
	// the last change of calls or skipped times before compared, and after sites were renumbered.
	changes, allChanged, pastChanged, renumbered uint64
}

// servicePair holds the numbers of a service and of a service that it calls.
type servicePair struct{ caller, called int32 }

// target is the callee of a site, as named by its step.
type target struct {
	service  int32 // number of the service, or 0
	op       trace.Op
	external bool // whether only attributes name it
	direct   bool // whether it has answered calls itself, not only behind a hop without spans

	settled, settledDirect bool // whether the site, and the value of direct, were known at the end of the last epoch
}

// Series is the history of a site.
type Series struct {
	Times // own times
	// Local holds local times: own times including all INTERNAL spans inside the same call of the service. They don't
	// depend on the number of these spans. Local is nil without such spans, because local times then equal own times.
	Local  *Times
	Shapes []ShapeSeries
	Week   *Week // nil if not yet known

	requests uint64 // calls of the last hours; each hour counts half as much as the next one
	within   int64  // logarithms of the durations of the requests with these calls

	changed uint64 // value of [Sites.changes] after the last change
}

// Times counts calls with their times.
type Times struct {
	Counts
	past pastSum // last result of [Sites.Before]
}

// LocalTimes returns the local times.
func (s *Series) LocalTimes() *Times {
	if s.Local != nil {
		return s.Local
	}
	return &s.Times
}

// addTimes adds calls with their own times. inner holds the additional times and logarithms of local times.
func (s *Series) addTimes(x, inner Cell) {
	if s.Local == nil && inner != (Cell{}) {
		s.Local = &Times{Counts: s.clone()}
	}
	s.add(x)
	if s.Local != nil {
		x.Merge(&inner)
		s.Local.add(x)
	}
}

// ShapeSeries counts the calls of one shape at a site.
type ShapeSeries struct {
	Shape
	Counts
}

// Limits on a history.
const (
	// MaxSites is the maximum number of sites. They take less than 100 MB with all shapes and instances.
	MaxSites = 20_000
	// spareSites is the number of free places that we try to keep, by deleting sites without calls.
	spareSites = MaxSites / 8
	// serviceSites bounds the sites of a service, so that a service with IDs in the names of its operations leaves room
	// for the others. Calls at further sites count at one more site, named [trace.Overflow].
	serviceSites = MaxSites / 4
	// SiteShapes bounds the shapes of a site. Calls of other shapes count as one shape of hash 0.
	SiteShapes = 16
	// maxAllShapes bounds the shapes of all sites, except for hash 0.
	maxAllShapes = 3 * MaxSites
	// Span is the time that a history covers, not counting skipped times.
	Span = 2 * time.Hour

	// fineSlices is the number of slices that are kept as they are. Older ones are joined to minutes.
	fineSlices = 5 * SlicesPerMinute
	// longestHistory and Ahead bound the time that a history covers. Traces beyond it have wrong clocks.
	longestHistory = Slice(7 * 24 * time.Hour / SliceLength)
	Ahead          = SlicesPerMinute
	// keptSkipped is the time that skipped slices are kept, in case a person accepts them as normal. It is long enough
	// to judge windows by them, until the end of the hour.
	keptSkipped = 65 * SlicesPerMinute
)

// NewSites returns an empty history. The names of tallies must be in table before they are merged. The history itself
// adds the steps.
func NewSites(table *trace.Table) *Sites {
	return &Sites{
		table:          table,
		numbers:        make(map[SiteKey]int32),
		sites:          make([]Site, 1),
		targets:        make([]target, 1),
		called:         make([]trace.Op, 1),
		series:         make([]Series, 1),
		serviceNumbers: make(map[trace.Symbol]int32),
		names:          make([]trace.Symbol, 1),
		calls:          make(map[servicePair]bool),
		instances:      newInstances(),
		crowds:         make(map[trace.Symbol]int),
		judged:         make(map[Callee]bool),
		entries:        make(map[entryKey]*entry),
	}
}

// change counts a change, and returns the new number of changes.
func (h *Sites) change() uint64 {
	h.changes++
	return h.changes
}

// ChangedSince reports whether calls at a site, or skipped times before a compared window, have changed since changes
// had the given value.
func (h *Sites) ChangedSince(number int32, changes uint64) bool {
	return max(h.series[number].changed, h.allChanged) > changes
}

// Len returns the number of sites.
func (h *Sites) Len() int { return len(h.sites) - 1 }

// Operations returns the number of operations at the sites. A suspect has scores for each.
func (h *Sites) Operations() int { return len(h.judged) }

// Refused returns the number of calls at sites without room.
func (h *Sites) Refused() uint64 { return h.refused }

// Merge adds a tally. It adds sites in the order of their keys, so which sites find room doesn't depend on the order of
// the calls in the tally.
func (h *Sites) Merge(t *Tally) {
	h.instances.merge(t, h.folded)
	h.addresses.merge(&t.answers)
	h.messages.merge(&t.messages)
	numbers, lost := h.numbersOf(t)
	for _, at := range slices.Sorted(maps.Keys(t.slices)) {
		s := t.slices[at]
		if at < h.folded {
			at = at.minute()
		}
		h.late = h.late || at < h.forgotten
		if at < h.compared {
			h.pastChanged = h.change()
		}
		for key, c := range s.requests {
			h.addRequests(key, Cell{Slice: at, Calls: uint32(c.calls), Nanos: c.nanos, logs: c.logs})
		}
		for k := range s.cells {
			c := &s.cells[k]
			switch number := numbers[k]; {
			case c.calls == 0:
			case number == Overflow:
				h.refused += c.calls
			default:
				if lost[k] {
					c.loseAnswers()
				} else if t.sites[k].reached == 0 && !h.targets[number].external {
					h.targets[number].direct = true
				}
				h.series[number].changed = h.change()
				h.merge(&h.series[number], at, c)
			}
		}
	}
}

// numbersOf returns the numbers of the sites of a tally, and whether the answers to their calls were lost.
func (h *Sites) numbersOf(t *Tally) (numbers []int32, lost []bool) {
	numbers, lost = make([]int32, len(t.sites)), make([]bool, len(t.sites))
	sites := make([]tallySite, len(t.sites))
	var added []int32
	for i := range t.sites {
		sites[i], lost[i] = h.resolved(&t.sites[i])
		number, known := h.numbers[sites[i].SiteKey]
		if !known {
			added = append(added, int32(i))
		}
		numbers[i] = number
	}
	slices.SortFunc(added, func(a, b int32) int { return sites[a].Compare(sites[b].SiteKey) })
	for _, i := range added {
		numbers[i] = h.admit(&sites[i])
	}
	return numbers, lost
}

// admit returns the number of site s, which it adds if needed. If its service has too many sites, it returns the number
// of the site that stands for all further ones, or Overflow for a border, because its calls are counted at the service
// that answers. It also returns Overflow if there is no room.
func (h *Sites) admit(s *tallySite) int32 {
	if h.crowds[s.service] < serviceSites {
		return h.number(s)
	}
	if s.Border {
		return Overflow
	}
	other := h.table.Op(s.service, h.table.Symbol(trace.Overflow), trace.Internal)
	return h.number(&tallySite{tallyKey: tallyKey{SiteKey: SiteKey{Op: other}}, base: other, service: s.service})
}

// number returns the number of site s, which it adds if needed, or Overflow if there is no room.
func (h *Sites) number(s *tallySite) int32 {
	if i, ok := h.numbers[s.SiteKey]; ok {
		return i
	}
	if len(h.sites) > MaxSites {
		return Overflow
	}
	i := int32(len(h.sites))
	h.numbers[s.SiteKey] = i
	h.table.Step(s.base, s.target)
	h.sites = append(h.sites, Site{
		SiteKey: s.SiteKey,
		Base:    s.base,
		Service: h.service(s.service),
		Client:  s.client,
		Queue:   !s.Border && !s.client && h.table.Operation(s.base).Kind == trace.External,
		Inner:   !s.Border && h.within(s),
	})
	target := h.targetOf(s)
	h.targets, h.called = append(h.targets, target), append(h.called, s.target)
	if target.service != 0 {
		h.calls[servicePair{h.sites[i].Service, target.service}] = true
	}
	h.series = append(h.series, Series{})
	h.crowds[s.service]++
	if !s.Border {
		h.judged[Callee{h.sites[i].Service, s.Op}] = true
	}
	return i
}

// within reports whether the spans of s are INTERNAL ones inside the work of their callers, like the function [within].
func (h *Sites) within(s *tallySite) bool {
	caller := h.table.Operation(s.Parent)
	return s.Parent != 0 && caller.Service == s.service && caller.Kind != trace.Client &&
		h.table.Operation(s.base).Kind == trace.Internal
}

// keep copies the knowledge about the same target from old.
func (t *target) keep(old *target) {
	t.direct, t.settled, t.settledDirect = old.direct, old.settled, old.settledDirect
}

func (h *Sites) targetOf(s *tallySite) target {
	called := s.target
	if s.Border {
		called = s.Op
	}
	if !s.client || called == 0 {
		return target{}
	}
	o := h.table.Operation(called)
	if o.Service == 0 {
		return target{}
	}
	return target{service: h.service(o.Service), op: called, external: o.Kind == trace.External}
}

// service returns the number, from 1, of the service called name, which it adds if needed.
func (h *Sites) service(name trace.Symbol) int32 {
	if i, ok := h.serviceNumbers[name]; ok {
		return i
	}
	i := int32(len(h.names))
	h.serviceNumbers[name] = i
	h.names = append(h.names, name)
	return i
}

// merge adds c, the calls of a site in slice `at`, to into. It reorders the shapes of c.
func (h *Sites) merge(into *Series, at Slice, c *tallyCell) {
	into.addTimes(Cell{at, uint32(c.calls), c.nanos, c.beside, c.logs},
		Cell{Nanos: c.inner, Beside: c.innerBeside, logs: c.innerLogs})
	into.requests, into.within = into.requests+c.calls, into.within+c.within
	slices.SortFunc(c.shapes, func(a, b shapeCount) int { return a.Shape.compare(b.Shape) })
	for _, x := range c.shapes {
		h.shape(into, x.Shape).add(Cell{Slice: at, Calls: uint32(x.calls)})
	}
}

// shape returns the series of shape x, which it adds if needed, or the series of all other shapes if there are too
// many.
func (h *Sites) shape(of *Series, x Shape) *ShapeSeries {
	for i := range of.Shapes {
		if of.Shapes[i].Shape == x {
			return &of.Shapes[i]
		}
	}
	if (len(of.Shapes) >= SiteShapes || h.shapes >= maxAllShapes) && x.Hash != 0 {
		x.Hash = 0
		return h.shape(of, x)
	}
	h.shapes++
	if len(of.Shapes) == cap(of.Shapes) { // grow by one: there are many sites, and their shapes are soon stable
		of.Shapes = append(make([]ShapeSeries, 0, len(of.Shapes)+1), of.Shapes...)
	}
	of.Shapes = append(of.Shapes, ShapeSeries{Shape: x})
	return &of.Shapes[len(of.Shapes)-1]
}

// Accept takes the behaviour of service in interval `since` as normal. The interval is no longer skipped for any
// service. Earlier calls of the service and to it, and the weeks of their sites, are deleted. Accept takes time linear
// in the number of cells.
func (h *Sites) Accept(service trace.Symbol, since Interval) {
	h.unskip(Range{SliceOf(since.From).minute(), SliceOf(since.To) + 1})
	number, known := h.serviceNumbers[service]
	if !known {
		return
	}
	callees, _ := h.Callees(nil)
	for i := 1; i < len(h.sites); i++ {
		if h.sites[i].Service == number || callees[i].Service == number {
			h.series[i].changed, h.series[i].Week = h.change(), nil
			h.age(&h.series[i], &aging{keep: Range{SliceOf(since.From), maxSlice}})
		}
	}
	h.instances.forget(service, SliceOf(since.From))
}

// age applies a to a site. Shapes without cells make room for others. It reports whether cells were deleted or joined.
func (h *Sites) age(s *Series, a *aging) (changed bool) {
	if changed = s.age(a); s.Local != nil && s.Local.age(a) && bytes.Equal(s.Local.bytes, s.bytes) {
		s.Local = nil // the calls with inner spans are gone
	}
	empty := false
	for i := range s.Shapes {
		changed = s.Shapes[i].age(a) || changed
		empty = empty || s.Shapes[i].empty()
	}
	if empty {
		before := len(s.Shapes)
		s.Shapes = slices.DeleteFunc(s.Shapes, func(x ShapeSeries) bool { return x.empty() })
		h.shapes -= before - len(s.Shapes)
	}
	return changed
}

// Age ends an epoch. If a minute has ended since the last call, it joins slices to minutes, and deletes slices that the
// history no longer covers at time now and slices of traces with wrong clocks. If there is little room, it also deletes
// idle sites, and renumbers the others.
func (h *Sites) Age(now trace.Nanos) {
	h.addresses.learn(SliceOf(now))
	h.settle()
	from, to := h.folded, (SliceOf(now) - fineSlices).minute()
	if to <= from {
		return
	}
	h.folded = to
	h.pastChanged = h.change()
	h.learnHours(SliceOf(now))
	plausible := Range{SliceOf(now) - longestHistory, SliceOf(now) + Ahead}
	h.total = h.total.Within(plausible).fold(from, to)
	coverages := h.coverages(SliceOf(now) - keptSkipped)
	a := &aging{fold: Range{from, to}}
	of := func(service int32) *aging {
		c := &coverages[service]
		a.keep, a.skips, a.forgotten = Range{max(c.oldest, plausible.From), plausible.To},
			len(c.skipped) > 0, c.forgotten
		return a
	}
	h.ageEntries(of(0))
	for i := range h.series {
		if h.age(&h.series[i], of(h.sites[i].Service)) {
			h.series[i].changed = h.change()
		}
	}
	idle := SliceOf(now) - Slice(Span/SliceLength)
	h.instances.age(func(service trace.Symbol) *aging { return of(h.serviceNumbers[service]) }, idle)
	if scarce := h.Len() > MaxSites-spareSites; scarce || h.crowded() {
		h.evict(idle, scarce)
	}
	h.skipped = slices.DeleteFunc(h.skipped, func(s skip) bool { return s.To <= coverages[0].oldest })
}

// crowded reports whether any service has too many sites.
func (h *Sites) crowded() bool {
	for _, n := range h.crowds {
		if n >= serviceSites {
			return true
		}
	}
	return false
}

// evict deletes sites without calls since slice `since`, of all services if `all` is true, or else only of services
// with too many sites. It also deletes services that no remaining site names, and renumbers the remaining sites and
// services.
func (h *Sites) evict(since Slice, all bool) {
	old := *h
	h.numbers, h.serviceNumbers = make(map[SiteKey]int32), make(map[trace.Symbol]int32)
	h.sites, h.targets, h.called, h.series = make([]Site, 1), make([]target, 1), make([]trace.Op, 1), make([]Series, 1)
	h.renumbered, h.answerers = h.change(), nil
	h.names, h.calls, h.crowds, h.judged = make([]trace.Symbol, 1),
		make(map[servicePair]bool), make(map[trace.Symbol]int), make(map[Callee]bool)
	for i := 1; i < len(old.sites); i++ {
		s := &old.sites[i]
		if old.series[i].Last() < since && (all || old.crowds[old.names[s.Service]] >= serviceSites) {
			h.shapes -= len(old.series[i].Shapes)
			continue
		}
		number := h.number(&tallySite{
			tallyKey: tallyKey{SiteKey: s.SiteKey},
			base:     s.Base,
			target:   old.called[i],
			service:  old.names[s.Service],
			client:   s.Client,
		})
		h.series[number] = old.series[i]
		h.targets[number].keep(&old.targets[i])
	}
}

// Requests returns the number of requests, without the long ones, that started in the slices of i.
func (h *Sites) Requests(i Interval) uint64 {
	return h.total.Within(Range{SliceOf(i.From), SliceOf(i.To)}).Calls()
}

// Latest returns the end of the latest slice with requests that are not long, at most now, or 0 without such requests.
func (h *Sites) Latest(now trace.Nanos) trace.Nanos {
	cells := h.total.Within(Range{0, SliceOf(now) + 1})
	if len(cells) == 0 {
		return 0
	}
	return min(now, trace.Nanos(cells[len(cells)-1].Slice+1)*trace.Nanos(SliceLength))
}

// LatestOf returns the end of the latest slice, at most now, with calls of the given operations of a service, or of any
// of its operations if the list is empty. It returns 0 without such calls. If a service emits no spans, calls to it
// count as its own.
func (h *Sites) LatestOf(service trace.Symbol, operations []trace.Op, now trace.Nanos) trace.Nanos {
	newest := Slice(-1)
	for s := range h.seriesOf(service, operations) {
		newest = max(newest, s.Last())
	}
	return min(now, trace.Nanos(newest+1)*trace.Nanos(SliceLength))
}

// CallsOf returns the number of the calls that LatestOf selects whose traces started in the interval, which must be
// whole slices.
func (h *Sites) CallsOf(service trace.Symbol, operations []trace.Op, in Interval) (calls uint64) {
	within := Range{SliceOf(in.From), SliceOf(in.To)}
	for s := range h.seriesOf(service, operations) {
		if s.Last() >= within.From {
			calls += s.Within(within).Calls()
		}
	}
	return calls
}

// seriesOf yields the series of the calls that LatestOf selects.
func (h *Sites) seriesOf(service trace.Symbol, operations []trace.Op) iter.Seq[*Series] {
	number := h.serviceNumbers[service]
	counts := func(op trace.Op) bool { return len(operations) == 0 || slices.Contains(operations, op) }
	return func(yield func(*Series) bool) {
		for i := 1; i < len(h.sites); i++ {
			s, t := &h.sites[i], &h.targets[i]
			external := t.external && t.service == number
			if !s.Border && (s.Service == number && counts(s.Op) || external && (counts(t.op) || counts(s.Op))) &&
				!yield(&h.series[i]) {
				return
			}
		}
	}
}

// Covered returns the time until now with traces at least every two minutes. It is in whole minutes and leaves out the
// first one, because its traces may have started at its end.
func (h *Sites) Covered(now trace.Nanos) time.Duration {
	return time.Duration(max(0, SliceOf(now).minute()-h.firstMinute(now)-SlicesPerMinute)) * SliceLength
}

// CoveredSince returns the start of the first minute of the time until now with traces at least every two minutes.
func (h *Sites) CoveredSince(now trace.Nanos) trace.Nanos {
	return trace.Nanos(h.firstMinute(now)) * trace.Nanos(SliceLength)
}

func (h *Sites) firstMinute(now trace.Nanos) Slice {
	current := SliceOf(now).minute()
	first := current
	for _, c := range slices.Backward(h.total.Within(Range{0, current})) {
		if c.Slice.minute() < first-2*SlicesPerMinute {
			break
		}
		first = c.Slice.minute()
	}
	return first
}

// Services returns the number of services.
func (h *Sites) Services() int { return len(h.names) - 1 }

// Adjacent reports whether a calls b, or b calls a.
func (h *Sites) Adjacent(a, b trace.Symbol) bool {
	i, k := h.serviceNumbers[a], h.serviceNumbers[b]
	return h.calls[servicePair{i, k}] || h.calls[servicePair{k, i}]
}

// Minutes returns the number of minutes in which traces started before the slice of `before`.
func (h *Sites) Minutes(before trace.Nanos) int {
	n, last := 0, Slice(-1)
	for _, c := range h.total.Within(Range{0, SliceOf(before)}) {
		if m := c.Slice.minute(); m != last {
			n, last = n+1, m
		}
	}
	return n
}

// Related reports whether services a and b call each other, share callers or callees, or are connected by a chain of
// such calls.
func (h *Sites) Related(a, b trace.Symbol) bool {
	component := make([]int32, len(h.names)) // by number of the service: a service in the same component, as a tree
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

// resolve maps each service, by its number, to itself. But if a service emits no spans, and its name is the address of
// a service that does, it is mapped to that one: cart.default.svc:7070 to cart. opaque marks the services without
// spans.
func (h *Sites) resolve() (service []int32, opaque []bool) {
	service, opaque = make([]int32, len(h.names)), make([]bool, len(h.names))
	for i := range h.names {
		service[i], opaque[i] = int32(i), true
	}
	for i := 1; i < len(h.sites); i++ {
		opaque[h.sites[i].Service] = false
	}
	for i, name := range h.names {
		if opaque[i] {
			if k := h.emitter(name); k != 0 {
				service[i] = k
			}
		}
	}
	return service, opaque
}

// emitter returns the number of the service called name, or of the host in name if that is an address like
// cart.default.svc:7070, if the service emits spans. Otherwise it returns 0.
func (h *Sites) emitter(name trace.Symbol) int32 {
	for _, name := range []trace.Symbol{name, h.table.HostOf(name)} {
		if h.crowds[name] > 0 {
			return h.serviceNumbers[name]
		}
	}
	return 0
}

// Callees returns the usual callee of the CLIENT spans of each site, by its number. It reuses memory. The callee is the
// target of the step. If the step has no target, it is the most frequent target of steps of the same operation. The
// service is 0 if unknown. opaque marks the services without spans, by their number.
func (h *Sites) Callees(memory []Callee) (callees []Callee, opaque []bool) {
	service, opaque := h.resolve()
	callees = scratch.Filled(memory, len(h.sites), Callee{})
	type usual struct {
		target target
		calls  uint64
	}
	best := make(map[SiteKey]usual)
	keyOf := func(i int, anyCaller bool) SiteKey {
		k := SiteKey{Op: h.sites[i].Base, Parent: h.sites[i].Parent}
		if anyCaller {
			k.Parent = ^trace.Op(0)
		}
		return k
	}
	needed := make(map[SiteKey]bool) // of sites without a target
	for i := 1; i < len(h.sites); i++ {
		if h.sites[i].Client && h.targets[i].service == 0 {
			needed[keyOf(i, false)], needed[keyOf(i, true)] = true, true
		}
	}
	for i := 1; i < len(h.sites) && len(needed) > 0; i++ {
		if t := h.targets[i]; t.service != 0 && !h.sites[i].Border {
			calls := uint64(0)
			for _, wide := range []bool{false, true} {
				k := keyOf(i, wide)
				if !needed[k] {
					continue
				}
				if calls == 0 {
					calls = h.series[i].Calls
				}
				if b, ok := best[k]; !ok || cmp.Or(cmp.Compare(calls, b.calls), cmp.Compare(b.target.op, t.op)) > 0 {
					best[k] = usual{t, calls}
				}
			}
		}
	}
	for i := 1; i < len(h.sites); i++ {
		if !h.sites[i].Client {
			continue
		}
		t := h.targets[i]
		for _, wide := range []bool{false, true} {
			if t.service == 0 {
				t = best[keyOf(i, wide)].target
			}
		}
		if t.service == 0 {
			continue
		}
		if t.external {
			t.op = h.sites[i].Op
		}
		callees[i] = Callee{service[t.service], t.op}
	}
	return callees, opaque
}

// Table returns the table of the names of the history.
func (h *Sites) Table() *trace.Table { return h.table }

// All returns the sites by number, from 1. The caller must not change them, nor keep them beyond the next [Sites.Age].
func (h *Sites) All() []Site { return h.sites }

// Series returns the history of site `number`. It is valid until h changes.
func (h *Sites) Series(number int32) *Series { return &h.series[number] }

// Names returns the names of the services by number, from 1.
func (h *Sites) Names() []trace.Symbol { return h.names }

// NumberOf returns the number of a service, or 0 if it is unknown.
func (h *Sites) NumberOf(service trace.Symbol) int32 { return h.serviceNumbers[service] }

// Total returns the numbers and durations of all requests that are not long.
func (h *Sites) Total() Cells { return h.total }

// Learned returns the first hour that is not yet in the weeks of the sites.
func (h *Sites) Learned() Hour { return h.hour }

// Note notes that a window starting with slice `from` is compared. It returns the number of changes of the history so
// far, see [Sites.ChangedSince].
func (h *Sites) Note(from Slice) (changes uint64) {
	h.compared = max(h.compared, from)
	return h.changes
}

// Renumbered returns the number of changes of the history at the time when its sites were last renumbered.
func (h *Sites) Renumbered() uint64 { return h.renumbered }
