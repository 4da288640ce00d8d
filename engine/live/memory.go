package live

import (
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

// heapWatch measures the heap. The limits of all parts of the service are estimates, so it has the last word: while
// live objects take more than the limit, or all memory more than mappedShare of it, requests are refused, and senders
// try again later. Open traces and requests in flight then make room within a minute, and garbage at once. It is safe
// for concurrent use.
type heapWatch struct {
	limit     uint64       // of live bytes; 0: unlimited
	blamed    func() bool  // reports whether this service fills the heap; nil: there is no other
	now       atomic.Int64 // time of the last measurement in ns
	collected atomic.Int64 // time of the last collection that it started
	over      atomic.Bool
}

// mappedShare is the memory that the process may have, in fifths of the limit on live objects, before requests are
// refused. Many senders can fill the memory with garbage faster than it is collected.
const mappedShare = 8

const (
	heapInterval       = 5 * time.Millisecond // between measurements
	collectionInterval = time.Second          // between collections while the limit is exceeded
)

// full reports whether live objects took more than the limit after the last garbage collection, or the process takes
// too much now.
func (w *heapWatch) full() bool {
	now, last := time.Now().UnixNano(), w.now.Load()
	if w.limit == 0 || now-last < int64(heapInterval) || !w.now.CompareAndSwap(last, now) {
		return w.over.Load()
	}
	s := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(s)
	over := w.exceeded(s[0].Value.Uint64(), s[1].Value.Uint64()-s[2].Value.Uint64())
	w.over.Store(over)
	// While requests are refused, little memory is allocated, so no collection would start by itself.
	last = w.collected.Load()
	if over && now-last > int64(collectionInterval) && w.collected.CompareAndSwap(last, now) {
		go runtime.GC()
	}
	return over
}

// exceeded reports whether requests are to be refused because of these numbers of bytes in live objects and in all. If
// other services share the heap, those that fill it are refused first, and garbage is theirs, so that the flood of one
// doesn't stop the others.
func (w *heapWatch) exceeded(live, all uint64) bool {
	if live <= w.limit && all <= w.limit/5*mappedShare {
		return false
	}
	return w.blamed == nil || w.blamed() || live > w.limit+w.limit/10
}
