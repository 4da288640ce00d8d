// Package connlimit provides TCP listeners that share a connection limit. At the limit, a new connection makes the
// package close an idle connection. If all connections are busy, it closes the new one instead of leaving it in the
// accept queue.
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

// Share limits the number of connections that are open at the same time on all listeners that use it. It is safe for
// concurrent use.
type Share struct {
	most int
	log  *slog.Logger

	mu     sync.Mutex // guards the fields below, and place, working and left of conns
	open   int
	idle   list.List // of *conn without a request, longest idle first
	warned time.Time // time of the last log message about the limit
}

// warnInterval is the interval between log messages about the limit.
const warnInterval = time.Minute

// NewShare returns a Share that allows at most `most` open connections. It logs when the limit is reached.
func NewShare(most int, log *slog.Logger) *Share { return &Share{most: most, log: log} }

// enter admits c if possible. may reports whether c may stay open. gone is an idle connection that the caller must
// close to make room for c, or nil.
func (s *Share) enter(c *conn) (gone *conn, may bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open < s.most {
		s.admit(c)
		return nil, true
	}
	if now := time.Now(); now.Sub(s.warned) >= warnInterval {
		s.warned = now
		s.log.Warn("the connection limit is reached: idle connections are closed to make room; without any, new "+
			"ones are closed at once",
			slog.String("address", c.of.Addr().String()), slog.Int("most", s.most))
	}
	longest := s.idle.Front()
	if longest == nil {
		return nil, false
	}
	gone, _ = longest.Value.(*conn) // the list contains nothing else
	s.remove(gone)
	s.admit(c)
	return gone, true
}

// admit counts c as open. The caller must hold s.mu.
func (s *Share) admit(c *conn) {
	s.count(c, 1)
	if c.of.byWork {
		c.place = s.idle.PushBack(c)
	}
}

// leave removes c from s when c is closed.
func (s *Share) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(c)
}

// remove removes c unless it has been removed already. The caller must hold s.mu.
func (s *Share) remove(c *conn) {
	if c.left {
		return
	}
	c.left = true
	s.busy(c)
	s.count(c, -1)
}

// count adds n to the numbers of open connections of s and of c's listener. The caller must hold s.mu.
func (s *Share) count(c *conn, n int) {
	s.open += n
	c.of.open.Add(int64(n))
}

// busy marks c as not idle. The caller must hold s.mu.
func (s *Share) busy(c *conn) {
	if c.place != nil {
		s.idle.Remove(c.place)
		c.place = nil
	}
}

// rest marks c as idle if idle is set and the server isn't working on a request for c, and as busy otherwise.
func (s *Share) rest(c *conn, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restLocked(c, idle)
}

// restLocked is like rest, but the caller must hold s.mu. A connection that remains idle keeps its position in s.idle
// even if its client sends data, because receiving data isn't work.
func (s *Share) restLocked(c *conn, idle bool) {
	switch {
	case !idle || c.left || c.working > 0:
		s.busy(c)
	case c.place == nil:
		c.place = s.idle.PushBack(c)
	}
}

// work adds n to the number of requests that the server is working on for c.
func (s *Share) work(c *conn, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.working += n
	s.restLocked(c, true)
}

// Listener is a TCP listener whose connections count towards a [Share]. It is safe for concurrent use.
type Listener struct {
	*net.TCPListener
	share         *Share
	byWork        bool // see [Listener.ByWork]
	open          atomic.Int64
	refused, gone atomic.Uint64
}

// Open listens on hostPort. The connections count towards share.
func Open(ctx context.Context, hostPort string, share *Share) (*Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", hostPort)
	if err != nil {
		return nil, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		panic("listening for TCP gave something else")
	}
	return &Listener{TCPListener: tcp, share: share}, nil
}

// ByWork makes connections of l count as idle unless the server reports with [Working] that it is working on a request.
// The connections of clients that are slow to send requests or to read answers can then be closed, too, to make room
// for others. Call it before Accept.
func (l *Listener) ByWork() { l.byWork = true }

// Working marks a connection as not idle until done is called. local is the local address of the connection, as found
// in the request. Working ignores addresses of other listeners.
func Working(local net.Addr) (done func()) {
	a, ok := local.(address)
	if !ok {
		return func() {}
	}
	a.conn.of.share.work(a.conn, 1)
	return func() { a.conn.of.share.work(a.conn, -1) }
}

// Load counts the connections of a listener.
type Load struct {
	Open    int64
	Most    int    // limit of the share on open connections
	Refused uint64 // connections closed at once because of the limit, since the start
	Gone    uint64 // idle connections closed to make room for others, since the start
}

// Load returns the current load. It is zero for a nil listener.
func (l *Listener) Load() Load {
	if l == nil {
		return Load{}
	}
	return Load{Open: l.open.Load(), Most: l.share.most, Refused: l.refused.Load(), Gone: l.gone.Load()}
}

// Accept returns the next connection within the limit.
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
			_ = gone.TCPConn.Close() // its reader closes it again
		}
		return c, nil
	}
}

// State is the ConnState of an [http.Server] that serves l, possibly over TLS. Without it, connections of l never count
// as idle.
func (l *Listener) State(c net.Conn, state http.ConnState) {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	if c, ok := c.(*conn); ok {
		l.share.rest(c, state == http.StateNew || state == http.StateIdle || l.byWork && state == http.StateActive)
	}
}

// conn is a connection that leaves its share when it is closed. It has all methods of a TCP connection, so that gRPC
// can wait for data on an idle connection without holding a buffer.
type conn struct {
	*net.TCPConn
	of      *Listener
	place   *list.Element // in Share.idle; nil if not idle
	working int           // number of requests; see [Working]
	left    bool
}

// address is the local address of a connection.
type address struct {
	net.Addr
	conn *conn
}

// LocalAddr returns the local address of c, wrapped so that [Working] can find c from it.
func (c *conn) LocalAddr() net.Addr { return address{c.TCPConn.LocalAddr(), c} }

// Close closes the connection.
func (c *conn) Close() error {
	c.of.share.leave(c)
	return c.TCPConn.Close()
}
