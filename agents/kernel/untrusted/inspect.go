package untrusted

import (
	"cmp"
	"sync/atomic"
	"time"
)

// maxLate bounds the inspections without an answer. Each of them holds a thread.
const maxLate = 32

// Inspector runs inspections of processes. Each may take forever: a process decides when its files and the memory
// that maps them answer, if the file system is its own. The zero value is ready.
type Inspector struct {
	// Patience is the time for which callers wait for an answer while no other is late; 0: one second.
	Patience time.Duration
	late     atomic.Int32
}

// Answer is that of an inspection.
type Answer[T any] struct{ c chan T }

// Inspect runs an inspection, which must not touch anything that its caller uses, and waits a short time for its
// answer. It returns nil if too many others have none.
func Inspect[T any](i *Inspector, inspection func() T) *Answer[T] {
	late := i.late.Add(1) - 1
	if late >= maxLate {
		i.late.Add(-1)
		return nil
	}
	a, done := &Answer[T]{make(chan T, 1)}, make(chan struct{})
	go func() {
		defer i.late.Add(-1)
		a.c <- inspection()
		close(done)
	}()
	// Each answer that is late shortens the wait for others: all together take less than twice the patience.
	timer := time.NewTimer(cmp.Or(i.Patience, time.Second) / time.Duration((late+1)*(late+1)))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return a
}

// Take returns the answer, once; ok is false as long as there is none.
func (a *Answer[T]) Take() (answer T, ok bool) {
	select {
	case answer = <-a.c:
		return answer, true
	default:
		return answer, false
	}
}
