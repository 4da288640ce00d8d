package group

import (
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// dictionary adds the contexts and edges of requests to a table. It caches their hashes, so that most of them are added
// only once.
type dictionary struct {
	table *trace.Table
	// known caches the hashes of contexts and edges that are in the table, in the slot given by the remainder of the
	// hash.
	known [knownSlots]uint64
	// shapes caches, in the same way, shapes of observations whose contexts and edges are all in the table.
	shapes [shapeSlots]uint64
}

// knownSlots is the size of the cache of contexts and edges (1 MiB), a power of two.
const knownSlots = 1 << 17

// shapeSlots is the size of the cache of shapes (512 KiB), a power of two.
const shapeSlots = 1 << 16

// add adds the contexts and edges of o to the table: all contexts, so that paths include switched-on spans, and the
// edges of both levels.
func (d *dictionary) add(o *observation.Observation) {
	shape := o.Shape
	if shape == 0 {
		shape = o.ComputeShape()
	}
	slot := &d.shapes[shape%shapeSlots]
	if *slot == shape {
		return // most requests have the shape of earlier ones
	}
	*slot = shape
	for i := range o.Contexts {
		c := &o.Contexts[i]
		if d.isNew(uint64(c.Context)) {
			d.table.AddContext(c.Context, c.Parent, d.table.Step(c.Op, c.Target))
		}
	}
	for i := range o.Edges {
		e := &o.Edges[i]
		if d.isNew(uint64(e.Edge)) {
			d.table.AddEdge(e.Edge, trace.EdgeInfo{Context: e.Context, Before: e.Before, After: e.After})
		}
	}
}

// forget empties the caches. It must be called after entries of the table were deleted.
func (d *dictionary) forget() {
	clear(d.known[:])
	clear(d.shapes[:])
}

// isNew reports whether hash may be missing from the table, and adds it to the cache.
func (d *dictionary) isNew(hash uint64) bool {
	slot := &d.known[hash%knownSlots]
	if *slot == hash {
		return false
	}
	*slot = hash
	return true
}
