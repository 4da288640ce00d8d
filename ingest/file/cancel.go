package file

import (
	"errors"
	"io"
)

var errCanceled = errors.New("reading was canceled")

// unlessCanceled returns the result of f, or errCanceled if stop is closed first. In that case, f keeps running in its
// goroutine until the process, or the writer of its pipe, ends, because we can't cancel the opening of a pipe without a
// writer, or a read from a pipe or terminal.
func unlessCanceled[T any](stop <-chan struct{}, f func() (T, error)) (T, error) {
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
		return none, errCanceled
	}
}

// cancelableReader reads from a reader that may block forever. It must not be used again after errCanceled.
type cancelableReader struct {
	r    io.Reader
	stop <-chan struct{}
	buf  []byte // not the caller's buffer, which must not change after a read was abandoned
}

// Read implements [io.Reader].
func (w *cancelableReader) Read(p []byte) (int, error) {
	into := w.buf[:min(len(p), len(w.buf))]
	n, err := unlessCanceled(w.stop, func() (int, error) { return w.r.Read(into) })
	return copy(p, into[:n]), err
}
