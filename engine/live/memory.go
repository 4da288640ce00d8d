package live

import (
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// heapWatch measures the heap and makes the final decision on whether requests are accepted, because the limits in
// other parts of the service are only estimates. Requests are refused while the live objects exceed the limit, or all
// memory exceeds mappedShare fifths of the limit; senders then retry later. Meanwhile, open traces and requests in
// flight are released within a minute, and garbage at once. It is safe for concurrent use.
type heapWatch struct {
	limit     uint64       // on live objects, in bytes; 0 means unlimited
	blamed    func() bool  // reports whether this service fills the heap; nil if no other service shares it
	now       atomic.Int64 // time of the last measurement in ns
	collected atomic.Int64 // time of the last collection started by full
	accused   atomic.Int64 // time in ns when this service was last blamed for a full heap
	over      atomic.Bool
}

// mappedShare is the memory above which requests are refused, in fifths of the limit on live objects. This second limit
// is needed because many senders can fill the memory with garbage faster than it is collected.
const mappedShare = 8

const (
	heapInterval       = 5 * time.Millisecond // between measurements
	collectionInterval = time.Second          // between collections while the limit is exceeded
	blameTime          = 10 * time.Minute     // that a service is blamed for a full heap, at least
)

// liveHeap is the metric for the bytes of live objects at the last garbage collection.
const liveHeap = "/gc/heap/live:bytes"

// Heap returns the size of the live objects of the process at the last garbage collection, in bytes.
func Heap() uint64 {
	s := []metrics.Sample{{Name: liveHeap}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// full reports whether live objects exceeded the limit at the last garbage collection, or the process currently uses
// too much memory. It measures at most once per heapInterval.
func (w *heapWatch) full() bool {
	now, last := time.Now().UnixNano(), w.now.Load()
	if w.limit == 0 || now-last < int64(heapInterval) || !w.now.CompareAndSwap(last, now) {
		return w.over.Load()
	}
	s := []metrics.Sample{
		{Name: liveHeap},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(s)
	over := w.exceeded(now, s[0].Value.Uint64(), s[1].Value.Uint64()-s[2].Value.Uint64())
	w.over.Store(over)
	// While requests are refused, little memory is allocated, so that no collection would start on its own.
	last = w.collected.Load()
	if over && now-last > int64(collectionInterval) && w.collected.CompareAndSwap(last, now) {
		go runtime.GC()
	}
	return over
}

// exceeded reports whether to refuse requests at time now in ns, given the sizes in bytes of live objects and of all
// memory. If several services share the heap, the services that fill it refuse first, and garbage is attributed to
// them. So a flood of requests to one service doesn't stop the others. The blame outlasts the open traces of a flood:
// what the flood has left in the statistics still fills the heap, and the next requests would add to it.
func (w *heapWatch) exceeded(now int64, live, all uint64) bool {
	if live <= w.limit && all <= w.limit/5*mappedShare {
		return false
	}
	if w.blamed == nil || w.blamed() {
		w.accused.Store(now)
		return true
	}
	return now-w.accused.Load() < int64(blameTime) || live > w.limit+w.limit/10
}
