package receiver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
)

// TLS names the files of transport security, in PEM. The zero TLS is clear text.
type TLS struct {
	CertFile     string // the server's certificate and those between it and the root
	KeyFile      string
	ClientCAFile string // who may sign certificates of clients, which then must have one; "": they need none
}

// Config reads the files, and returns nil for clear text.
func (t TLS) Config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if t.ClientCAFile == "" {
		return c, nil
	}
	authorities, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("load who signs certificates of clients: %w", err)
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("load who signs certificates of clients: %s: %w", t.ClientCAFile, errNoCertificate)
	}
	return c, nil
}

var errNoCertificate = errors.New("no certificate in PEM")

// Listener accepts at most so many connections at a time. More are closed at once, so that they do not wait unanswered in the
// kernel's queue.
type Listener struct {
	*net.TCPListener
	max     int64
	open    atomic.Int64
	refused atomic.Uint64
}

// Listen opens an address of which at most limit connections are open at a time.
func Listen(ctx context.Context, address string, limit int64) (*Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		panic("listening for TCP gave something else")
	}
	return &Listener{TCPListener: tcp, max: limit}, nil
}

// Load returns how many connections are open, and how many were closed at once since the start; none for a nil listener. It is safe for
// concurrent use.
func (l *Listener) Load() (open int64, refused uint64) {
	if l == nil {
		return 0, 0
	}
	return l.open.Load(), l.refused.Load()
}

// addr is nil for a nil listener.
func (l *Listener) addr() net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// Accept returns the next connection that is not one too many.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.max {
			return &conn{TCPConn: c, left: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		l.refused.Add(1)
		c.Close() //nolint:errcheck // nothing was written to it
	}
}

// conn tells its listener once when it is closed. It has all methods of a TCP connection, by which gRPC waits for one that
// is idle without holding a buffer for it.
type conn struct {
	*net.TCPConn
	left func()
}

// Close closes the connection.
func (c *conn) Close() error {
	c.left()
	return c.TCPConn.Close()
}
