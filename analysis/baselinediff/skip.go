package baselinediff

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// skip is a time in which requests were not healthy.
type skip struct {
	sliceRange
	id       uint64
	services []trace.Symbol // whose calls are no history, ascending; none: all
}

// skips holds the skipped times.
type skips []skip

// ranges are slices: ascending, disjoint.
type ranges []sliceRange

// Skip excludes the calls of some services, and the calls to them, from the history, in the traces that begin in an
// interval: they are not healthy. Without services it excludes all calls. It replaces what was skipped before under the
// same id. The interval begins with a minute, since its calls will be joined to those of the whole minute.
func (h *Sites) Skip(id uint64, i Interval, services ...trace.Symbol) {
	added := skip{sliceRange{sliceOf(i.From).minute(), sliceOf(i.To) + 1}, id, slices.Compact(slices.Sorted(slices.Values(services)))}
	k := slices.IndexFunc(h.skipped, func(s skip) bool { return s.id == id })
	if k < 0 {
		h.changeSkipped(added.from)
		h.skipped = append(h.skipped, added)
		return
	}
	switch s := &h.skipped[k]; {
	case s.from != added.from || added.to < s.to || !slices.Equal(s.services, added.services):
		h.changeSkipped(min(s.from, added.from))
	case s.to < added.to:
		h.changeSkipped(s.to)
	}
	h.skipped[k] = added
}

// Skips reports whether the calls of a service are excluded from the history in any part of an interval.
func (h *Sites) Skips(service trace.Symbol, i Interval) bool {
	return slices.ContainsFunc(h.skipped, func(s skip) bool {
		return s.from <= sliceOf(i.To-1) && sliceOf(i.From) < s.to && s.concerns(service)
	})
}

// changeSkipped prepares for a change of the skipped times that begins with a slice.
func (h *Sites) changeSkipped(from slice) {
	if from < h.screened.from {
		clear(h.verdicts)
	}
	if from < h.summed.to {
		h.summed.changes++
	}
	h.late = h.late || from < h.forgotten
}

// concerns reports whether s skips the calls of a service.
func (s *skip) concerns(service trace.Symbol) bool {
	if len(s.services) == 0 {
		return true
	}
	_, found := slices.BinarySearch(s.services, service)
	return found
}

// of returns the times in which the calls of a service are skipped.
func (s skips) of(service trace.Symbol) ranges {
	var all ranges
	for i := range s {
		if s[i].concerns(service) {
			all = append(all, s[i].sliceRange)
		}
	}
	return all.union()
}

// all returns the times in which calls of any service are skipped.
func (s skips) all() ranges {
	var all ranges
	for i := range s {
		all = append(all, s[i].sliceRange)
	}
	return all.union()
}

// union sorts ranges and joins those that overlap, in place.
func (r ranges) union() ranges {
	slices.SortFunc(r, func(a, b sliceRange) int { return cmp.Compare(a.from, b.from) })
	joined := r[:0]
	for _, x := range r {
		if n := len(joined); n > 0 && x.from <= joined[n-1].to {
			joined[n-1].to = max(joined[n-1].to, x.to)
		} else {
			joined = append(joined, x)
		}
	}
	return joined
}

// before returns the parts of ranges before a slice. It shares their memory.
func (r ranges) before(end slice) ranges {
	for len(r) > 0 && r[len(r)-1].from >= end {
		r = r[:len(r)-1]
	}
	if n := len(r); n > 0 {
		r[n-1].to = min(r[n-1].to, end)
	}
	return r
}

// contains reports whether a slice is in one of the ranges.
func (r ranges) contains(s slice) bool {
	for len(r) > 0 && r[len(r)-1].from > s {
		r = r[:len(r)-1]
	}
	return len(r) > 0 && r[len(r)-1].contains(s)
}

// without returns the cells that are not in the ranges. They share the memory of c, or of kept if some are.
func (c cells) without(r ranges, kept *cells) cells {
	if len(c) == 0 || len(r) == 0 || r[len(r)-1].to <= c[0].slice {
		return c
	}
	*kept = (*kept)[:0]
	for _, x := range c {
		for len(r) > 0 && r[0].to <= x.slice {
			r = r[1:]
		}
		if len(r) == 0 || x.slice < r[0].from {
			*kept = append(*kept, x)
		}
	}
	return *kept
}

// unskip returns the slices of r to the history of all services.
func (h *Sites) unskip(r sliceRange) {
	clear(h.verdicts)
	h.summed.changes++
	var left skips
	for _, s := range h.skipped {
		for _, rest := range []sliceRange{{s.from, min(s.to, r.from)}, {max(s.from, r.to), s.to}} {
			if rest.from < rest.to {
				left = append(left, skip{rest, s.id, s.services})
			}
		}
	}
	h.skipped = left
}

// coverage is the part of the history of a service that is kept.
type coverage struct {
	skipped   ranges
	oldest    slice
	forgotten func(slice) bool // whether the skipped calls of a slice are deleted; nil: none are, or all have been
}

// coverages returns the coverage of the calls of each service by number, and that of all at index 0. Skipped calls
// before a slice are deleted.
func (h *Sites) coverages(before slice) []coverage {
	all := make([]coverage, len(h.names))
	all[0].skipped = h.skipped.all()
	all[0].oldest = h.oldest(all[0].skipped)
	none := h.oldest(nil)
	for i := 1; i < len(all); i++ {
		c := &all[i]
		if c.skipped = h.skipped.of(h.names[i]); len(c.skipped) == 0 {
			c.oldest = none
		} else {
			c.oldest = h.oldest(c.skipped)
		}
		if h.late || slices.ContainsFunc(c.skipped, func(r sliceRange) bool { return r.from < before && h.forgotten < r.to }) {
			c.forgotten = func(s slice) bool { return s < before && c.skipped.contains(s) }
		}
	}
	h.forgotten, h.late = before, false
	return all
}

// oldest returns the first slice that the history covers: [Span] of minutes that have traces and are not skipped.
func (h *Sites) oldest(skipped ranges) slice {
	left := int(Span / time.Minute)
	minute := slice(-1)
	for _, c := range slices.Backward(h.total) {
		if m := c.slice.minute(); m != minute && !skipped.contains(c.slice) {
			minute = m
			if left--; left < 0 {
				return m + slicesPerMinute
			}
		}
	}
	return 0
}

// Callers returns some services and all that call them, directly or through others, ascending.
func (h *Sites) Callers(services ...trace.Symbol) []trace.Symbol {
	callers := make(map[int32][]int32)
	for pair := range h.calls {
		callers[pair.called] = append(callers[pair.called], pair.caller)
	}
	found := make(map[trace.Symbol]bool)
	for len(services) > 0 {
		s := services[len(services)-1]
		services = services[: len(services)-1 : len(services)-1]
		if found[s] {
			continue
		}
		found[s] = true
		for _, caller := range callers[h.serviceNumbers[s]] {
			services = append(services, h.names[caller])
		}
	}
	return slices.Sorted(maps.Keys(found))
}
