package untrusted

import (
	"cmp"
	"sync/atomic"
	"time"
)

// maxLate limits the number of inspections without an answer, because each of them occupies a thread.
const maxLate = 32

// Inspector runs inspections of processes. An inspection may take forever: a process that controls a file system can
// delay reads of files in it, and of memory that maps such files, for as long as it likes. The zero value is ready to
// use.
type Inspector struct {
	// Patience is the time that callers wait for an answer while no other answer is late. The default is one second.
	Patience time.Duration
	late     atomic.Int32
}

// Answer is the result of an inspection that may still be running.
type Answer[T any] struct{ c chan T }

// Inspect runs an inspection and waits a short time for its answer. The inspection must not access data of the caller,
// because it may still be running when Inspect returns. Inspect returns nil if too many other inspections have no
// answer yet.
func Inspect[T any](i *Inspector, inspection func() T) *Answer[T] {
	late := i.late.Add(1) - 1
	if late >= maxLate {
		i.late.Add(-1)
		return nil
	}
	a, done := &Answer[T]{make(chan T, 1)}, make(chan struct{})
	go func() {
		a.c <- inspection()
		i.late.Add(-1) // first, or it would shorten the caller's next wait
		close(done)
	}()
	// Each late answer shortens the wait for others, so all together take less than twice the patience.
	timer := time.NewTimer(cmp.Or(i.Patience, time.Second) / time.Duration((late+1)*(late+1)))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return a
}

// Take returns the answer, but only once. ok is false if there is no answer yet, or if it has been taken.
func (a *Answer[T]) Take() (answer T, ok bool) {
	select {
	case answer = <-a.c:
		return answer, true
	default:
		return answer, false
	}
}
