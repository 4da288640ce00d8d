package critpath

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/sibyl-trace/sibyl/trace"
)

// spanIndex maps span IDs to positions in a trace. The zero spanIndex is empty.
//
// It is a hash table with open addressing. An entry is valid if it carries the current generation, so the table need
// not be cleared between traces. If too many IDs collide, fill rebuilds the table with another hash factor. If they
// collide under all factors, all IDs are kept in a sorted list, so a lookup takes at most logarithmic time, even with
// hostile IDs.
type spanIndex struct {
	slots      []slot // length is a power of two, at least twice the number of spans
	shift      int    // 64 − log2(len(slots))
	factor     uint64 // hash factor
	generation uint32
	sorted     []slot // by ID; replaces slots unless empty
}

type slot struct {
	id         trace.SpanID
	span       int32
	generation uint32
}

// maxProbes is the maximum distance of an entry from its home slot. In a table at most half full, about one random ID
// in 10^10 exceeds it.
const maxProbes = 128

// factors are odd and unrelated. IDs that collide under several of them have few free bits, so there can be only few of
// them.
var factors = [...]uint64{
	0x9e3779b97f4a7c15, 0xd1342543de82ef95, 0xaf251af3b0f025b5, 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53,
}

// fill replaces the contents of the index with spans. If several spans have the same ID, it indexes the first one and
// appends the others to copies.
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

// reset empties the hash table and makes room for n spans.
func (x *spanIndex) reset(n int) {
	size := 1 << max(4, bits.Len(uint(2*n)))
	x.generation++
	if size > cap(x.slots) || x.generation == 0 {
		x.slots, x.generation = make([]slot, size), 1
	}
	x.slots = x.slots[:size]
	x.shift = 64 - bits.Len(uint(size-1))
}

// fillSlots is fill for the hash table. It returns false if too many IDs collide.
func (x *spanIndex) fillSlots(spans []trace.Span, copies []int32) ([]int32, bool) {
	for i := range spans {
		id := spans[i].ID
		switch s, ok := x.probe(id); {
		case ok:
			copies = append(copies, int32(i))
		case s == nil:
			return copies, false
		default:
			*s = slot{id, int32(i), x.generation}
		}
	}
	return copies, true
}

// fillSorted is fill for the sorted list.
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

// find returns the position of the span with the given ID, or -1 if it is not in the index.
func (x *spanIndex) find(id trace.SpanID) int32 {
	if s := x.entry(id); s != nil {
		return s.span
	}
	return -1
}

// replace makes span the position of id, which must be in the index.
func (x *spanIndex) replace(id trace.SpanID, span int32) { x.entry(id).span = span }

// entry returns the entry of id, or nil if id is not in the index.
func (x *spanIndex) entry(id trace.SpanID) *slot {
	if len(x.sorted) > 0 {
		i, ok := slices.BinarySearchFunc(x.sorted, id, func(s slot, id trace.SpanID) int {
			return cmp.Compare(s.id, id)
		})
		if !ok {
			return nil
		}
		return &x.sorted[i]
	}
	if s, ok := x.probe(id); ok {
		return s
	}
	return nil
}

// probe returns the slot of id and true, or the free slot for id and false. It returns nil if there is neither within
// maxProbes.
func (x *spanIndex) probe(id trace.SpanID) (s *slot, ok bool) {
	mask := len(x.slots) - 1
	h := int(uint64(id) * x.factor >> (x.shift & 63)) // the top bits spread sequential and random IDs alike
	for range maxProbes {
		s := &x.slots[h&mask]
		if s.generation != x.generation {
			return s, false
		}
		if s.id == id {
			return s, true
		}
		h++
	}
	return nil, false
}
