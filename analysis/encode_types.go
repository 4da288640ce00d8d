package analysis

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sibyl-trace/sibyl/internal/codec"

	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/trace"
)

const requestTypesVersion = 1

// AppendBinary appends what was learned to b, without the rules: the same bytes for the same requests, whatever their order.
func (r *RequestTypes) AppendBinary(b []byte) []byte {
	e := &encoder{append(b, requestTypesVersion)}
	e.flags(r.frozen)
	e.numbers(r.Cut)
	e.words(uint64(r.beyond))
	e.numbers(uint64(len(r.entries)))
	for _, op := range slices.Sorted(maps.Keys(r.entries)) {
		e.words(uint64(op))
		e.entry(r.entries[op])
	}
	return e.b
}

func (e *encoder) entry(x *entryTypes) {
	e.hash(x.limit)
	e.hash(x.rest)
	e.numbers(uint64(len(x.sets)))
	for _, id := range slices.SortedFunc(maps.Keys(x.sets), Hash.Compare) {
		e.ops(x.sets[id].ops)
		e.numbers(x.sets[id].count)
	}
	e.numbers(uint64(len(x.types)))
	for i := range x.types {
		t := &x.types[i]
		e.hash(t.ID)
		e.ops(t.Children)
		e.numbers(t.Count)
	}
	e.numbers(uint64(len(x.known)))
	for _, id := range slices.SortedFunc(maps.Keys(x.known), Hash.Compare) {
		e.hash(id)
		e.hash(x.known[id])
	}
}

func (e *encoder) ops(ops []trace.Op) {
	e.numbers(uint64(len(ops)))
	for _, op := range ops {
		e.words(uint64(op))
	}
}

// ops reads operations, ascending.
func (d *decoder) ops() (ops []trace.Op) {
	for i := range d.below(maxChildren + 1) {
		op := trace.Op(d.word())
		d.ascending(int(i), i > 0 && op > ops[len(ops)-1])
		if d.bad {
			return nil
		}
		ops = append(ops, op)
	}
	return ops
}

// DecodeRequestTypes returns the RequestTypes that AppendBinary wrote, under the given rules, and the bytes behind them. An error wraps
// [codec.ErrCorrupt].
func DecodeRequestTypes(b []byte, rules *RuleSet) (*RequestTypes, []byte, error) {
	d := &decoder{rest: b}
	d.version(requestTypesVersion)
	r := &RequestTypes{Rules: rules, entries: make(map[trace.Op]*entryTypes), frozen: d.flag(), Cut: d.number(), beyond: trace.Op(d.word())}
	var before trace.Op
	for i := range d.below(2 * maxEntries) {
		op := trace.Op(d.word())
		d.ascending(int(i), op > before)
		x := d.entry(op, r.frozen)
		if d.bad {
			break
		}
		before, r.entries[op] = op, x
	}
	if d.bad {
		return nil, nil, codec.ErrCorrupt
	}
	return r, d.rest, nil
}

// entry reads what is known of an entry operation: sets while learning, types and their sets once frozen.
func (d *decoder) entry(op trace.Op, frozen bool) *entryTypes {
	x := &entryTypes{limit: d.hash(), rest: d.hash()}
	if !frozen {
		x.sets = make(map[Hash]*childSet)
	}
	var before Hash
	for i := range d.below(2 * maxChildSets) {
		s := &childSet{ops: d.ops(), count: d.number()}
		id := hashOps(s.ops)
		d.ascending(int(i), id.Compare(before) > 0)
		if d.bad || frozen || !x.limit.IsZero() && id.Compare(x.limit) >= 0 {
			d.fail()
			return x
		}
		before, x.sets[id] = id, s
	}
	for range d.below(maxTypesOfEntry + 1) {
		x.types = append(x.types, RequestType{ID: d.hash(), Entry: op, Children: d.ops(), Count: d.number()})
		if d.bad {
			return x
		}
	}
	if frozen {
		x.known = make(map[Hash]Hash)
	}
	for i := range d.below(2 * maxChildSets) {
		id := d.hash()
		d.ascending(int(i), id.Compare(before) > 0)
		if d.bad || !frozen {
			d.fail()
			return x
		}
		before, x.known[id] = id, d.hash()
	}
	return x
}

const refinementVersion = 1

// AppendBinary appends r to b: the same bytes for the same requests, whatever their order.
func (r *Refinement) AppendBinary(b []byte) []byte {
	e := &encoder{append(b, refinementVersion)}
	e.words(uint64(r.arm))
	e.numbers(uint64(len(r.on)))
	for _, tp := range r.on {
		e.words(uint64(tp))
	}
	for i := range r.totals {
		e.b = r.totals[i].AppendBinary(e.b)
	}
	e.numbers(uint64(len(r.edges)))
	for _, x := range slices.Sorted(maps.Keys(r.edges)) {
		e.words(uint64(x))
		e.sums(r.edges[x])
	}
	e.numbers(uint64(len(r.places)))
	for _, at := range slices.SortedFunc(maps.Keys(r.places), place.compare) {
		p := r.places[at]
		e.words(uint64(at.within), uint64(at.context), uint64(p.parent), uint64(p.op), uint64(p.tracepoint))
		e.numbers(p.hits)
		e.sums(&p.inclusive)
		e.sums(&p.exclusive)
	}
	return e.b
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.within, q.within), cmp.Compare(p.context, q.context))
}

func (e *encoder) sums(sums *[blocks]stats.CoMoments) {
	for i := range sums {
		e.b = sums[i].AppendBinary(e.b)
	}
}

func (d *decoder) sums() *[blocks]stats.CoMoments {
	var sums [blocks]stats.CoMoments
	for i := range sums {
		sums[i] = decoded(d, stats.DecodeCoMoments)
	}
	return &sums
}

// DecodeRefinement returns the Refinement that AppendBinary wrote and the bytes behind it. An error wraps [codec.ErrCorrupt].
func DecodeRefinement(b []byte) (*Refinement, []byte, error) {
	d := &decoder{rest: b}
	d.version(refinementVersion)
	r := NewRefinement(trace.Symbol(d.word()), nil)
	for range d.count(8) {
		r.on = append(r.on, trace.Symbol(d.word()))
	}
	for i := range r.totals {
		r.totals[i] = decoded(d, stats.DecodeMoments)
	}
	var edge trace.Edge
	for i := range d.count(8 + 3*blocks) {
		x := trace.Edge(d.word())
		d.ascending(i, x > edge)
		sums := d.sums()
		if d.bad {
			break
		}
		edge, r.edges[x] = x, sums
	}
	var before place
	for i := range d.count(5*8 + 6*blocks) {
		at := place{trace.Edge(d.word()), trace.Context(d.word())}
		d.ascending(i, at.compare(before) > 0)
		p := &placed{parent: trace.Context(d.word()), op: trace.Op(d.word()), tracepoint: trace.Symbol(d.word()), hits: d.number()}
		p.inclusive, p.exclusive = *d.sums(), *d.sums()
		if d.bad {
			break
		}
		before, r.places[at] = at, p
	}
	if d.bad {
		return nil, nil, codec.ErrCorrupt
	}
	return r, d.rest, nil
}
