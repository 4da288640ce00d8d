// Package listener opens, serves and drains the HTTP and gRPC listeners of a service, optionally over TLS, within a
// shared connection limit.
package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/sibyl-trace/sibyl/internal/connlimit"
)

// Config describes a listener to open.
type Config struct {
	Name    string // name of the service in errors, such as "the API"
	Address string // host:port; empty if disabled
	Share   *connlimit.Share
	TLS     *tls.Config  // nil for clear text
	ByWork  bool         // for HTTP; see [connlimit.Listener.ByWork]. gRPC always works this way
	Log     *slog.Logger // receives errors of single connections at debug level
}

// Default limits on connections and their headers.
const (
	headerTimeout = 10 * time.Second // for a header or a handshake
	idleTimeout   = 2 * time.Minute
	maxHeader     = 32 << 10
)

// Listener is a listening socket and the server behind it. Create one with OpenHTTP or OpenGRPC, call Serve, then Drain
// or Close. A nil Listener is valid and disabled: it has no address and no load.
type Listener struct {
	*connlimit.Listener

	name  string
	serve func() error
	drain func(context.Context) error
	stop  func() error
}

// OpenHTTP opens a listener for server, and sets the server's missing limits, its log and its ConnState. It returns nil
// if c has no address. The server only supports HTTP/1.
func OpenHTTP(ctx context.Context, c Config, server *http.Server) (*Listener, error) {
	l, err := open(ctx, c)
	if l == nil {
		return nil, err
	}
	if c.ByWork {
		l.ByWork()
	}
	var conns net.Listener = l.Listener
	if c.TLS != nil {
		conns = tls.NewListener(conns, only(c.TLS, "http/1.1"))
	}
	setIfZero(&server.ReadHeaderTimeout, headerTimeout)
	setIfZero(&server.IdleTimeout, idleTimeout)
	setIfZero(&server.MaxHeaderBytes, maxHeader)
	server.ErrorLog = slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug)
	server.ConnState = l.State
	l.serve = func() error { return server.Serve(conns) }
	l.drain = server.Shutdown
	l.stop = server.Close
	return l, nil
}

// OpenGRPC opens a listener for the server that newServer returns. It returns nil if c has no address. A connection
// counts as idle unless a handler reports with [connlimit.Working] that it is working on a request of this connection.
func OpenGRPC(ctx context.Context, c Config, newServer func(...grpc.ServerOption) *grpc.Server) (*Listener, error) {
	l, err := open(ctx, c)
	if l == nil {
		return nil, err
	}
	l.ByWork()
	options := []grpc.ServerOption{grpc.ConnectionTimeout(headerTimeout), grpc.MaxHeaderListSize(maxHeader)}
	if c.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(only(c.TLS, "h2"))))
	}
	server := newServer(options...)
	l.serve = func() error { return server.Serve(l.Listener) }
	l.drain = func(ctx context.Context) error {
		defer context.AfterFunc(ctx, server.Stop)() // ends GracefulStop
		server.GracefulStop()
		return context.Cause(ctx) // nil unless ctx is done
	}
	l.stop = func() error { server.Stop(); return nil }
	return l, nil
}

// open listens on the address of c. The caller adds the server. It returns nil if c has no address.
func open(ctx context.Context, c Config) (*Listener, error) {
	if c.Address == "" {
		return nil, nil
	}
	conns, err := connlimit.Open(ctx, c.Address, c.Share)
	if err != nil {
		return nil, &AddressError{c.Name, c.Address, err}
	}
	return &Listener{Listener: conns, name: c.Name}, nil
}

// AddressError is the error for an address on which the service cannot listen.
type AddressError struct {
	Name, Address string // as configured
	Err           error
}

func (e *AddressError) Error() string { return fmt.Sprintf("listen for %s: %v", e.Name, e.Err) }
func (e *AddressError) Unwrap() error { return e.Err }

// only returns a copy of c that offers one application protocol.
func only(c *tls.Config, protocol string) *tls.Config {
	c = c.Clone()
	c.NextProtos = []string{protocol}
	return c
}

func setIfZero[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Serve serves requests and returns nil after Drain or Close, even if one of them was called before. It returns an
// error if accepting connections fails.
func (l *Listener) Serve() error {
	err := l.serve()
	if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.name, err)
}

// Drain accepts no more requests and returns when the current ones are answered. If ctx is done first, it closes their
// connections, which cancels their contexts, and returns an error. In that case it still waits for gRPC handlers, but
// not for HTTP handlers.
func (l *Listener) Drain(ctx context.Context) error {
	if err := l.drain(ctx); err != nil {
		return errors.Join(fmt.Errorf("drain %s: %w", l.name, err), l.stop())
	}
	return nil
}

// Close closes the listener and all connections at once. It may be called repeatedly, and before Serve.
func (l *Listener) Close() error {
	_ = l.stop() // fails only if the listener is already closed
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Addr returns the actual address, with its port, or nil if l is nil.
func (l *Listener) Addr() net.Addr {
	if l == nil {
		return nil
	}
	return l.Listener.Addr()
}

// Load returns the current load. It is zero if l is nil.
func (l *Listener) Load() connlimit.Load {
	if l == nil {
		return connlimit.Load{}
	}
	return l.Listener.Load()
}
