package receiver

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// budget bounds the requests in flight and the memory that they hold. It never waits: a request that waits for memory
// while it holds some could deadlock. It is safe for concurrent use.
//
// Requests share the processor. If that is the bottleneck, each admitted request delays all others, until senders give
// up on half-done work. So the budget admits fewer requests while the Intake is slow. Slow senders do not count.
type budget struct {
	maxRequests, maxBytes int64
	requests, bytes       atomic.Int64
	late                  atomic.Bool // the Intake was slow with the last request
}

const (
	lateAfter    = 100 * time.Millisecond // from the complete body until the Intake returned
	lateRequests = 256                    // admitted then; enough for commits of lateAfter, and few enough for some cores to finish in that time
)

// enter reports whether it admits one more request. After true the caller must call leave.
func (b *budget) enter() bool {
	limit := b.maxRequests
	if b.late.Load() {
		limit = min(limit, lateRequests)
	}
	return take(&b.requests, 1, limit)
}

// taken records how long the Intake took for a request.
func (b *budget) taken(took time.Duration) { b.late.Store(took > lateAfter) }

func (b *budget) leave() { b.requests.Add(-1) }

// reserve reports whether n more bytes fit. After true the caller must call release.
func (b *budget) reserve(n int64) bool { return take(&b.bytes, n, b.maxBytes) }

func (b *budget) release(n int64) { b.bytes.Add(-n) }

// room reports whether n bytes could be reserved now.
func (b *budget) room(n int64) bool { return b.bytes.Load()+n <= b.maxBytes }

// take adds n to total unless the sum would exceed limit, and reports whether it did. An addition that is taken back
// may make another one fail that would have fitted, which costs a retry; the total never exceeds limit.
func take(total *atomic.Int64, n, limit int64) bool {
	if total.Add(n) <= limit {
		return true
	}
	total.Add(-n)
	return false
}

// Sizes of pieces of memory, in bytes: powers of two.
const (
	minPieceBits = 16 // first piece of a body of unknown size
	maxPieceBits = 20 // most bodies need one piece
	maxPiece     = 1 << maxPieceBits
)

// memory keeps pieces for reuse, by size. It is safe for concurrent use.
type memory [maxPieceBits - minPieceBits + 1]sync.Pool

// pieceFor returns the best size of a piece for n bytes, at most maxPiece.
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
