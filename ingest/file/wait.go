package file

import (
	"errors"
	"io"
)

var errStopped = errors.New("reading was stopped")

// unlessStopped returns what f returns, or errStopped if stop is closed first. Then f is left behind: opening a pipe that nobody
// writes to, or reading from it or from a terminal, cannot be taken back. It ends with its writer or with the process.
func unlessStopped[T any](stop <-chan struct{}, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-stop:
		var none T
		return none, errStopped
	}
}

// waitingReader reads from what may wait for ever. After errStopped it must not be read again.
type waitingReader struct {
	r    io.Reader
	stop <-chan struct{}
	buf  []byte // not the caller's, who goes on without a read that is left behind
}

// Read reads unless it is stopped.
func (w *waitingReader) Read(p []byte) (int, error) {
	into := w.buf[:min(len(p), len(w.buf))]
	n, err := unlessStopped(w.stop, func() (int, error) { return w.r.Read(into) })
	return copy(p, into[:n]), err
}
