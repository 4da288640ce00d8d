package history

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Skipped holds the times when requests were not healthy. Calls in these times are excluded from the history.
type Skipped struct {
	skips     []skip
	forgotten Slice // skipped cells before this slice were deleted
	late      bool  // whether there may again be skipped cells before forgotten
}

// skip is a time when requests were not healthy, and the services concerned.
type skip struct {
	Range
	id       uint64
	services []trace.Symbol // services whose calls are skipped, ascending; empty means all
}

// Ranges is a list of ranges of slices, ascending and disjoint.
type Ranges []Range

// put adds a skip, or replaces the skip with the same ID. If it changes which services are skipped in any slice, it
// returns the first such slice.
func (k *Skipped) put(added skip) (from Slice, changed bool) {
	i := slices.IndexFunc(k.skips, func(s skip) bool { return s.id == added.id })
	if i < 0 {
		k.skips = append(k.skips, added)
		from, changed = added.From, true
	} else {
		switch s := &k.skips[i]; {
		case s.From != added.From || added.To < s.To || !slices.Equal(s.services, added.services):
			from, changed = min(s.From, added.From), true
		case s.To < added.To:
			from, changed = s.To, true
		}
		k.skips[i] = added
	}
	if changed {
		k.arrive(from)
	}
	return from, changed
}

// arrive records that calls in slice `at` were added, or are skipped from now on.
func (k *Skipped) arrive(at Slice) { k.late = k.late || at < k.forgotten }

// Overlaps reports whether the calls of service are excluded from the history at any time in i.
func (k *Skipped) Overlaps(service trace.Symbol, i Interval) bool {
	return slices.ContainsFunc(k.skips, func(s skip) bool {
		return s.From <= SliceOf(i.To-1) && SliceOf(i.From) < s.To && s.concerns(service)
	})
}

// concerns reports whether s skips the calls of service.
func (s *skip) concerns(service trace.Symbol) bool {
	if len(s.services) == 0 {
		return true
	}
	_, found := slices.BinarySearch(s.services, service)
	return found
}

// Of returns the times when the calls of service are skipped.
func (k *Skipped) Of(service trace.Symbol) Ranges {
	return k.ranges(func(s *skip) bool { return s.concerns(service) })
}

// Any returns the times when calls of any service are skipped.
func (k *Skipped) Any() Ranges { return k.ranges(func(*skip) bool { return true }) }

func (k *Skipped) ranges(selects func(*skip) bool) Ranges {
	var all Ranges
	for i := range k.skips {
		if s := &k.skips[i]; selects(s) {
			all = append(all, s.Range)
		}
	}
	return all.union()
}

// union sorts ranges and joins those that overlap, in place.
func (r Ranges) union() Ranges {
	sorting.Slice(r, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
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

// Before returns the parts of r before slice end. The result may share the memory of r.
func (r Ranges) Before(end Slice) Ranges {
	for len(r) > 0 && r[len(r)-1].From >= end {
		r = r[:len(r)-1]
	}
	if n := len(r) - 1; n >= 0 && r[n].To > end {
		r = append(r[:n:n], Range{r[n].From, end})
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

// Without returns the cells that are not in the ranges. The result shares the memory of c or, if cells were removed, of
// kept.
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

// remove ends the skipping of the slices in r, for all services.
func (k *Skipped) remove(r Range) {
	var left []skip
	for _, s := range k.skips {
		for _, rest := range []Range{{s.From, min(s.To, r.From)}, {max(s.From, r.To), s.To}} {
			if rest.From < rest.To {
				left = append(left, skip{rest, s.id, s.services})
			}
		}
	}
	k.skips = left
}

// coverage describes the part of the history of a service that is kept.
type coverage struct {
	skipped Ranges
	oldest  Slice
	// forgotten reports whether the skipped calls of a slice are to be deleted. It is nil if there are none to delete.
	forgotten func(Slice) bool
}

// coverages returns the coverage of each service by its number, and the coverage of all calls at index 0. Skipped calls
// before slice `before` are to be deleted.
func (k *Skipped) coverages(before Slice, services *Services, requests *Requests) []coverage {
	all := make([]coverage, len(services.names))
	all[0].skipped = k.Any()
	all[0].oldest = requests.oldest(all[0].skipped)
	none := requests.oldest(nil)
	for i := 1; i < len(all); i++ {
		c := &all[i]
		if c.skipped = k.Of(services.names[i]); len(c.skipped) == 0 {
			c.oldest = none
		} else {
			c.oldest = requests.oldest(c.skipped)
		}
		if k.late ||
			slices.ContainsFunc(c.skipped, func(r Range) bool { return r.From < before && k.forgotten < r.To }) {
			c.forgotten = func(s Slice) bool { return s < before && c.skipped.Contains(s) }
		}
	}
	k.forgotten, k.late = before, false
	return all
}

func (k *Skipped) appendTo(b []byte) []byte {
	b = codec.AppendUvarints(b, uint64(len(k.skips)))
	for _, s := range k.skips {
		b = codec.AppendWords(b, s.id)
		b = codec.AppendUvarints(b, uint64(s.From), uint64(s.To), uint64(len(s.services)))
		for _, service := range s.services {
			b = codec.AppendWords(b, uint64(service))
		}
	}
	return b
}

func (k *Skipped) read(r *codec.Reader) {
	for range r.Count(11) {
		s := skip{id: r.Word(), Range: Range{readSlice(r), readSlice(r)}}
		for range r.Count(8) {
			s.services = append(s.services, trace.Symbol(r.Word()))
		}
		k.skips = append(k.skips, s)
	}
}
