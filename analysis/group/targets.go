package group

import (
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// maxCallers is the largest number of operations with external targets. Calls of further ones have no target.
const maxCallers = 1 << 16

// externalTargets bounds the external targets of each operation to those with the smallest hashes: their names come
// from attributes, and each is a calling context of its own. Like that of groups, the bound may depend on the order
// of the requests of an epoch while it is being reached, but not afterwards. The zero externalTargets is empty.
type externalTargets struct {
	of map[trace.Op][]trace.Op // by operation; ascending
}

// admits reports whether calls of op, which may have the given number of targets, keep target. It remembers the target.
func (x *externalTargets) admits(op, target trace.Op, limit int) bool {
	known, ok := x.of[op]
	i, found := slices.BinarySearch(known, target)
	switch {
	case found:
		return true
	case i >= limit || !ok && len(x.of) >= maxCallers:
		return false
	case x.of == nil:
		x.of = make(map[trace.Op][]trace.Op)
	}
	known = slices.Insert(known, i, target)
	x.of[op] = known[:min(len(known), limit)]
	return true
}

// bound removes the targets of o beyond limit for each operation, and returns the number of their calls. Calls with
// spans below them keep theirs.
func (x *externalTargets) bound(o *observation.Observation, limit int) (calls uint64) {
	for i := 0; i < len(o.Contexts); i++ {
		c := &o.Contexts[i]
		if c.Target == 0 || c.Target != c.Peer || x.admits(c.Op, c.Target, limit) {
			continue
		}
		n := uint64(c.Count)
		if o.Retarget(i, 0) {
			calls += n
			i = -1 // the contexts have another order
		}
	}
	return calls
}

func (x *externalTargets) appendBinary(w *codec.Writer) {
	w.Uvarints(uint64(len(x.of)))
	for _, op := range slices.Sorted(maps.Keys(x.of)) {
		w.Words(uint64(op))
		w.Uvarints(uint64(len(x.of[op])))
		for _, target := range x.of[op] {
			w.Words(uint64(target))
		}
	}
}

func readExternalTargets(d *codec.Reader) (x externalTargets) {
	x.of = make(map[trace.Op][]trace.Op)
	before := trace.Op(0)
	for i := range d.Count(8 + 1) {
		op := trace.Op(d.Word())
		d.Ascending(i, op > before)
		before = op
		var targets []trace.Op
		for k := range d.Count(8) {
			target := trace.Op(d.Word())
			d.Ascending(k, k > 0 && target > targets[max(0, len(targets)-1)])
			if d.Bad() {
				return externalTargets{}
			}
			targets = append(targets, target)
		}
		x.of[op] = targets
	}
	return x
}
