package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// skip is a time when requests were not healthy.
type skip struct {
	Range
	id       uint64
	services []trace.Symbol // services whose calls are skipped, ascending; empty means all
}

// skips holds the skipped times.
type skips []skip

// Ranges are ranges of slices, ascending and disjoint.
type Ranges []Range

// Skip excludes the calls at the sites of services from the history, because they are not healthy. It applies to traces
// that start in i, and excludes all calls if services is empty. It replaces an earlier skip with the same id. The
// interval is extended to the start of its first minute, because its calls will be joined to the whole minute.
func (h *Sites) Skip(id uint64, i Interval, services ...trace.Symbol) {
	added := skip{
		Range{SliceOf(i.From).minute(), SliceOf(i.To) + 1},
		id, slices.Compact(slices.Sorted(slices.Values(services))),
	}
	k := slices.IndexFunc(h.skipped, func(s skip) bool { return s.id == id })
	if k < 0 {
		h.changeSkipped(added.From)
		h.skipped = append(h.skipped, added)
		return
	}
	switch s := &h.skipped[k]; {
	case s.From != added.From || added.To < s.To || !slices.Equal(s.services, added.services):
		h.changeSkipped(min(s.From, added.From))
	case s.To < added.To:
		h.changeSkipped(s.To)
	}
	h.skipped[k] = added
}

// Skips reports whether the calls of service are excluded from the history in any part of i.
func (h *Sites) Skips(service trace.Symbol, i Interval) bool {
	return slices.ContainsFunc(h.skipped, func(s skip) bool {
		return s.From <= SliceOf(i.To-1) && SliceOf(i.From) < s.To && s.concerns(service)
	})
}

// changeSkipped prepares for a change of the skipped times that starts with slice `from`.
func (h *Sites) changeSkipped(from Slice) {
	if from < h.compared {
		h.allChanged = h.change()
		h.pastChanged = h.allChanged
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

// of returns the times when the calls of a service are skipped.
func (s skips) of(service trace.Symbol) Ranges {
	var all Ranges
	for i := range s {
		if s[i].concerns(service) {
			all = append(all, s[i].Range)
		}
	}
	return all.union()
}

// all returns the times when calls of any service are skipped.
func (s skips) all() Ranges {
	var all Ranges
	for i := range s {
		all = append(all, s[i].Range)
	}
	return all.union()
}

// union sorts ranges and joins those that overlap, in place.
func (r Ranges) union() Ranges {
	slices.SortFunc(r, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	joined := r[:0]
	for _, x := range r {
		if n := len(joined); n > 0 && x.From <= joined[n-1].To {
			joined[n-1].To = max(joined[n-1].To, x.To)
		} else {
			joined = append(joined, x)
		}
	}
	return joined
}

// Before returns the parts of r before slice end. It reuses the memory of r, so r must not be used again.
func (r Ranges) Before(end Slice) Ranges {
	for len(r) > 0 && r[len(r)-1].From >= end {
		r = r[:len(r)-1]
	}
	if n := len(r); n > 0 {
		r[n-1].To = min(r[n-1].To, end)
	}
	return r
}

// Contains reports whether s is in one of the ranges.
func (r Ranges) Contains(s Slice) bool {
	for len(r) > 0 && r[len(r)-1].From > s {
		r = r[:len(r)-1]
	}
	return len(r) > 0 && r[len(r)-1].Contains(s)
}

// Without returns the cells that are not in the ranges. They share the memory of c or, if cells were removed, of kept.
func (c Cells) Without(r Ranges, kept *Cells) Cells {
	if len(c) == 0 || len(r) == 0 || r[len(r)-1].To <= c[0].Slice {
		return c
	}
	*kept = (*kept)[:0]
	for _, x := range c {
		for len(r) > 0 && r[0].To <= x.Slice {
			r = r[1:]
		}
		if len(r) == 0 || x.Slice < r[0].From {
			*kept = append(*kept, x)
		}
	}
	return *kept
}

// unskip returns the slices of r to the history of all services.
func (h *Sites) unskip(r Range) {
	h.allChanged = h.change()
	h.pastChanged = h.allChanged
	var left skips
	for _, s := range h.skipped {
		for _, rest := range []Range{{s.From, min(s.To, r.From)}, {max(s.From, r.To), s.To}} {
			if rest.From < rest.To {
				left = append(left, skip{rest, s.id, s.services})
			}
		}
	}
	h.skipped = left
}

// coverage is the part of the history of a service that is kept.
type coverage struct {
	skipped   Ranges
	oldest    Slice
	forgotten func(Slice) bool // reports whether the skipped calls of a slice are deleted; nil if no call is, or if all have been
}

// coverages returns the coverage of the calls of each service by its number, and of all calls at index 0. It marks
// skipped calls before slice `before` as forgotten.
func (h *Sites) coverages(before Slice) []coverage {
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
		if h.late ||
			slices.ContainsFunc(c.skipped, func(r Range) bool { return r.From < before && h.forgotten < r.To }) {
			c.forgotten = func(s Slice) bool { return s < before && c.skipped.Contains(s) }
		}
	}
	h.forgotten, h.late = before, false
	return all
}

// oldest returns the first slice that the history covers: [Span] of minutes with traces that are not skipped. It
// returns 0 if there are at most that many minutes.
func (h *Sites) oldest(skipped Ranges) Slice {
	left := int(Span / time.Minute)
	minute := Slice(-1)
	for _, c := range slices.Backward(h.total) {
		if m := c.Slice.minute(); m != minute && !skipped.Contains(c.Slice) {
			minute = m
			if left--; left < 0 {
				return m + SlicesPerMinute
			}
		}
	}
	return 0
}

// Callers returns the given services and all that call them, directly or through others, ascending.
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

// pastSum is the sum of the calls at a site before a window, without skipped ones. Decoding all of them in each epoch
// would take most of the time of a comparison while an incident is open.
type pastSum struct {
	changes uint64 // value of [Sites.changes] when it was made
	end     mark   // of the summed cells
	calls   uint64
	logs    int64
}

// Before returns the number of calls before slice `at` and the total of their logarithms. It leaves out calls in
// skipped, the skipped times of their service. It caches sums, because `at` is usually the same as in the last call, or
// a little later.
func (h *Sites) Before(s *Times, at Slice, skipped Ranges) (calls uint64, logs int64) {
	s.seek(at)
	if k := len(skipped); k == 0 || s.earlier == 0 || s.First() >= skipped[k-1].To {
		return s.earlier, s.earlierLogs
	}
	sum := &s.past
	if sum.changes <= h.pastChanged || sum.end.offset > s.window.offset {
		*sum = pastSum{changes: h.changes + 1}
	}
	for sum.end.offset < s.window.offset {
		x, next := decodeCell(s.bytes, int(sum.end.offset), sum.end.before)
		sum.end = mark{int32(next), x.Slice}
		if !skipped.Contains(x.Slice) {
			sum.calls += uint64(x.Calls)
			sum.logs += x.logs
		}
	}
	h.compared = max(h.compared, at)
	return sum.calls, sum.logs
}

// Skipped returns the times when the calls of a service are excluded from the history.
func (h *Sites) Skipped(service trace.Symbol) Ranges { return h.skipped.of(service) }

// SkippedAny returns the times when calls of any service are excluded from the history.
func (h *Sites) SkippedAny() Ranges { return h.skipped.all() }
