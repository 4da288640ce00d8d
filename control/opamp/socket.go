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

// MaxMessage is the maximum size of a message in bytes. It is large because a whole catalogue is one message.
const MaxMessage = 64 << 20

const (
	longMessage    = 64 << 10    // messageTimeout starts after this many bytes
	messageTimeout = time.Minute // for the first message, and for the rest of any long message
)

var errMessage = errors.New("a message is too large")

// hijacker wraps hijacked connections in sockets to limit the size of messages, because the library doesn't.
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
	return &socket{Conn: c, meter: h.plane.Messages.Meter()}, rw, nil // the library makes rw read from the socket
}

// socket is a connection that limits the size of a message and the time to read it. Only the goroutine that reads
// messages calls its methods.
type socket struct {
	net.Conn
	meter *control.Meter
	begun bool // Read was called
}

// Read implements net.Conn.
func (s *socket) Read(b []byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.startTimeout()
	}
	n, err := s.Conn.Read(b)
	before := s.meter.Bytes()
	if full := s.meter.Add(n); full != nil {
		return 0, full
	}
	if before <= longMessage && s.meter.Bytes() > longMessage {
		s.startTimeout()
	}
	if s.meter.Bytes() > MaxMessage {
		return 0, errMessage
	}
	return n, err
}

// startTimeout sets the deadline for the message that is being read.
func (s *socket) startTimeout() {
	_ = s.SetReadDeadline(time.Now().Add(messageTimeout)) // if it fails, so does Read
}

// endMessage records that the last message on conn has been processed, so that its bytes no longer count.
func endMessage(conn types.Connection) {
	if s, ok := conn.Connection().(*socket); ok { // over HTTP, Body limits messages
		s.endMessage()
	}
}

func (s *socket) endMessage() {
	_ = s.SetReadDeadline(time.Time{}) // if it fails, so does Read
	s.meter.Done()
}
