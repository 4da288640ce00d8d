package critpath

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// spanIndex finds spans by ID. It is an open-addressing hash table whose entries are valid if they carry the current
// generation, so that it need not be cleared between traces. If many IDs collide, it is built again with other factors; should
// even these have been foreseen, it turns into a sorted list, so that a lookup takes logarithmic time whatever the IDs are. The
// zero spanIndex is empty.
type spanIndex struct {
	slots      []slot // len is a power of two, at least twice the number of spans
	shift      int    // 64 − log2(len(slots))
	factor     uint64 // by which IDs are hashed
	generation uint32
	sorted     []slot // by ID; used instead of slots if not empty
}

type slot struct {
	id         trace.SpanID
	span       int32
	generation uint32
}

// maxProbes is how far an entry may lie from where its ID hashes to. With IDs that were not chosen for it, and a table at
// most half full, one in 10^10 does.
const maxProbes = 128

// factors are odd and unrelated: to collide under several of them, IDs have so many bits given that few are left.
var factors = [...]uint64{0x9e3779b97f4a7c15, 0xd1342543de82ef95, 0xaf251af3b0f025b5, 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53}

// fill indexes spans and appends to copies those whose ID an earlier span has.
func (x *spanIndex) fill(spans []trace.Span, copies []int32) []int32 {
	first := len(copies)
	x.sorted = x.sorted[:0]
	for _, x.factor = range factors {
		x.reset(len(spans))
		var ok bool
		if copies, ok = x.fillSlots(spans, copies[:first]); ok {
			return copies
		}
	}
	return x.fillSorted(spans, copies[:first])
}

// fillSlots is fill for the hash table. It reports false if too many IDs collide.
func (x *spanIndex) fillSlots(spans []trace.Span, copies []int32) ([]int32, bool) {
	for i := range spans {
		switch x.insert(spans[i].ID, int32(i)) {
		case present:
			copies = append(copies, int32(i))
		case refused:
			return copies, false
		case inserted:
		}
	}
	return copies, true
}

func (x *spanIndex) reset(spans int) {
	size := 1 << max(4, bits.Len(uint(2*spans)))
	x.generation++
	if size > cap(x.slots) || x.generation == 0 {
		x.slots, x.generation = make([]slot, size), 1
	}
	x.slots = x.slots[:size]
	x.shift = 64 - bits.Len(uint(size-1))
}

// home returns where id hashes to: the top bits of a product spread sequential and random IDs alike.
func (x *spanIndex) home(id trace.SpanID) int { return int(uint64(id) * x.factor >> (x.shift & 63)) }

// What became of an insertion.
type insertion int

const (
	inserted insertion = iota
	present
	refused // too many probes
)

func (x *spanIndex) insert(id trace.SpanID, span int32) insertion {
	mask := len(x.slots) - 1
	h := x.home(id)
	for range maxProbes {
		s := &x.slots[h&mask]
		if s.generation != x.generation {
			*s = slot{id, span, x.generation}
			return inserted
		}
		if s.id == id {
			return present
		}
		h++
	}
	return refused
}

func (x *spanIndex) fillSorted(spans []trace.Span, copies []int32) []int32 {
	all := x.sorted[:0]
	for i := range spans {
		all = append(all, slot{id: spans[i].ID, span: int32(i)})
	}
	slices.SortFunc(all, func(a, b slot) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.span, b.span)) })
	x.sorted = all[:0]
	for i, s := range all {
		if i > 0 && s.id == all[i-1].id {
			copies = append(copies, s.span)
		} else {
			x.sorted = append(x.sorted, s)
		}
	}
	return copies
}

// find returns the entry of id, nil if there is none. It is valid until the next fill.
func (x *spanIndex) find(id trace.SpanID) *slot {
	if len(x.sorted) > 0 {
		i, ok := slices.BinarySearchFunc(x.sorted, id, func(s slot, id trace.SpanID) int { return cmp.Compare(s.id, id) })
		if !ok {
			return nil
		}
		return &x.sorted[i]
	}
	mask := len(x.slots) - 1
	h := x.home(id)
	for range maxProbes {
		s := &x.slots[h&mask]
		if s.generation != x.generation {
			return nil
		}
		if s.id == id {
			return s
		}
		h++
	}
	return nil
}
