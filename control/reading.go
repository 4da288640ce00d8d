package control

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Bounds of what is read at a time.
const (
	bodyWithin = 20 * time.Second // from the first byte of a body to the last, and for a turn
	freeBytes  = 64 << 10         // of a body that count towards nothing: whoever sends little is read whatever others do
)

// errBusy refuses a body because too many bytes are being read, or too many bodies are being processed.
var errBusy = refusal.New(refusal.Overloaded, "too much is being read", "try again")

// Meter counts the bytes of a body while it is being read and worked on. It is for one goroutine.
type Meter struct {
	plane *Plane
	bytes int64
}

// Meter returns a Meter of nothing yet. Done is to be called.
func (p *Plane) Meter() *Meter { return &Meter{plane: p} }

// Add counts n bytes more. It returns an error if all bodies together have too many.
func (m *Meter) Add(n int) error {
	before := m.counted()
	m.bytes += int64(n)
	if m.plane.reading.Add(m.counted()-before) > m.plane.options.Reading && m.counted() > 0 {
		return errBusy
	}
	return nil
}

// Bytes returns how many were added since Done.
func (m *Meter) Bytes() int64 { return m.bytes }

// Done counts them no more.
func (m *Meter) Done() {
	m.plane.reading.Add(-m.counted())
	m.bytes = 0
}

func (m *Meter) counted() int64 { return max(0, m.bytes-freeBytes) }

// metered is a reader whose bytes are counted.
type metered struct {
	io.Reader
	meter *Meter
}

// Read implements io.Reader.
func (m metered) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	if full := m.meter.Add(n); full != nil {
		return n, full
	}
	return n, err
}

// Body returns the body of a request, at most the given number of bytes when it is decompressed, and a function to call
// when it is not used any more. The body must arrive within [bodyWithin]. An error is a [*refusal.Error].
func (p *Plane) Body(w http.ResponseWriter, r *http.Request, most int64) (body []byte, done func(), err error) {
	deadlines := http.NewResponseController(w)
	_ = deadlines.SetReadDeadline(time.Now().Add(bodyWithin)) // what has no deadlines is no network
	m := p.Meter()
	if body, err = uncompressed(w, r, most, m); err != nil {
		m.Done()
		return nil, nil, err
	}
	_ = deadlines.SetReadDeadline(time.Time{}) // the connection is used again
	return body, m.Done, nil
}

func uncompressed(w http.ResponseWriter, r *http.Request, most int64, m *Meter) ([]byte, error) {
	var from io.Reader = http.MaxBytesReader(w, r.Body, most)
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, broken(err)
		}
		from = z
	default:
		return nil, &refusal.Error{
			Reason: refusal.UnknownEncoding, Detail: "the encoding of the body is unknown", Hint: "send it without one, or with gzip",
			Header: http.Header{"Accept-Encoding": {"gzip"}},
		}
	}
	var b bytes.Buffer
	n, err := b.ReadFrom(metered{io.LimitReader(from, most+1), m})
	switch {
	case err != nil:
		return nil, broken(err)
	case n > most:
		return nil, tooLarge(most)
	}
	return b.Bytes(), nil
}

func tooLarge(most int64) error {
	return refusal.New(refusal.TooLarge, fmt.Sprintf("a body has at most %d bytes", most), "")
}

// broken returns the refusal of a body that cannot be read because of err.
func broken(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(large.Limit)
	}
	if errors.Is(err, errBusy) || errors.Is(err, os.ErrDeadlineExceeded) {
		return errBusy
	}
	return refusal.New(refusal.Malformed, "the body cannot be read", "")
}

// turn waits until the body of a request may be worked on. Few are at a time, so that plans do not wait for that.
func (p *Plane) turn(r *http.Request) (done func(), err error) {
	timer := time.NewTimer(bodyWithin)
	defer timer.Stop()
	select {
	case p.bodies <- struct{}{}:
		return func() { <-p.bodies }, nil
	case <-timer.C:
		return nil, errBusy
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
