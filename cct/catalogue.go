package cct

import (
	"cmp"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// Catalogue is what agents could switch on, indexed by where it belongs. All trees of a service share one: a tree holds only what
// it has a place for. It is immutable and safe to share. A nil Catalogue is empty.
type Catalogue struct {
	points  map[trace.Symbol]*point   // by ID
	byOwner map[trace.Op][]*point     // placed straight under a baseline operation
	byHint  map[trace.Symbol][]*point // placed under another tracepoint
	byOp    map[trace.Op][]*point     // variables, by the operation that they annotate
	base    map[trace.Op]trace.Symbol // names of baseline operations
	loose   looseIndex                // what nothing places
}

// point is a catalogue's entry.
type point struct {
	Tracepoint
	hinted bool // its hints lead up to something that has a place, so that it is placed under its parent
}

// NewCatalogue returns the catalogue of a list in any order, of which it keeps nothing; table, which may be nil, tells the services
// of operations. Of several entries with one ID the greatest stands, entries without an ID are left out. It takes O(n log n) and
// some 150 bytes an entry: whoever makes the list bounds it.
func NewCatalogue(list []Tracepoint, table *trace.Table) *Catalogue {
	all := distinct(list)
	c := &Catalogue{
		points:  make(map[trace.Symbol]*point, len(all)),
		byOwner: make(map[trace.Op][]*point), byHint: make(map[trace.Symbol][]*point), byOp: make(map[trace.Op][]*point),
		base: make(map[trace.Op]trace.Symbol),
	}
	for i := range all {
		c.points[all[i].ID] = &all[i]
	}
	var loose []Tracepoint
	for i := range all {
		p := &all[i]
		p.hinted = c.hinted(p)
		switch {
		case p.Kind == VariablePoint:
			c.byOp[p.Op] = append(c.byOp[p.Op], p)
			continue
		case p.Baseline:
			c.base[p.Op] = p.ID
		}
		if !p.hinted && p.Owner == 0 && !p.Baseline {
			loose = append(loose, p.Tracepoint)
		}
		if p.Owner != 0 && !p.hinted {
			c.byOwner[p.Owner] = append(c.byOwner[p.Owner], p)
		} else {
			c.byHint[p.Parent] = append(c.byHint[p.Parent], p)
		}
	}
	if table != nil {
		c.loose = newLooseIndex(loose, table)
	}
	return c
}

// distinct returns the entries of a list that stand, ascending by ID.
func distinct(list []Tracepoint) []point {
	all := make([]point, 0, len(list))
	for _, tp := range list {
		if tp.ID != 0 {
			all = append(all, point{Tracepoint: tp})
		}
	}
	slices.SortFunc(all, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), compareEntries(&b.Tracepoint, &a.Tracepoint))
	})
	return slices.CompactFunc(all, func(a, b point) bool { return a.ID == b.ID })
}

// compareEntries orders entries of one ID in some total order, so that the order of a list does not matter.
func compareEntries(a, b *Tracepoint) int {
	return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.Parent, b.Parent), cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Cost, b.Cost),
		cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Kind, b.Kind), trace.CompareBools(a.Baseline, b.Baseline))
}

// hinted reports whether p's hints lead up to something that has a place.
func (c *Catalogue) hinted(p *point) bool {
	for range maxDepth {
		above := c.points[p.Parent]
		if above == nil || above.Kind == VariablePoint {
			return false
		}
		if above.Baseline || above.Owner != 0 {
			return true
		}
		p = above
	}
	return false
}

// point returns the entry of a tracepoint; the zero point for one that is not announced.
func (c *Catalogue) point(id trace.Symbol) point {
	if p := c.points[id]; p != nil {
		return *p
	}
	return point{}
}

// looseIndex is the tracepoints of a catalogue that no hint places.
type looseIndex struct {
	entries []looseEntry // ascending by (service, ID)
	byID    []int32      // entries ascending by ID
}

// looseEntry is a catalogued tracepoint of a service that no hint places.
type looseEntry struct {
	service trace.Symbol
	Tracepoint
}

func newLooseIndex(points []Tracepoint, table *trace.Table) looseIndex {
	var x looseIndex
	for _, p := range points {
		if s := table.Operation(p.Op).Service; s != 0 {
			x.entries = append(x.entries, looseEntry{s, p})
		}
	}
	slices.SortFunc(x.entries, func(a, b looseEntry) int {
		return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.ID, b.ID))
	})
	x.byID = make([]int32, len(x.entries))
	for i := range x.byID {
		x.byID[i] = int32(i)
	}
	slices.SortFunc(x.byID, func(a, b int32) int { return cmp.Compare(x.entries[a].ID, x.entries[b].ID) })
	return x
}
