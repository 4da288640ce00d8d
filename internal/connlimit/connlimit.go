// Package connlimit opens addresses at which no more connections are open at a time than their share. One too many is closed at once, so that it does not
// wait unanswered in the kernel's queue; or one in which no request is makes room for it.
package connlimit

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Share is how many connections may be open at a time at the addresses that have it together. It is safe for concurrent use.
type Share struct {
	most int
	log  *slog.Logger

	mu   sync.Mutex // guards all below, and the places of connections
	open int
	idle list.List // of *conn: those in which no request is, the longest first
	told time.Time // when the log was last told that there are too many
}

// tellEvery is how often the log is told that there are too many connections.
const tellEvery = time.Minute

// NewShare returns a share of so many connections. Log is told when there are too many.
func NewShare(most int, log *slog.Logger) *Share { return &Share{most: most, log: log} }

// Most returns how many connections may be open at a time.
func (s *Share) Most() int { return s.most }

// enter notes that c is open, and reports whether it may be. The one that had to make room for it is nil if none had to.
func (s *Share) enter(c *conn) (gone *conn, may bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open < s.most {
		s.count(c, 1)
		return nil, true
	}
	if now := time.Now(); now.Sub(s.told) >= tellEvery {
		s.told = now
		s.log.Warn("as many connections are open as may be: those without a request make room, more are closed at once",
			slog.String("address", c.of.Addr().String()), slog.Int("most", s.most))
	}
	longest := s.idle.Front()
	if longest == nil {
		return nil, false
	}
	gone, _ = longest.Value.(*conn) // nothing else is in it
	s.remove(gone)
	s.count(c, 1)
	return gone, true
}

// leave notes that c is closed.
func (s *Share) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(c)
}

// remove forgets c, once. The caller holds mu.
func (s *Share) remove(c *conn) {
	if c.left {
		return
	}
	c.left = true
	s.busy(c)
	s.count(c, -1)
}

// count adds n to the connections that are open. The caller holds mu.
func (s *Share) count(c *conn, n int) {
	s.open += n
	c.of.open.Add(int64(n))
}

// busy notes that a request is in c. The caller holds mu.
func (s *Share) busy(c *conn) {
	if c.place != nil {
		s.idle.Remove(c.place)
		c.place = nil
	}
}

// rest notes whether a request is in c.
func (s *Share) rest(c *conn, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy(c)
	if idle && !c.left {
		c.place = s.idle.PushBack(c)
	}
}

// Listener is an open address. It is safe for concurrent use.
type Listener struct {
	*net.TCPListener
	share         *Share
	open          atomic.Int64
	refused, gone atomic.Uint64
}

// Open opens an address that has a share.
func Open(ctx context.Context, address string, share *Share) (*Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		panic("listening for TCP gave something else")
	}
	return &Listener{TCPListener: tcp, share: share}, nil
}

// Load is how many connections there are.
type Load struct {
	Open    int64
	Most    int    // that may be open, at all addresses with the same share together
	Refused uint64 // closed at once because there were too many, since the start
	Gone    uint64 // without a request, closed to make room for others, since the start
}

// Load returns the present load; none for a nil listener.
func (l *Listener) Load() Load {
	if l == nil {
		return Load{}
	}
	return Load{Open: l.open.Load(), Most: l.share.most, Refused: l.refused.Load(), Gone: l.gone.Load()}
}

// Accept returns the next connection that is not one too many.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		tcp, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		c := &conn{TCPConn: tcp, of: l}
		gone, may := l.share.enter(c)
		switch {
		case !may:
			l.refused.Add(1)
			_ = tcp.Close() // nothing was written to it
			continue
		case gone != nil:
			gone.of.gone.Add(1)
			_ = gone.TCPConn.Close() // whoever reads from it closes it again
		}
		return c, nil
	}
}

// State is the ConnState of an [http.Server] that serves l, or l encrypted. Without it no connection makes room for others.
func (l *Listener) State(c net.Conn, state http.ConnState) {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	if c, ok := c.(*conn); ok {
		l.share.rest(c, state == http.StateNew || state == http.StateIdle)
	}
}

// conn tells its share once when it is closed. It has all methods of a TCP connection, by which gRPC waits for one that is idle without
// holding a buffer for it.
type conn struct {
	*net.TCPConn
	of    *Listener
	place *list.Element // among those that are idle; nil: it is not
	left  bool
}

// Close closes the connection.
func (c *conn) Close() error {
	c.of.share.leave(c)
	return c.TCPConn.Close()
}
