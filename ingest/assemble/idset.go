package assemble

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// spanID and spanParent decode one field of an encoded span.
func spanID(e []byte) trace.SpanID     { return trace.SpanID(binary.LittleEndian.Uint64(e)) }
func spanParent(e []byte) trace.SpanID { return trace.SpanID(binary.LittleEndian.Uint64(e[8:])) }

// idSet is a reusable set of nonzero span IDs: an open-addressing hash table, at most half full.
type idSet struct {
	slots []uint64
	mask  uint64
}

// reset empties s and makes room for n IDs.
func (s *idSet) reset(n int) {
	size := 1 << bits.Len(uint(max(2*n, 15)))
	if cap(s.slots) < size {
		s.slots = make([]uint64, size)
	}
	s.slots = s.slots[:size]
	clear(s.slots)
	s.mask = uint64(size - 1)
}

// find returns the slot of id, or the free slot for it.
func (s *idSet) find(id uint64) *uint64 {
	for i := trace.Mix(id, 0) & s.mask; ; i = (i + 1) & s.mask {
		if s.slots[i] == id || s.slots[i] == 0 {
			return &s.slots[i]
		}
	}
}

func (s *idSet) add(id uint64)      { *s.find(id) = id }
func (s *idSet) has(id uint64) bool { return *s.find(id) != 0 }

// remembered is a bounded set of hashes of trace IDs. It forgets a hash between one and two windows after it was added,
// or earlier if too many are added.
type remembered struct {
	window     time.Duration
	young, old map[uint64]struct{}
	began      trace.Nanos // when young was empty
	since      []uint64    // added since the last drain
}

// rememberedTraces bounds the set, to about 20 bytes each.
const rememberedTraces = 4 << 20

func (r *remembered) len() int64 { return int64(len(r.young) + len(r.old)) }

func (r *remembered) has(h uint64) bool {
	if _, ok := r.young[h]; ok {
		return true
	}
	_, ok := r.old[h]
	return ok
}

func (r *remembered) add(h uint64) {
	if len(r.young) >= rememberedTraces/2 {
		r.turn(r.began)
	}
	if r.young == nil {
		r.young = make(map[uint64]struct{})
	}
	r.young[h] = struct{}{}
	r.since = append(r.since, h)
}

// forget removes the hashes that are too old at time now.
func (r *remembered) forget(now trace.Nanos) {
	if r.began == 0 {
		r.began = now
	}
	if now.Sub(r.began) >= r.window {
		r.turn(now)
	}
}

// turn forgets the old hashes and makes the young ones old.
func (r *remembered) turn(now trace.Nanos) {
	r.old, r.young, r.began = r.young, nil, now
}

func (r *remembered) drain() []uint64 {
	since := r.since
	r.since = nil
	return since
}

func (r *remembered) recall(at trace.Nanos, hashes []uint64) {
	r.forget(at)
	for _, h := range hashes {
		r.add(h)
	}
	r.since = nil
}
