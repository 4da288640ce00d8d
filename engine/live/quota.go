package live

import (
	"fmt"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// quota limits the accepted spans per second. A request may exceed it, because its spans are counted only after it is
// accepted; later requests are then refused until the average is below the quota again. It is safe for concurrent use.
type quota struct {
	rate float64 // spans per second; 0 means unlimited

	mu    sync.Mutex // guards the fields below
	left  float64    // spans that may still be accepted; negative if the quota is exceeded
	spans int64      // number of spans accepted until at
	at    time.Time  // zero before the first request
}

const (
	quotaBurst    = 2 * time.Second  // size of a burst, as a time at the full rate
	quotaMaxDelay = 30 * time.Second // maximum delay before a retry, because senders' timeouts and queues are limited
)

// exceeded returns a refusal if more spans have been accepted than the quota allows, and nil otherwise. spans is the
// number of spans accepted since the start.
func (q *quota) exceeded(now time.Time, spans int64) *refusal.Error {
	if q.rate == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	most := q.rate * quotaBurst.Seconds()
	if q.at.IsZero() {
		q.left, q.spans, q.at = most, spans, now
	}
	q.left = min(q.left+now.Sub(q.at).Seconds()*q.rate, most) - float64(spans-q.spans)
	q.spans, q.at = spans, now
	if q.left >= 0 {
		return nil
	}
	delay := time.Duration(-q.left / q.rate * float64(time.Second)).Round(time.Second)
	return refusal.New(refusal.Overloaded, fmt.Sprintf("the quota of %g spans per second is used up", q.rate), "").
		Later(min(max(delay, time.Second), quotaMaxDelay))
}
