package cct

import (
	"cmp"
	"iter"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Catalogue indexes the tracepoints that agents can enable by their place in trees. All trees of a service share one;
// each tree holds only the tracepoints of its own operations. A Catalogue is immutable and safe to share. A nil
// Catalogue is empty.
type Catalogue struct {
	all      []point                   // ascending by ID
	byOwner  map[trace.Op][]*point     // children of a baseline operation
	byHint   map[trace.Symbol][]*point // children of another tracepoint
	byOp     map[trace.Op][]*point     // variables by the operation that they annotate
	base     map[trace.Op]trace.Symbol // names of baseline operations
	unplaced unplacedIndex             // tracepoints without a hint that leads to a place
}

// point is an entry of a catalogue.
type point struct {
	Tracepoint
	hinted bool // a tracepoint with a place is among its ancestors, so it is placed under its parent
}

// NewCatalogue returns the catalogue of the tracepoints in list, in any order. It does not retain list. table gives the
// services of operations and may be nil. If several entries have the same ID, the greatest is kept. Entries without an
// ID are ignored. NewCatalogue takes O(n log n) time and about 100 bytes per entry: the caller must bound list.
func NewCatalogue(list []Tracepoint, table *trace.Table) *Catalogue {
	all := distinct(list)
	c := &Catalogue{
		all:     all,
		byOwner: make(map[trace.Op][]*point),
		byHint:  make(map[trace.Symbol][]*point),
		byOp:    make(map[trace.Op][]*point),
		base:    make(map[trace.Op]trace.Symbol),
	}
	var unplaced []*point
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
			unplaced = append(unplaced, p)
		}
		switch {
		case p.Owner != 0 && !p.hinted:
			c.byOwner[p.Owner] = append(c.byOwner[p.Owner], p)
		case p.Parent != 0:
			c.byHint[p.Parent] = append(c.byHint[p.Parent], p)
		}
	}
	if table != nil {
		c.unplaced = newUnplacedIndex(unplaced, table)
	}
	return c
}

// distinct returns the greatest entry of each ID in list, ascending by ID.
func distinct(list []Tracepoint) []point {
	all := make([]point, 0, len(list))
	for _, tp := range list {
		if tp.ID != 0 {
			all = append(all, point{Tracepoint: tp})
		}
	}
	sorting.Slice(all, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), compareEntries(&b.Tracepoint, &a.Tracepoint))
	})
	return slices.CompactFunc(all, func(a, b point) bool { return a.ID == b.ID })
}

// compareEntries is a total order of the entries with the same ID, so that the order of a list doesn't matter.
func compareEntries(a, b *Tracepoint) int {
	return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.Parent, b.Parent), cmp.Compare(a.Owner, b.Owner),
		cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Layer, b.Layer),
		cmp.Compare(a.Kind, b.Kind), trace.CompareBools(a.Baseline, b.Baseline))
}

// hinted reports whether a tracepoint with a place in trees is among the ancestors of p.
func (c *Catalogue) hinted(p *point) bool {
	for range maxDepth {
		above := c.find(p.Parent)
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

// find returns the entry of the tracepoint id, or nil if no agent announces it.
func (c *Catalogue) find(id trace.Symbol) *point {
	i, found := slices.BinarySearchFunc(c.all, id, func(p point, id trace.Symbol) int { return cmp.Compare(p.ID, id) })
	if !found {
		return nil
	}
	return &c.all[i]
}

// point returns the entry of the tracepoint id, or the zero point if no agent announces it.
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

// Find returns the tracepoint id, or the zero Tracepoint if no agent announces it.
func (c *Catalogue) Find(id trace.Symbol) Tracepoint { return c.point(id).Tracepoint }

// unplacedIndex holds the tracepoints of a catalogue without a place, by service and by ID.
type unplacedIndex struct {
	entries []unplacedEntry // ascending by (service, ID)
	byID    []int32         // entries ascending by ID
}

// unplacedEntry is a tracepoint without a place, and its service.
type unplacedEntry struct {
	service trace.Symbol
	*point
}

func newUnplacedIndex(points []*point, table *trace.Table) unplacedIndex {
	var x unplacedIndex
	for _, p := range points {
		if s := table.Operation(p.Op).Service; s != 0 {
			x.entries = append(x.entries, unplacedEntry{s, p})
		}
	}
	sorting.Slice(x.entries, func(a, b unplacedEntry) int {
		return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.ID, b.ID))
	})
	x.byID = make([]int32, len(x.entries))
	for i := range x.byID {
		x.byID[i] = int32(i)
	}
	sorting.Slice(x.byID, func(a, b int32) int { return cmp.Compare(x.entries[a].ID, x.entries[b].ID) })
	return x
}
