package receiver

import (
	"container/list"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// budget limits the requests in flight and the memory that they hold. It never blocks, because a request that waits for
// memory while it holds some could deadlock. It is safe for concurrent use.
//
// Requests share the processor. If the processor is the bottleneck, each admitted request delays all others, until
// senders give up on half-done work. The budget therefore admits fewer requests while the Intake is slow. Slow senders
// don't reduce the limit.
//
// Slow senders must not take the slots and the memory of others, no matter how many slow senders there are. If either
// runs short, the budget cuts off the slow body that has been arriving for the longest time.
type budget struct {
	maxRequests, maxBytes int64
	slow                  time.Duration // minimum age of an arriving body to count as slow
	bytes                 atomic.Int64
	late                  atomic.Bool // the Intake took longer than lateAfter for the last request

	mu       sync.Mutex // guards the fields below and the fields of places
	requests int64
	arriving list.List // elements are *place whose body is arriving, oldest first
}

// place is the slot of one request in flight.
type place struct {
	of    *budget
	began time.Time
	cut   func()        // aborts the reading of the body
	entry *list.Element // element in budget.arriving; nil if the body has arrived or was cut off
	held  bool          // whether it counts in budget.requests
}

const (
	lateAfter = 100 * time.Millisecond // maximum time that the Intake may take without counting as slow
	// lateRequests is the maximum number of requests while the Intake is slow: enough if commits take lateAfter, and
	// few enough for a few cores to finish in that time.
	lateRequests = 256
	slowAfter    = time.Second // age at which an arriving body counts as slow; a tenth of this usually suffices
	// cutShare is the inverse of the fraction of free memory below which slow bodies are cut off, before other requests
	// are refused.
	cutShare = 4
)

// enter admits one more request, or returns nil if there are too many. The caller must call arrived once it has the
// body, and must always call leave. cut must abort the reading of the body without blocking. cut is called at most
// once, before arrived returns.
func (b *budget) enter(cut func()) *place {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.maxRequests
	if b.late.Load() {
		limit = min(limit, lateRequests)
	}
	for b.requests >= limit {
		if !b.cutSlowest() {
			return nil
		}
	}
	b.requests++
	p := &place{of: b, began: time.Now(), cut: cut, held: true}
	p.entry = b.arriving.PushBack(p)
	return p
}

// cutSlowest cuts off the body that has been arriving for the longest time and frees its slot. It returns false if no
// body is arriving or the oldest isn't slow yet. The memory of the body is freed once its reader notices. The caller
// must hold b.mu.
func (b *budget) cutSlowest() bool {
	oldest := b.arriving.Front()
	if oldest == nil {
		return false
	}
	p, _ := oldest.Value.(*place) // the list contains nothing else
	if time.Since(p.began) < b.slow {
		return false
	}
	p.settle()
	p.release()
	p.cut()
	return true
}

// settle removes p from the arriving bodies, which must contain it. The caller must hold p.of.mu.
func (p *place) settle() {
	p.of.arriving.Remove(p.entry)
	p.entry = nil
}

// release frees the slot, unless it is already free. The caller must hold p.of.mu.
func (p *place) release() {
	if p.held {
		p.held = false
		p.of.requests--
	}
}

// arrived records that the body has arrived, so that it can no longer be cut off. It returns false if the body has
// already been cut off.
func (p *place) arrived() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.entry != nil {
		p.settle()
	}
	return p.held
}

// leave frees the slot, unless it was already freed when the body was cut off.
func (p *place) leave() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.entry != nil {
		p.settle()
	}
	p.release()
}

// inFlight returns the number of requests in flight.
func (b *budget) inFlight() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// taken records the time that the Intake took for a request, to detect when the Intake is slow.
func (b *budget) taken(took time.Duration) { b.late.Store(took > lateAfter) }

// reserve reserves n bytes and returns true, or returns false if they don't fit. The caller must release reserved
// bytes.
func (b *budget) reserve(n int64) bool {
	ok := take(&b.bytes, n, b.maxBytes)
	if !ok || b.bytes.Load() > b.maxBytes-b.maxBytes/cutShare {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.cutSlowest()
	}
	return ok
}

func (b *budget) release(n int64) { b.bytes.Add(-n) }

// room reports whether n bytes could be reserved now.
func (b *budget) room(n int64) bool { return b.bytes.Load()+n <= b.maxBytes }

// take adds n to total unless the sum would exceed limit, and reports whether it did. The total never exceeds limit. An
// addition that is about to be reverted may make a concurrent addition fail that would have fitted; that only costs a
// retry.
func take(total *atomic.Int64, n, limit int64) bool {
	if total.Add(n) <= limit {
		return true
	}
	total.Add(-n)
	return false
}

// Sizes of memory pieces, in bytes and as powers of two.
const (
	minPieceBits = 16 // first piece of a body of unknown size
	maxPieceBits = 20 // largest piece; most bodies need only one
	minPiece     = 1 << minPieceBits
	maxPiece     = 1 << maxPieceBits
)

// memory keeps pieces for reuse, by size. It is safe for concurrent use.
type memory [maxPieceBits - minPieceBits + 1]sync.Pool

// pieceFor returns the size of the smallest piece with room for n bytes, or maxPiece if no piece has room for them.
func pieceFor(n int64) int64 {
	return 1 << min(maxPieceBits, max(minPieceBits, bits.Len64(uint64(max(n, 1)-1))))
}

// alloc returns an empty piece with the given capacity, which must be a result of pieceFor. Its memory isn't cleared.
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
