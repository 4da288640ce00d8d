package opamp

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/open-telemetry/opamp-go/server/types"

	"github.com/sibyl-trace/sibyl/control"
)

// MaxMessage bounds a message, in bytes: catalogues come in one piece.
const MaxMessage = 64 << 20

const (
	longMessage   = 64 << 10    // bytes: a message that is longer must come within messageWithin
	messageWithin = time.Minute // from there on; the first must come within that, too
)

var errMessage = errors.New("a message is too large")

// hijacker gives whoever upgrades a connection to a socket one that bounds messages: the library has no bound.
type hijacker struct {
	http.ResponseWriter
	plane *control.Plane
}

// Hijack implements http.Hijacker.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &socket{Conn: c, meter: h.plane.Meter()}, rw, nil // whoever upgrades has rw read from the socket
}

// socket is a connection of which no more is read than one message may have, until somebody says that the message was taken. It is read by
// the goroutine that takes messages.
type socket struct {
	net.Conn
	meter *control.Meter
	begun bool // it was read from
}

// Read implements net.Conn.
func (s *socket) Read(b []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.hurry()
	}
	n, err := s.Conn.Read(b)
	before := s.meter.Bytes()
	if full := s.meter.Add(n); full != nil {
		return 0, full
	}
	if before <= longMessage && s.meter.Bytes() > longMessage {
		s.hurry()
	}
	if s.meter.Bytes() > MaxMessage {
		return 0, errMessage
	}
	return n, err
}

// hurry has what is read next come within messageWithin, until a message was taken.
func (s *socket) hurry() {
	_ = s.SetReadDeadline(time.Now().Add(messageWithin)) // a connection that is gone fails when it is read
}

// taken notes that the message which came last was worked on.
func taken(conn types.Connection) {
	if s, ok := conn.Connection().(*socket); ok { // over HTTP bodies are bounded
		s.taken()
	}
}

func (s *socket) taken() {
	_ = s.SetReadDeadline(time.Time{}) // as above
	s.meter.Done()
}
