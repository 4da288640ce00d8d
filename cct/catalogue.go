package cct

import (
	"cmp"
	"iter"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// Catalogue is an index of the tracepoints that agents can enable, by their place in trees. All trees share one
// Catalogue, but a tree contains only the tracepoints of its own operations. A Catalogue is immutable and safe to
// share. A nil Catalogue is empty.
type Catalogue struct {
	all      []point                   // ascending by ID
	byOwner  map[trace.Op][]*point     // children of a baseline operation
	byHint   map[trace.Symbol][]*point // children of another tracepoint
	byOp     map[trace.Op][]*point     // variables, by the operation that they annotate
	base     map[trace.Op]trace.Symbol // names of baseline operations
	unplaced unplacedIndex             // tracepoints without a hint that leads to a place
}

// point is an entry of a catalogue.
type point struct {
	Tracepoint
	hinted bool // has an ancestor with a place, so that it is placed under its parent
}

// NewCatalogue returns the catalogue of the tracepoints in list, which may be in any order. It does not retain list.
// table provides the services of operations and may be nil. If several entries have the same ID, the Catalogue keeps
// the greatest one in a fixed order. It ignores entries without an ID. NewCatalogue takes O(n) time and about 100 bytes
// per entry, so the caller must limit the length of list.
func NewCatalogue(list []Tracepoint, table *trace.Table) *Catalogue {
	var keys byKey
	all := keys.distinct(list)
	for i := range all {
		keys.add(uint64(all[i].Parent), i)
	}
	hints := slices.Clone(keys.sorted())
	steps := stepsToPlaces(all, parents(all, hints))
	c := &Catalogue{all: all, base: make(map[trace.Op]trace.Symbol)}
	var unplaced []*point
	for i := range all {
		p := &all[i]
		p.hinted = steps[i] <= maxDepth
		switch {
		case p.Kind == VariablePoint:
		case p.Baseline:
			c.base[p.Op] = p.ID
		case !p.hinted && p.Owner == 0:
			unplaced = append(unplaced, p)
		}
		if p.belowOwner() {
			keys.add(uint64(p.Owner), i)
		}
	}
	c.byOwner = grouped[trace.Op](all, keys.sorted())
	hints = slices.DeleteFunc(hints, func(k keyed) bool {
		p := &all[k.at]
		return p.Kind == VariablePoint || p.belowOwner()
	})
	c.byHint = grouped[trace.Symbol](all, hints)
	for i := range all {
		if all[i].Kind == VariablePoint {
			keys.add(uint64(all[i].Op), i)
		}
	}
	c.byOp = grouped[trace.Op](all, keys.sorted())
	if table != nil {
		c.unplaced = newUnplacedIndex(unplaced, table, &keys)
	}
	return c
}

// belowOwner reports whether p is placed under its owner.
func (p *point) belowOwner() bool { return p.Kind != VariablePoint && p.Owner != 0 && !p.hinted }

// byKey collects the positions of entries and sorts them by key in O(n) time. A comparison sort of a large catalogue
// takes seconds, because the keys are hashes and almost every access misses the cache. A sorted list is valid until the
// next call to add.
type byKey struct{ list, spare []keyed }

// keyed is the key and the position of an entry.
type keyed struct {
	key uint64
	at  int32
}

// add adds the position of an entry unless its key is 0.
func (s *byKey) add(key uint64, at int) {
	if key != 0 {
		s.list = append(s.list, keyed{key, int32(at)})
	}
}

// sorted returns the positions added since the last call, ascending by key. Positions with the same key keep their
// order.
func (s *byKey) sorted() []keyed {
	const digit = 11 // bits
	from, to := s.list, slices.Grow(s.spare[:0], len(s.list))[:len(s.list)]
	for shift := 0; shift < 64; shift += digit {
		var starts [1 << digit]int32
		for i := range from {
			starts[from[i].key>>shift%(1<<digit)]++
		}
		sum := int32(0)
		for i, n := range starts {
			starts[i] = sum
			sum += n
		}
		for i := range from {
			at := &starts[from[i].key>>shift%(1<<digit)]
			to[*at] = from[i]
			*at++
		}
		from, to = to, from
	}
	s.list, s.spare = from[:0], to
	return from
}

// distinct returns the greatest entry for each ID in list, ascending by ID.
func (s *byKey) distinct(list []Tracepoint) []point {
	for i := range list {
		s.add(uint64(list[i].ID), i)
	}
	sorted := s.sorted()
	all := make([]point, 0, len(sorted))
	for _, k := range sorted {
		tp := &list[k.at]
		switch n := len(all); {
		case n == 0 || all[n-1].ID != tp.ID:
			all = append(all, point{Tracepoint: *tp})
		case compareEntries(&all[n-1].Tracepoint, tp) < 0:
			all[n-1].Tracepoint = *tp
		}
	}
	return all
}

// grouped groups the entries at the positions in list by key. list must be sorted.
func grouped[K trace.Op | trace.Symbol](all []point, list []keyed) map[K][]*point {
	n := 0
	for i := range list {
		if i == 0 || list[i].key != list[i-1].key {
			n++
		}
	}
	groups, points := make(map[K][]*point, n), make([]*point, len(list))
	first := 0
	for i, k := range list {
		points[i] = &all[k.at]
		if i+1 == len(list) || list[i+1].key != k.key {
			groups[K(k.key)] = points[first : i+1 : i+1]
			first = i + 1
		}
	}
	return groups
}

// parents returns the position of each entry's parent, or −1. hints holds the entries with a parent, sorted by the ID
// of the parent.
func parents(all []point, hints []keyed) []int32 {
	parents := make([]int32, len(all))
	for i := range parents {
		parents[i] = -1
	}
	above := 0
	for _, k := range hints {
		for above < len(all) && uint64(all[above].ID) < k.key {
			above++
		}
		if above < len(all) && uint64(all[above].ID) == k.key {
			parents[k.at] = int32(above)
		}
	}
	return parents
}

// stepsToPlaces returns the number of steps from each entry to its nearest ancestor with a place in trees. The number
// is greater than maxDepth if there is no such ancestor, or if a variable lies in between.
func stepsToPlaces(all []point, parents []int32) []int32 {
	const far = maxDepth + 1
	steps := make([]int32, len(all)) // 0 if unknown so far
	var path []int32
	for i := range all {
		known := int32(0) // steps of the parent of the last entry in path
		path = path[:0]
		for at := int32(i); steps[at] == 0; {
			steps[at] = far // so that the loop ends if parents form a cycle
			path = append(path, at)
			up := parents[at]
			if up < 0 || all[up].Kind == VariablePoint {
				known = far
				break
			}
			if all[up].Baseline || all[up].Owner != 0 {
				known = 0
				break
			}
			known, at = steps[up], up
		}
		for _, at := range slices.Backward(path) {
			known = min(known+1, far)
			steps[at] = known
		}
	}
	return steps
}

// compareEntries defines a total order of the entries with the same ID, so that the order of a list doesn't matter.
func compareEntries(a, b *Tracepoint) int {
	return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.Parent, b.Parent), cmp.Compare(a.Owner, b.Owner),
		cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Layer, b.Layer),
		cmp.Compare(a.Kind, b.Kind), trace.CompareBools(a.Baseline, b.Baseline))
}

// find returns the entry with the given ID, or nil if no agent announces it.
func (c *Catalogue) find(id trace.Symbol) *point {
	i, found := slices.BinarySearchFunc(c.all, id, func(p point, id trace.Symbol) int { return cmp.Compare(p.ID, id) })
	if !found {
		return nil
	}
	return &c.all[i]
}

// point returns the entry with the given ID, or the zero point if no agent announces it.
func (c *Catalogue) point(id trace.Symbol) point {
	if p := c.find(id); p != nil {
		return *p
	}
	return point{}
}

// All yields the tracepoints of c, ascending by ID.
func (c *Catalogue) All() iter.Seq[*Tracepoint] {
	return func(yield func(*Tracepoint) bool) {
		for i := range c.all {
			if !yield(&c.all[i].Tracepoint) {
				return
			}
		}
	}
}

// Find returns the tracepoint with the given ID, or the zero Tracepoint if no agent announces it.
func (c *Catalogue) Find(id trace.Symbol) Tracepoint { return c.point(id).Tracepoint }

// unplacedIndex holds the tracepoints of a catalogue that have no place, by service and by ID.
type unplacedIndex struct {
	entries []unplacedEntry // ascending by (service, ID)
	byID    []int32         // indices of entries, ascending by ID
}

// unplacedEntry is a tracepoint without a place, and its service.
type unplacedEntry struct {
	service trace.Symbol
	*point
}

// newUnplacedIndex returns the index of points, which must be in ascending order of ID. It uses keys, which must be
// empty, for sorting.
func newUnplacedIndex(points []*point, table *trace.Table, keys *byKey) unplacedIndex {
	for i, p := range points {
		keys.add(uint64(table.Operation(p.Op).Service), i)
	}
	sorted := keys.sorted()
	x := unplacedIndex{entries: make([]unplacedEntry, len(sorted)), byID: make([]int32, 0, len(sorted))}
	at := make([]int32, len(points)) // position of each point in entries, plus one
	for i, k := range sorted {
		x.entries[i] = unplacedEntry{trace.Symbol(k.key), points[k.at]}
		at[k.at] = int32(i) + 1
	}
	for _, i := range at {
		if i > 0 {
			x.byID = append(x.byID, i-1)
		}
	}
	return x
}
