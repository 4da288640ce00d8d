package group

import (
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// dictionary enters contexts and edges of requests in a table, and remembers which it entered.
type dictionary struct {
	table *trace.Table
	// entered is a cache of what is in the table: contexts, and edges with their callees, each where its hash says.
	entered [enteredSlots]uint64
	// whole is one of requests all of whose contexts and edges are in the table, where the hash of these says.
	whole [wholeSlots]uint64
}

// enteredSlots is the size of the cache of what is in the table (1 MiB), a power of two.
const enteredSlots = 1 << 17

// wholeSlots is that of whole requests (512 KiB), a power of two.
const wholeSlots = 1 << 16

// enter enters contexts and edges of o in the table: all contexts, so that paths are complete down to switched-on spans, and edges
// for both levels.
func (d *dictionary) enter(o *observation.Observation) {
	whole := o.Shape
	if whole == 0 {
		whole = o.ComputeShape()
	}
	slot := &d.whole[whole%wholeSlots]
	if *slot == whole {
		return // most requests are like others
	}
	*slot = whole
	for i := range o.Contexts {
		c := &o.Contexts[i]
		if d.isNew(uint64(c.Context)) {
			d.table.AddContext(c.Context, c.Parent, c.Op)
		}
	}
	for i := range o.Edges {
		e := &o.Edges[i]
		if d.isNew(uint64(e.Edge) ^ uint64(e.Callee)) {
			d.table.AddEdge(e.Edge, trace.EdgeInfo{Context: e.Context, Before: e.Before, After: e.After, Callee: e.Callee})
			d.table.AddEdge(trace.ContextEdge(e.Context), trace.EdgeInfo{Context: e.Context, Callee: e.Callee})
		}
	}
}

// isNew reports whether a hash may not have been entered yet.
func (d *dictionary) isNew(hash uint64) bool {
	slot := &d.entered[hash%enteredSlots]
	if *slot == hash {
		return false
	}
	*slot = hash
	return true
}
