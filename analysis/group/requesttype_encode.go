package group

import (
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/internal/codec"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

const requestTypesVersion = 1

// AppendBinary appends the state of r to b, without the rules. The same requests in any order give the same bytes.
func (r *RequestTypes) AppendBinary(b []byte) []byte {
	e := codec.NewWriter(append(b, requestTypesVersion))
	e.Bools(r.frozen)
	e.Uvarints(r.Truncated)
	e.Words(uint64(r.beyond))
	e.Uvarints(uint64(len(r.entries)))
	for _, op := range slices.Sorted(maps.Keys(r.entries)) {
		e.Words(uint64(op))
		writeEntry(e, r.entries[op])
	}
	return e.B
}

func writeEntry(e *codec.Writer, x *entryTypes) {
	e.Hash(x.limit)
	e.Hash(x.rest)
	e.Uvarints(uint64(len(x.sets)))
	for _, id := range sorting.Sorted(maps.Keys(x.sets), analysis.Hash.Compare) {
		writeOps(e, x.sets[id].ops)
		e.Uvarints(x.sets[id].count)
	}
	e.Uvarints(uint64(len(x.types)))
	for i := range x.types {
		t := &x.types[i]
		e.Hash(t.ID)
		writeOps(e, t.Children)
		e.Uvarints(t.Count)
	}
	e.Uvarints(uint64(len(x.known)))
	for _, id := range sorting.Sorted(maps.Keys(x.known), analysis.Hash.Compare) {
		e.Hash(id)
		e.Hash(x.known[id])
	}
}

func writeOps(e *codec.Writer, ops []trace.Op) {
	e.Uvarints(uint64(len(ops)))
	for _, op := range ops {
		e.Words(uint64(op))
	}
}

// readOps reads ascending operations.
func readOps(d *codec.Reader) (ops []trace.Op) {
	for i := range d.Below(maxChildren + 1) {
		op := trace.Op(d.Word())
		d.Ascending(int(i), i > 0 && op > ops[len(ops)-1])
		if d.Bad() {
			return nil
		}
		ops = append(ops, op)
	}
	return ops
}

// DecodeRequestTypes returns the RequestTypes that AppendBinary encoded, with the given rules, and the bytes after
// them. Errors wrap [codec.ErrCorrupt].
func DecodeRequestTypes(b []byte, rules *RuleSet) (*RequestTypes, []byte, error) {
	d := codec.NewReader(b)
	d.Version(requestTypesVersion)
	r := &RequestTypes{
		Rules:     rules,
		entries:   make(map[trace.Op]*entryTypes),
		frozen:    d.Bool(),
		Truncated: d.Uvarint(),
		beyond:    trace.Op(d.Word()),
	}
	var before trace.Op
	for i := range d.Below(2 * maxEntries) {
		op := trace.Op(d.Word())
		d.Ascending(int(i), op > before)
		x := readEntry(d, op, r.frozen)
		if d.Bad() {
			break
		}
		before, r.entries[op] = op, x
	}
	if d.Bad() {
		return nil, nil, codec.ErrCorrupt
	}
	return r, d.Rest(), nil
}

// readEntry reads the state of an entry operation: sets while learning, types and their sets once frozen.
func readEntry(d *codec.Reader, op trace.Op, frozen bool) *entryTypes {
	x := &entryTypes{limit: d.Hash(), rest: d.Hash()}
	if !frozen {
		x.sets = make(map[analysis.Hash]*childSet)
	}
	var before analysis.Hash
	for i := range d.Below(2 * maxChildSets) {
		s := &childSet{ops: readOps(d), count: d.Uvarint()}
		id := analysis.HashOf(s.ops...)
		d.Ascending(int(i), id.Compare(before) > 0)
		if d.Bad() || frozen || !x.limit.IsZero() && id.Compare(x.limit) >= 0 {
			d.Fail()
			return x
		}
		before, x.sets[id] = id, s
	}
	for range d.Below(maxTypesOfEntry + 1) {
		x.types = append(x.types, RequestType{ID: d.Hash(), Entry: op, Children: readOps(d), Count: d.Uvarint()})
		if d.Bad() {
			return x
		}
	}
	if frozen {
		x.known = make(map[analysis.Hash]analysis.Hash)
	}
	for i := range d.Below(2 * maxChildSets) {
		id := d.Hash()
		d.Ascending(int(i), id.Compare(before) > 0)
		if d.Bad() || !frozen {
			d.Fail()
			return x
		}
		before, x.known[id] = id, d.Hash()
	}
	return x
}
