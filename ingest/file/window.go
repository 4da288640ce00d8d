package file

import (
	"errors"
	"fmt"
	"io"
)

// errLimit is returned for data that must be held in memory but exceeds the limit.
var errLimit = errors.New("larger than the limit")

// window buffers a section of a stream. buf[pos:end] is unread. If keep is not negative, buf[keep:pos] is held for the
// caller.
type window struct {
	r     io.Reader
	buf   []byte
	pos   int
	end   int
	keep  int
	base  int64 // offset of buf[0] in the stream
	limit int   // maximum number of held bytes
	lost  bool  // the held bytes exceeded the limit and were discarded
	err   error // error from r; io.EOF at its end
}

// windowSize is the minimum size of a window, and of a read from a disk or a decompressor.
const windowSize = 256 << 10

func newWindow(r io.Reader, limit int) *window {
	return &window{r: r, buf: make([]byte, windowSize), keep: -1, limit: limit}
}

// offset returns the offset of the next byte in the stream.
func (w *window) offset() int64 { return w.base + int64(w.pos) }

// unread returns the unread bytes in memory.
func (w *window) unread() []byte { return w.buf[w.pos:w.end] }

// fill reads more bytes. If the held bytes exceed the limit, it discards them and sets w.lost. fill returns io.EOF at
// the end of the stream, errLimit if there is still no room, and otherwise any error of the reader.
func (w *window) fill() error {
	if w.err != nil {
		return w.err
	}
	from := w.pos
	if w.keep >= 0 {
		from = w.keep
	}
	if w.end == len(w.buf) && w.end >= w.limit && w.keep == 0 && w.pos > 0 {
		w.keep, w.lost, from = -1, true, w.pos
	}
	if w.end == len(w.buf) && from > 0 {
		w.end = copy(w.buf, w.buf[from:w.end])
		w.base += int64(from)
		w.pos -= from
		if w.keep >= 0 {
			w.keep = 0
		}
	}
	if w.end == len(w.buf) {
		if w.end >= w.limit {
			return fmt.Errorf("%w of %d bytes", errLimit, w.limit)
		}
		w.buf = append(w.buf, make([]byte, min(len(w.buf), w.limit-len(w.buf)))...)
	}
	n, err := w.r.Read(w.buf[w.end:])
	w.end += n
	if w.err = err; n > 0 {
		return nil
	}
	return err
}

// peek returns the next n bytes without consuming them, or fewer at the end of the stream, after an error, or at the
// limit. A later call to fill returns the error.
func (w *window) peek(n int) []byte {
	for w.end-w.pos < n && w.fill() == nil {
	}
	return w.buf[w.pos:min(w.pos+n, w.end)]
}

// next consumes and returns the next byte.
func (w *window) next() (byte, error) {
	for w.pos == w.end {
		if err := w.fill(); err != nil {
			return 0, err
		}
	}
	w.pos++
	return w.buf[w.pos-1], nil
}

// space consumes white space and returns the byte that follows without consuming it.
func (w *window) space() (byte, error) {
	for {
		c, err := w.next()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			w.pos--
			return c, nil
		}
	}
}

// hold starts holding the bytes that are consumed from then on.
func (w *window) hold() { w.keep, w.lost = w.pos, false }

// held returns the bytes consumed since hold. It must not be called if they were lost.
func (w *window) held() []byte { return w.buf[w.keep:w.pos] }

// drop ends a hold and shrinks the buffer if it has become large.
func (w *window) drop() {
	w.keep, w.lost = -1, false
	if len(w.buf) > 16*windowSize && w.end-w.pos <= windowSize {
		buf := make([]byte, windowSize)
		n := copy(buf, w.buf[w.pos:w.end])
		w.base += int64(w.pos)
		w.buf, w.pos, w.end = buf, 0, n
	}
}
