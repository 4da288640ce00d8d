package assemble

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// spanID and spanParent decode the ID and the parent of an encoded span.
func spanID(e []byte) trace.SpanID     { return trace.SpanID(binary.LittleEndian.Uint64(e)) }
func spanParent(e []byte) trace.SpanID { return trace.SpanID(binary.LittleEndian.Uint64(e[8:])) }

// idSet is a reusable set of nonzero span IDs. It is a hash table with open addressing, at most half full.
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

// find returns the slot that contains id, or the free slot to store it in.
func (s *idSet) find(id uint64) *uint64 {
	for i := trace.Mix(id, 0) & s.mask; ; i = (i + 1) & s.mask {
		if s.slots[i] == id || s.slots[i] == 0 {
			return &s.slots[i]
		}
	}
}

func (s *idSet) add(id uint64)      { *s.find(id) = id }
func (s *idSet) has(id uint64) bool { return *s.find(id) != 0 }

// remembered is a bounded set of closed traces, by hash of their IDs, with their spans. It forgets a trace after one to
// two windows, or earlier if too many traces are added.
type remembered struct {
	window     time.Duration
	limit      int // maximum number of hashes in a generation
	spanLimit  int // maximum number of spans in a part of a generation's filter
	young, old generation
	began      trace.Nanos // time at which young was started
	since      []uint64    // hashes added since the last drain, at most 2*limit
}

// generation holds the traces added during a window.
type generation struct {
	traces map[uint64]struct{}
	spans  spanFilter
}

// rememberedBytes is the memory of a hash in remembered.young and in remembered.since, in bytes.
const rememberedBytes = 24 + 8

// mostRemembered is the maximum number of hashes in a generation, regardless of the memory available.
const mostRemembered = 2 << 20

// newRemembered returns an empty set that takes about the given number of bytes, half for the hashes and half for the
// spans.
func newRemembered(window time.Duration, bytes int64) remembered {
	part := bytes / 2 / 2 / mostParts * spansPerWord / 8
	return remembered{
		window:    window,
		limit:     max(1, int(min(bytes/2/2/rememberedBytes, mostRemembered))),
		spanLimit: max(fewestInPart, min(1<<(bits.Len64(uint64(max(1, part)))-1), mostInPart)),
	}
}

func (r *remembered) len() int64 { return int64(len(r.young.traces) + len(r.old.traces)) }

func (r *remembered) has(h uint64) bool {
	if _, ok := r.young.traces[h]; ok {
		return true
	}
	_, ok := r.old.traces[h]
	return ok
}

// hasSpan reports whether the trace with hash h contained the span with the given id. It wrongly returns true for about
// one in thirty spans that the trace didn't contain, and it always returns false for recalled traces.
func (r *remembered) hasSpan(h uint64, id trace.SpanID) bool {
	key := trace.Mix(h, uint64(id))
	return r.young.spans.has(key) || r.old.spans.has(key)
}

func (r *remembered) add(h uint64) {
	if len(r.young.traces) >= r.limit {
		r.turn(r.began)
	}
	if r.young.traces == nil {
		r.young.traces = make(map[uint64]struct{})
	}
	r.young.traces[h] = struct{}{}
	if len(r.since) >= 2*r.limit {
		r.since = append(r.since[:0], r.since[r.limit:]...) // the others have been forgotten already
	}
	r.since = append(r.since, h)
}

func (r *remembered) addSpan(h uint64, id trace.SpanID) {
	r.young.spans.add(trace.Mix(h, uint64(id)), r.spanLimit)
}

// forget removes the hashes that are more than two windows old at time now.
func (r *remembered) forget(now trace.Nanos) {
	if r.began == 0 {
		r.began = now
	}
	if now.Sub(r.began) >= r.window {
		r.turn(now)
	}
}

// turn forgets the old hashes and makes the young hashes old.
func (r *remembered) turn(now trace.Nanos) {
	r.old, r.young, r.began = r.young, generation{}, now
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
