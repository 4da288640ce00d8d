package baselinediff

import (
	"cmp"
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
	table   *trace.Table
	numbers map[siteKey]int32
	sites   []site     // by number; the first is unused
	targets []target   // by number of the site
	called  []trace.Op // by number of the site: the target of its step
	series  []siteSeries
	refused uint64 // calls at sites for which there was no room

	serviceNumbers map[trace.Symbol]int32
	names          []trace.Symbol // by number of the service; the first is unused

	total   []totalCell // ascending by slice
	skipped []sliceRange
	folded  slice // cells before it cover minutes
}

// target is the callee of a site as its step names it.
type target struct {
	service  int32 // number of the service; 0: none
	op       trace.Op
	external bool // whether only attributes name it
}

// siteSeries is the history of a site.
type siteSeries struct {
	cells  []siteCell // ascending by slice; no cell is empty
	shapes []shapeSeries
}

type siteCell struct {
	slice slice
	calls uint32
	nanos int64
}

// shapeSeries counts the calls of one shape at a site.
type shapeSeries struct {
	shape
	cells []shapeCell // ascending by slice
}

type shapeCell struct {
	slice slice
	calls uint32
}

// totalCell counts all traces that began in a slice.
type totalCell struct {
	slice    slice
	requests uint64
	duration int64
}

// sliceRange is the slices [from, to).
type sliceRange struct{ from, to slice }

func (r sliceRange) contains(s slice) bool { return r.from <= s && s < r.to }

// Bounds of a history.
const (
	// MaxSites is the largest number of sites. They take about 60 MB if each has calls at every minute.
	MaxSites = 20_000
	// siteShapes bounds the shapes of a site: calls of others count as one shape of hash 0.
	siteShapes = 16
	// Span is the time that a history covers, without the time that was skipped.
	Span = 2 * time.Hour

	slicesPerMinute = slice(time.Minute / Slice)
	// fineSlices are kept as they are; older ones are joined to minutes.
	fineSlices = 10 * slicesPerMinute
)

// NewSites returns an empty history. The names of tallies must be in table before they are merged; the history adds the
// steps.
func NewSites(table *trace.Table) *Sites {
	return &Sites{
		table: table, numbers: make(map[siteKey]int32), sites: make([]site, 1), targets: make([]target, 1), called: make([]trace.Op, 1), series: make([]siteSeries, 1),
		serviceNumbers: make(map[trace.Symbol]int32), names: make([]trace.Symbol, 1),
	}
}

// Len returns the number of sites.
func (h *Sites) Len() int { return len(h.sites) - 1 }

// Refused returns the number of calls at sites for which there was no room.
func (h *Sites) Refused() uint64 { return h.refused }

// Merge adds a tally. Sites are added in the order of their keys, so that the bound does not depend on the order of the
// calls in the tally.
func (h *Sites) Merge(t *Tally) {
	numbers := make([]int32, len(t.sites))
	for _, key := range slices.SortedFunc(maps.Keys(t.numbers), siteKey.compare) {
		numbers[t.numbers[key]] = h.number(&t.sites[t.numbers[key]])
	}
	for _, at := range slices.Sorted(maps.Keys(t.slices)) {
		s := t.slices[at]
		if at < h.folded {
			at -= at % slicesPerMinute
		}
		i, ok := slices.BinarySearchFunc(h.total, at, func(c totalCell, at slice) int { return cmp.Compare(c.slice, at) })
		if !ok {
			h.total = slices.Insert(h.total, i, totalCell{slice: at})
		}
		h.total[i].requests += s.requests
		h.total[i].duration += s.duration
		for k := range s.cells {
			c := &s.cells[k]
			switch number := numbers[k]; {
			case c.calls == 0:
			case number == overflow:
				h.refused += c.calls
			default:
				h.series[number].add(at, c)
			}
		}
	}
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
	h.targets, h.called = append(h.targets, h.targetOf(s)), append(h.called, s.target)
	h.series = append(h.series, siteSeries{})
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

func (s *siteSeries) add(at slice, c *tallyCell) {
	i, ok := slices.BinarySearchFunc(s.cells, at, func(c siteCell, at slice) int { return cmp.Compare(c.slice, at) })
	if !ok {
		s.cells = slices.Insert(s.cells, i, siteCell{slice: at})
	}
	s.cells[i].calls += uint32(c.calls)
	s.cells[i].nanos += c.nanos
	slices.SortFunc(c.shapes, func(a, b shapeCount) int { return a.shape.compare(b.shape) })
	for _, x := range c.shapes {
		s.shape(x.shape).add(at, uint32(x.calls))
	}
}

// shape returns the series of a shape, or of the other shapes if there are too many.
func (s *siteSeries) shape(x shape) *shapeSeries {
	for i := range s.shapes {
		if s.shapes[i].shape == x {
			return &s.shapes[i]
		}
	}
	if len(s.shapes) >= siteShapes && x.hash != 0 {
		x.hash = 0
		return s.shape(x)
	}
	s.shapes = append(s.shapes, shapeSeries{shape: x})
	return &s.shapes[len(s.shapes)-1]
}

func (s *shapeSeries) add(at slice, calls uint32) {
	i, ok := slices.BinarySearchFunc(s.cells, at, func(c shapeCell, at slice) int { return cmp.Compare(c.slice, at) })
	if !ok {
		s.cells = slices.Insert(s.cells, i, shapeCell{slice: at})
	}
	s.cells[i].calls += calls
}

// Skip excludes the traces that begin in an interval from the history: they are not healthy.
func (h *Sites) Skip(i Interval) {
	r := sliceRange{sliceOf(i.From), sliceOf(i.To) + 1}
	if n := len(h.skipped); n > 0 && h.skipped[n-1].to >= r.from {
		h.skipped[n-1].from = min(h.skipped[n-1].from, r.from)
		h.skipped[n-1].to = max(h.skipped[n-1].to, r.to)
		return
	}
	h.skipped = append(h.skipped, r)
}

// Accept takes the behaviour of a service in an interval as normal: the interval is no longer skipped, and the calls of
// the service and those to it before the interval are deleted. It takes time linear in the number of cells.
func (h *Sites) Accept(service trace.Symbol, since Interval) {
	h.unskip(sliceRange{sliceOf(since.From), sliceOf(since.To) + 1})
	number, known := h.serviceNumbers[service]
	if !known {
		return
	}
	callees := (&liveComparison{h: h}).graph().callee
	for i := 1; i < len(h.sites); i++ {
		if h.sites[i].service == number || callees[i].service == number {
			h.series[i].drop(sliceOf(since.From))
		}
	}
}

// unskip returns the slices of r to the history.
func (h *Sites) unskip(r sliceRange) {
	var left []sliceRange
	for _, s := range h.skipped {
		for _, rest := range []sliceRange{{s.from, min(s.to, r.from)}, {max(s.from, r.to), s.to}} {
			if rest.from < rest.to {
				left = append(left, rest)
			}
		}
	}
	h.skipped = left
}

// drop deletes the calls before a slice.
func (s *siteSeries) drop(before slice) {
	s.cells = dropCells(s.cells, before, func(c *siteCell) slice { return c.slice })
	for i := range s.shapes {
		x := &s.shapes[i]
		x.cells = dropCells(x.cells, before, func(c *shapeCell) slice { return c.slice })
	}
	s.shapes = slices.DeleteFunc(s.shapes, func(x shapeSeries) bool { return len(x.cells) == 0 })
}

func (h *Sites) isSkipped(s slice) bool {
	return slices.ContainsFunc(h.skipped, func(r sliceRange) bool { return r.contains(s) })
}

// Age joins slices to minutes and deletes those that the history no longer covers at time now.
func (h *Sites) Age(now trace.Nanos) {
	fold := sliceOf(now) - fineSlices
	fold -= fold % slicesPerMinute
	if fold <= h.folded {
		return
	}
	h.folded = fold
	h.total = foldCells(h.total, fold, func(c *totalCell) *slice { return &c.slice }, func(a, b *totalCell) {
		a.requests += b.requests
		a.duration += b.duration
	})
	oldest := h.oldest()
	h.total = dropCells(h.total, oldest, func(c *totalCell) slice { return c.slice })
	for i := range h.series {
		s := &h.series[i]
		s.cells = foldCells(s.cells, fold, func(c *siteCell) *slice { return &c.slice }, func(a, b *siteCell) {
			a.calls += b.calls
			a.nanos += b.nanos
		})
		for k := range s.shapes {
			x := &s.shapes[k]
			x.cells = foldCells(x.cells, fold, func(c *shapeCell) *slice { return &c.slice }, func(a, b *shapeCell) { a.calls += b.calls })
		}
		s.drop(oldest)
	}
	h.skipped = slices.DeleteFunc(h.skipped, func(r sliceRange) bool { return r.to <= oldest })
}

// oldest returns the first slice that the history covers: [Span] of minutes that have traces and are not skipped.
func (h *Sites) oldest() slice {
	left := int(Span / time.Minute)
	minute := slice(-1)
	for _, c := range slices.Backward(h.total) {
		if m := c.slice - c.slice%slicesPerMinute; m != minute && !h.isSkipped(c.slice) {
			minute = m
			if left--; left < 0 {
				return m + slicesPerMinute
			}
		}
	}
	return 0
}

// foldCells joins the cells of each minute before fold. at returns the slice of a cell, join adds the second to the
// first.
func foldCells[C any](cells []C, fold slice, at func(*C) *slice, join func(a, b *C)) []C {
	n := 0
	for i := range cells {
		c := cells[i]
		if s := at(&c); *s < fold {
			*s -= *s % slicesPerMinute
		}
		if n > 0 && *at(&cells[n-1]) == *at(&c) {
			join(&cells[n-1], &c)
			continue
		}
		cells[n] = c
		n++
	}
	return cells[:n]
}

// dropCells deletes the cells before oldest.
func dropCells[C any](cells []C, oldest slice, at func(*C) slice) []C {
	n := 0
	for n < len(cells) && at(&cells[n]) < oldest {
		n++
	}
	return slices.Delete(cells, 0, n)
}

// Requests returns the number of traces that began in an interval.
func (h *Sites) Requests(i Interval) (n uint64) {
	r := sliceRange{sliceOf(i.From), sliceOf(i.To)}
	for _, c := range h.total {
		if r.contains(c.slice) {
			n += c.requests
		}
	}
	return n
}

// usual returns the mean duration of a trace before a slice, in ns and at least 1.
func (h *Sites) usual(before slice) float64 {
	requests, duration := 0.0, 0.0
	for _, c := range h.total {
		if c.slice < before && !h.isSkipped(c.slice) {
			requests += float64(c.requests)
			duration += float64(c.duration)
		}
	}
	return max(1, duration/max(1, requests))
}

// Services returns the number of services.
func (h *Sites) Services() int { return len(h.names) - 1 }

// Adjacent reports whether one of two services calls the other.
func (h *Sites) Adjacent(a, b trace.Symbol) bool {
	i, k := h.serviceNumbers[a], h.serviceNumbers[b]
	for n := 1; n < len(h.sites); n++ {
		caller, called := h.sites[n].service, h.targets[n].service
		if caller == i && called == k || caller == k && called == i {
			return true
		}
	}
	return false
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
