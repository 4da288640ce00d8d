package receiver

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// budget bounds the requests in flight and the memory that they hold. It never waits: who waited for memory while holding
// some could wait for ever. It is safe for concurrent use.
//
// Requests share the processor, so where it is what they wait for, all are done the later the more are let in, until senders give up on
// work that was half done. So when requests are taken late, fewer are let in. Bodies that come slowly are no reason.
type budget struct {
	maxRequests, maxBytes int64
	requests, bytes       atomic.Int64
	late                  atomic.Bool // what was taken last was taken late
}

const (
	lateAfter    = 100 * time.Millisecond // from the complete body until it was taken
	lateRequests = 256                    // that are let in then; enough for commits of lateAfter, and done in that time by some cores
)

// enter reports whether one more request is let in; if so, leave must follow.
func (b *budget) enter() bool {
	limit := b.maxRequests
	if b.late.Load() {
		limit = min(limit, lateRequests)
	}
	return take(&b.requests, 1, limit)
}

// taken says how long it took to take a request.
func (b *budget) taken(took time.Duration) { b.late.Store(took > lateAfter) }

func (b *budget) leave() { b.requests.Add(-1) }

// reserve reports whether n more bytes may be held; if so, release must follow.
func (b *budget) reserve(n int64) bool { return take(&b.bytes, n, b.maxBytes) }

func (b *budget) release(n int64) { b.bytes.Add(-n) }

// room reports whether n bytes could be reserved now.
func (b *budget) room(n int64) bool { return b.bytes.Load()+n <= b.maxBytes }

// take adds n to total unless it would exceed limit. An addition that is taken back may refuse another one that would have
// fitted, which costs a retry; it never lets too much in.
func take(total *atomic.Int64, n, limit int64) bool {
	if total.Add(n) <= limit {
		return true
	}
	total.Add(-n)
	return false
}

// Sizes of pieces of memory, in bytes: powers of two.
const (
	minPieceBits = 16 // where a body of unknown size starts
	maxPieceBits = 20 // most bodies need one piece
	maxPiece     = 1 << maxPieceBits
)

// memory keeps pieces for reuse, by size. It is safe for concurrent use.
type memory [maxPieceBits - minPieceBits + 1]sync.Pool

// pieceFor returns the size of the piece that is best for n bytes, of which one piece may hold a part only.
func pieceFor(n int64) int64 {
	return 1 << min(maxPieceBits, max(minPieceBits, bits.Len64(uint64(max(n, 1)-1))))
}

// alloc returns an empty piece of the given size. Its memory is not cleared.
func (m *memory) alloc(size int64) *[]byte {
	if b, ok := m[bits.TrailingZeros64(uint64(size))-minPieceBits].Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, size)
	return &b
}

func (m *memory) free(b *[]byte) {
	*b = (*b)[:0]
	m[bits.TrailingZeros64(uint64(cap(*b)))-minPieceBits].Put(b)
}
