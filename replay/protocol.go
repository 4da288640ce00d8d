package replay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// address returns the host and port of e. If e has no port, it returns the scheme instead of the port.
func (e *Endpoint) address() string {
	port := e.url.Port()
	if port == "" {
		port = e.url.Scheme // http and https are also names of ports
	}
	return net.JoinHostPort(e.url.Hostname(), port)
}

// wrong returns an error with a remedy if no request to e can succeed, because nothing listens at the address, the
// address serves another protocol, or its certificate isn't valid. It returns nil if that isn't certain. It connects to
// the address itself, because the errors of clients don't distinguish these cases: gRPC reports a text, and HTTP a
// malformed response.
func (e *Endpoint) wrong(ctx context.Context) error {
	if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: e.url}); err != nil || proxy != nil {
		return nil // the connections below would bypass it
	}
	s, err := encrypted(ctx, e.address())
	if nobodyListens(err) {
		return fmt.Errorf("nothing listens at %s: start sibyl serve first, or name another endpoint with --to",
			e.address())
	}
	if err != nil {
		if s.scheme, err = clearText(ctx, e.address()); err != nil {
			return nil
		}
	}
	wanted, tls := strings.CutSuffix(e.url.Scheme, "s")
	switch {
	case s.scheme != "" && s.scheme != wanted:
		return e.errOther(s, wanted)
	case s.tls && !tls:
		return e.errTLS()
	case !s.tls && tls:
		return fmt.Errorf("%s does not speak TLS: use --to %s://%s", e.address(), wanted, e.address())
	case s.invalid != nil:
		return fmt.Errorf("connect to %s: %w; SSL_CERT_FILE can name the file of another certificate authority",
			e.address(), s.invalid)
	}
	return nil
}

// errTLS returns the error for an endpoint without TLS whose address requires it.
func (e *Endpoint) errTLS() error {
	return fmt.Errorf("%s requires TLS: use --to %ss://%s", e.address(), e.url.Scheme, e.address())
}

// errOther returns the error for an address that serves s although the endpoint expects wanted, a scheme without its
// suffix for TLS.
func (e *Endpoint) errOther(s served, wanted string) error {
	grpc, http := "grpc://", "http://"
	if s.tls {
		grpc, http = "grpcs://", "https://"
	}
	host := e.url.Hostname()
	return fmt.Errorf("%s speaks %s, not %s: Sibyl usually receives OTLP over gRPC at port 4317 (--to %s) and over "+
		"HTTP at port 4318 (--to %s)",
		e.address(), protocols[s.scheme], protocols[wanted], grpc+net.JoinHostPort(host, "4317"),
		http+net.JoinHostPort(host, "4318"))
}

// protocols holds the names of protocols by the schemes of endpoints without TLS.
var protocols = map[string]string{"grpc": "gRPC", "http": "HTTP"}

// served is the protocol that an address serves.
type served struct {
	scheme  string // grpc or http; empty if unknown
	tls     bool
	invalid error // error in the certificate; nil if it is valid or there is no certificate
}

// probeTimeout is the timeout of a connection that probes an address. It leaves a busy machine enough time for a
// handshake.
const probeTimeout = 5 * time.Second

// encrypted returns the protocol that address serves with TLS. It returns an error if it can't connect or if address
// doesn't serve TLS.
func encrypted(ctx context.Context, address string) (served, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if invalid, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return served{tls: true, invalid: invalid}, nil
	}
	if err != nil {
		return served{}, err
	}
	s := served{tls: true}
	// Both may run over h2.
	if c, ok := c.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "http/1.1" {
		s.scheme = "http"
	}
	return s, c.Close()
}

// nobodyListens reports whether err says that a host is unknown or refused the connection.
func nobodyListens(err error) bool {
	unknown, ok := errors.AsType[*net.DNSError](err)
	return errors.Is(err, syscall.ECONNREFUSED) || ok && unknown.IsNotFound
}

// http2 is the start of every HTTP/2 connection: the preface and a settings frame, which is empty here (RFC 9113,
// section 3.4).
const http2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// clearText returns the scheme of the protocol that address serves without TLS. It sends the start of an HTTP/2
// connection. If the response is in HTTP/1, the scheme is http; if it is a settings frame, the scheme is grpc.
// clearText returns an error if it can't connect or gets no response.
func clearText(ctx context.Context, address string) (scheme string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })() // aborts a blocked read
	defer func() { _ = c.Close() }()                         // nothing is lost
	answer := make([]byte, len("HTTP/1."))
	if _, err := io.WriteString(c, http2); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(c, answer); err != nil {
		return "", err
	}
	const settings = 4 // the type of a frame follows its length of three bytes
	switch {
	case string(answer) == "HTTP/1.":
		return "http", nil
	case answer[3] == settings:
		return "grpc", nil
	}
	return "", fmt.Errorf("%s answers neither with HTTP/1 nor with HTTP/2", address)
}
