package group

import (
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/trace"
)

// maxCallers is the maximum number of operations with external targets. Calls of further operations have no target.
const maxCallers = 1 << 16

// targetsAge is the minimum time for which we remember an external target after its last call, unless we need the room.
// The maximum is twice as long.
const targetsAge = 24 * time.Hour

// externalTargets limits the external targets of each operation to the targets with the smallest hashes. A limit is
// needed because the names of targets come from attributes, and each target adds a calling context. As with the limit
// on groups, the selection may depend on the order of the requests of an epoch while the limit is being reached, but
// not afterwards. Targets that are no longer called are forgotten, to make room for others. The zero externalTargets is
// empty.
type externalTargets struct {
	of     map[trace.Op][]trace.Op // by operation, called in the present period; ascending
	before map[trace.Op][]trace.Op // called in the previous period, but not in this one
	began  trace.Nanos             // start of the period, or 0
}

// age ends an epoch at now. It starts a new period if the present one is over, or if there is no room left.
func (x *externalTargets) age(now trace.Nanos) {
	if x.began == 0 {
		x.began = now
	}
	if now.Sub(x.began) >= targetsAge || len(x.of)+len(x.before) >= maxCallers {
		x.of, x.before, x.began = nil, x.of, now
	}
}

// admits reports whether calls of op keep target, and remembers the target if so. limit is the maximum number of
// targets of op.
func (x *externalTargets) admits(op, target trace.Op, limit int) bool {
	known, ok := x.of[op]
	i, found := slices.BinarySearch(known, target)
	if found {
		return true
	}
	old, some := x.before[op]
	k, again := slices.BinarySearch(old, target)
	switch {
	case again:
		x.before[op] = slices.Delete(old, k, k+1)
	case i+k >= limit || !ok && !some && len(x.of)+len(x.before) >= maxCallers:
		return false
	case len(known)+len(old) < limit:
	case len(old) == 0 || len(known) > i && known[len(known)-1] > old[len(old)-1]: // the greatest makes room
		known = known[:len(known)-1]
	default:
		x.before[op] = old[:len(old)-1]
	}
	if x.of == nil {
		x.of = make(map[trace.Op][]trace.Op)
	}
	x.of[op] = slices.Insert(known, i, target)
	if some && len(x.before[op]) == 0 {
		delete(x.before, op)
	}
	return true
}

// bound removes the targets in o that are beyond the limit per operation, and returns the number of calls affected.
// Calls with spans below them keep their target.
func (x *externalTargets) bound(o *observation.Observation, limit int) (calls uint64) {
	for i := 0; i < len(o.Contexts); i++ {
		c := &o.Contexts[i]
		if c.Target == 0 || c.Target != c.Peer || x.admits(c.Op, c.Target, limit) {
			continue
		}
		n := uint64(c.Count)
		if o.Retarget(i, 0) {
			calls += n
			i = -1 // the order of the contexts has changed
		}
	}
	return calls
}

func (x *externalTargets) appendBinary(w *codec.Writer) {
	w.Times(x.began)
	writeTargets(w, x.of)
	writeTargets(w, x.before)
}

func writeTargets(w *codec.Writer, of map[trace.Op][]trace.Op) {
	w.Uvarints(uint64(len(of)))
	for _, op := range slices.Sorted(maps.Keys(of)) {
		w.Words(uint64(op))
		w.Uvarints(uint64(len(of[op])))
		for _, target := range of[op] {
			w.Words(uint64(target))
		}
	}
}

// readExternalTargets reads the targets that appendBinary wrote.
func readExternalTargets(d *codec.Reader) externalTargets {
	return externalTargets{began: d.Time(), of: readTargets(d), before: readTargets(d)}
}

func readTargets(d *codec.Reader) map[trace.Op][]trace.Op {
	of := make(map[trace.Op][]trace.Op)
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
				return nil
			}
			targets = append(targets, target)
		}
		of[op] = targets
	}
	return of
}
