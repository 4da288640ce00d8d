package control

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

const (
	bodyTimeout = 20 * time.Second // for reading a body, and for waiting until it can be decoded
	freeBytes   = 64 << 10         // bytes of each message that don't count, so that small messages are never refused
)

// errBusy refuses a message because the messages in memory are too large, or because too many of them wait to be
// decoded.
var errBusy = refusal.New(refusal.Overloaded, "too many messages are being processed", "try again")

// Messages limits the memory for messages, and the number of messages that are decoded at a time. It is safe for
// concurrent use.
type Messages struct {
	most     int64 // maximum number of bytes in memory
	buffered atomic.Int64
	decoders chan struct{} // semaphore: half of the cores decode messages, the others send plans
}

func newMessages(most int64) *Messages {
	return &Messages{most: most, decoders: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// Meter counts the bytes of a message while it is read and processed. It is not safe for concurrent use.
type Meter struct {
	messages *Messages
	bytes    int64
}

// Meter returns a new Meter. The caller must call Done once the message has been processed.
func (x *Messages) Meter() *Meter { return &Meter{messages: x} }

// Add counts n more bytes, even if it returns an error. It returns errBusy if all messages together exceed
// [Options.MaxBuffered], unless this message has at most freeBytes.
func (m *Meter) Add(n int) error {
	before := m.counted()
	m.bytes += int64(n)
	if m.messages.buffered.Add(m.counted()-before) > m.messages.most && m.counted() > 0 {
		return errBusy
	}
	return nil
}

// Bytes returns the number of bytes added since the last Done.
func (m *Meter) Bytes() int64 { return m.bytes }

// Done resets m to zero, so that it can be used for another message.
func (m *Meter) Done() {
	m.messages.buffered.Add(-m.counted())
	m.bytes = 0
}

func (m *Meter) counted() int64 { return max(0, m.bytes-freeBytes) }

// meteredReader counts the bytes that it reads with a Meter, and fails if the Meter does.
type meteredReader struct {
	io.Reader
	meter *Meter
}

// Read implements io.Reader.
func (m meteredReader) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	if full := m.meter.Add(n); full != nil {
		return n, full
	}
	return n, err
}

// Body returns the decompressed body of r, which may have at most limit bytes, and no more than [Options.MaxBuffered].
// The caller must call done when it no longer uses the body. The client has [bodyTimeout] to send the body. The error
// is a [*refusal.Error].
func (x *Messages) Body(
	w http.ResponseWriter, r *http.Request, limit int64,
) (body []byte, done func(), err error) {
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout)) // fails only in tests without a network
	m := x.Meter()
	if body, err = readBody(w, r, min(limit, x.most), m); err != nil {
		m.Done()
		return nil, nil, err
	}
	_ = connection.SetReadDeadline(time.Time{}) // for the next request on the connection
	return body, m.Done, nil
}

func readBody(w http.ResponseWriter, r *http.Request, limit int64, m *Meter) ([]byte, error) {
	var from io.Reader = http.MaxBytesReader(w, r.Body, limit)
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, refuseBody(err)
		}
		from = z
	default:
		return nil, &refusal.Error{
			Reason: refusal.UnknownEncoding,
			Detail: "the encoding of the body is unknown",
			Hint:   "send it without one, or with gzip",
			Header: http.Header{"Accept-Encoding": {"gzip"}},
		}
	}
	var b bytes.Buffer
	n, err := b.ReadFrom(meteredReader{io.LimitReader(from, limit+1), m})
	switch {
	case err != nil:
		return nil, refuseBody(err)
	case n > limit:
		return nil, tooLarge(limit)
	}
	return b.Bytes(), nil
}

func tooLarge(limit int64) error {
	return refusal.New(refusal.TooLarge, fmt.Sprintf("a body has at most %d bytes", limit), "")
}

// refuseBody returns the refusal of a body whose reading failed with err.
func refuseBody(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(large.Limit)
	}
	if errors.Is(err, errBusy) || errors.Is(err, os.ErrDeadlineExceeded) {
		return errBusy
	}
	return refusal.New(refusal.Malformed, "the body cannot be read", "")
}

// acquireDecoder waits until the body of r may be decoded. The caller must call release afterwards. Only a few bodies
// are decoded at a time, so that plans aren't delayed. The error is errBusy after bodyTimeout, or the error of the
// request's context.
func (x *Messages) acquireDecoder(r *http.Request) (release func(), err error) {
	timer := time.NewTimer(bodyTimeout)
	defer timer.Stop()
	select {
	case x.decoders <- struct{}{}:
		return func() { <-x.decoders }, nil
	case <-timer.C:
		return nil, errBusy
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
