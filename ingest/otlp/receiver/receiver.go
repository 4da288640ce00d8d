// Package receiver takes OTLP export requests from the network, over gRPC and over HTTP, and hands their bytes to an [Intake].
//
// Input: connections of OpenTelemetry SDKs and Collectors. Output: request bodies, uncompressed but not decoded, one call of
// Intake.Take each, and the answer that OTLP prescribes for what Take says. What spans mean is none of its business.
//
// Invariants: what requests hold together is bounded in number and in bytes ([Options]), whoever sends them and whatever they
// expand to, and memory is reserved before it is used; a request that does not fit is answered with a retryable refusal and
// nothing of it reaches the Intake. A request that was acknowledged was taken; one that was refused was not. Clients
// never see errors of the inside.
//
// Source: OTLP specification 1.x (opentelemetry.io/docs/specs/otlp) and the gRPC protocol over HTTP/2 (PROTOCOL-HTTP2).
package receiver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/sibyl-trace/sibyl/internal/connlimit"
)

// Format is how a body is encoded.
type Format uint8

// The formats of OTLP.
const (
	Protobuf Format = iota
	JSON
)

// Intake takes export requests. It is safe for concurrent use.
type Intake interface {
	// Take takes one request, uncompressed. It returns when the request is as durable as configured, and keeps nothing of
	// body. An error that is an *[ingest.RecordError] means that the request is not OTLP; an *[Overload] that nothing was
	// taken and the sender should try again; any other is internal. It returns soon once ctx is done.
	Take(ctx context.Context, body []byte, format Format) (Rejected, error)
}

// Rejected says how many spans of a request were left out. The zero Rejected: none.
type Rejected struct {
	Spans int
	Why   string // safe to show; may say something although no span was left out
}

// Overload refuses a request for now: nothing of it was taken.
type Overload struct {
	Why   string        // safe to show
	After time.Duration // when to try again; 0: a second
}

// Error returns why, for logs.
func (o *Overload) Error() string { return o.Why }

// Options says where to listen and how much to take. A zero field stands for its default.
type Options struct {
	GRPC string        // address of gRPC, host:port; "": off; port 0: any, see [Server.GRPCAddr]
	HTTP string        // address of HTTP, likewise
	TLS  connlimit.TLS // of both; zero: clear text

	Authorized func(token string) bool // checks a bearer token; nil: none is asked for. Safe for concurrent use

	MaxRequestBytes  int64         // largest body, uncompressed; default 64 MiB
	MaxInFlightBytes int64         // what all requests being read, uncompressed or taken may hold together; default 192 MiB
	MaxRequests      int64         // requests at the same time, fewer while they are taken late; default 1024
	MaxConnections   int           // open connections of each of the two; default 1024
	ReadTimeout      time.Duration // from a request's header to the last byte of its body; default 30 s
	IdleTimeout      time.Duration // until a connection without requests is closed; default 5 min

	Refuse  func() *Overload // asked before a body is read: why the Intake would refuse it whatever it holds; nil: it would not. Safe for concurrent use
	Observe func(Event)      // called once for every request, when it was answered; nil: nobody. Safe for concurrent use
	Log     *slog.Logger     // internal errors of the Intake; nil: nowhere
}

// Defaults and fixed limits.
const (
	defaultRequestBytes  = 64 << 20
	defaultInFlightBytes = 160 << 20 // the largest needs 131 MiB; others a quarter to half a MiB
	defaultRequests      = 1024
	defaultConnections   = 1024
	defaultReadTimeout   = 30 * time.Second
	defaultIdleTimeout   = 5 * time.Minute

	headerTimeout   = 10 * time.Second // for a header, or to set a connection up; ReadTimeout if that is shorter
	answerTimeout   = 10 * time.Second // for a client to read its answer
	maxHeaderBytes  = 32 << 10
	maxHeaders      = 256 // fields of one request; SDKs send about ten
	streamsPerConn  = 256 // concurrent gRPC requests of one connection; SDKs and Collectors have 1 to 100
	pingInterval    = 10 * time.Second
	overloadBackoff = time.Second // what a sender is asked to wait if nobody knows better
)

func (o Options) withDefaults() Options {
	o.MaxRequestBytes = or(o.MaxRequestBytes, defaultRequestBytes)
	o.MaxInFlightBytes = or(o.MaxInFlightBytes, defaultInFlightBytes)
	o.MaxRequests = or(o.MaxRequests, defaultRequests)
	o.MaxConnections = or(o.MaxConnections, defaultConnections)
	o.ReadTimeout = or(o.ReadTimeout, defaultReadTimeout)
	o.IdleTimeout = or(o.IdleTimeout, defaultIdleTimeout)
	if o.Refuse == nil {
		o.Refuse = func() *Overload { return nil }
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func or[T ~int | ~int64](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

// errInFlight refuses options with which the largest requests would be asked to try again for ever.
var errInFlight = errors.New("allow more in flight, or smaller requests")

// InFlight returns how many bytes must be allowed in flight so that a request of so many gets in: a body needs its size twice, as it was sent and
// uncompressed, or in pieces and joined; pieces are rounded up.
func InFlight(maxRequestBytes int64) int64 { return 2*maxRequestBytes + 3*maxPiece }

// Server receives OTLP. Its life is New, Listen, Serve, Shutdown.
type Server struct {
	opts   Options
	intake Intake
	budget *budget
	bodies *bodies

	grpc *grpc.Server // nil: off
	http *http.Server // nil: off

	grpcListener, httpListener *connlimit.Listener // set by Listen

	handling sync.RWMutex // read-locked by every handler of HTTP, so that Shutdown can wait for all
}

// New returns a server that hands requests to intake. It opens nothing but the files of TLS.
func New(intake Intake, opts Options) (*Server, error) {
	opts = opts.withDefaults()
	if need := InFlight(opts.MaxRequestBytes); opts.MaxInFlightBytes < need {
		return nil, fmt.Errorf("OTLP requests of %d bytes need %d bytes in flight, but only %d are allowed: %w",
			opts.MaxRequestBytes, need, opts.MaxInFlightBytes, errInFlight)
	}
	encryption, err := opts.TLS.Config()
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, intake: intake, budget: &budget{maxRequests: opts.MaxRequests, maxBytes: opts.MaxInFlightBytes}}
	s.bodies = newBodies(s.budget, opts.MaxRequestBytes)
	if opts.GRPC != "" {
		s.grpc = s.newGRPC(encryption)
	}
	if opts.HTTP != "" {
		s.http = s.newHTTP(encryption)
	}
	return s, nil
}

// Listen opens the addresses. After an error none is open.
func (s *Server) Listen(ctx context.Context) error {
	var err error
	if s.grpc != nil {
		if s.grpcListener, err = s.open(ctx, s.opts.GRPC); err != nil {
			return fmt.Errorf("listen for OTLP over gRPC: %w", err)
		}
	}
	if s.http != nil {
		if s.httpListener, err = s.open(ctx, s.opts.HTTP); err != nil {
			if s.grpcListener != nil {
				err = errors.Join(err, s.grpcListener.Close())
			}
			return fmt.Errorf("listen for OTLP over HTTP: %w", err)
		}
		s.http.ConnState = s.httpListener.State
	}
	return nil
}

// open opens an address.
func (s *Server) open(ctx context.Context, address string) (*connlimit.Listener, error) {
	return connlimit.Open(ctx, address, connlimit.NewShare(s.opts.MaxConnections, s.opts.Log))
}

// GRPCAddr returns the address on which gRPC is really listened for; nil if it is off. To be called after Listen.
func (s *Server) GRPCAddr() net.Addr { return addr(s.grpcListener) }

// HTTPAddr returns the address on which HTTP is really listened for; nil if it is off. To be called after Listen.
func (s *Server) HTTPAddr() net.Addr { return addr(s.httpListener) }

func addr(l *connlimit.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// Serve answers requests until Shutdown, and returns nil then; or until one of the listeners fails, which stops the other one
// and is the error returned.
func (s *Server) Serve() error {
	failed := make(chan error, 2)
	var serving sync.WaitGroup
	if s.grpc != nil {
		serving.Go(func() { failed <- wrap("serve OTLP over gRPC", s.serveGRPC()) })
	}
	if s.http != nil {
		serving.Go(func() { failed <- wrap("serve OTLP over HTTP", s.serveHTTP()) })
	}
	go func() {
		serving.Wait()
		close(failed)
	}()
	var first error
	for err := range failed {
		if err != nil && first == nil {
			first = err
			s.stop()
		}
	}
	return first
}

// serveGRPC returns nil after Shutdown, also if that came first, of which the server of gRPC makes an error.
func (s *Server) serveGRPC() error {
	err := s.grpc.Serve(s.grpcListener)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// serveHTTP returns nil after Shutdown, as serveGRPC does.
func (s *Server) serveHTTP() error {
	var err error
	if s.http.TLSConfig != nil {
		err = s.http.ServeTLS(s.httpListener, "", "")
	} else {
		err = s.http.Serve(s.httpListener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Shutdown takes no more requests and returns when the present ones are answered. When ctx is done first, it closes their
// connections, cancels their contexts, waits for the Intake, which heeds them, and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	var failed error
	var draining sync.WaitGroup
	if s.grpc != nil {
		draining.Go(s.grpc.GracefulStop)
	}
	if s.http != nil {
		draining.Go(func() { failed = s.drainHTTP(ctx) })
	}
	drained := make(chan struct{})
	go func() {
		draining.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-ctx.Done():
		s.stop()
		<-drained
		failed = context.Cause(ctx)
	}
	return wrap("drain the OTLP receivers", failed)
}

// drainHTTP waits for handlers even if ctx is done, as the server of gRPC does by itself.
func (s *Server) drainHTTP(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		s.http.Close() //nolint:errcheck // the error that counts is the first
	}
	s.handling.Lock()
	defer s.handling.Unlock()
	return err
}

// stop closes everything at once.
func (s *Server) stop() {
	if s.grpc != nil {
		s.grpc.Stop()
	}
	if s.http != nil {
		s.http.Close() //nolint:errcheck // closing a listener twice is all that can fail
	}
}

// Load is how much the server is doing.
type Load struct {
	Requests   int64          // being read, uncompressed or taken
	Bytes      int64          // which they hold
	GRPC, HTTP connlimit.Load // connections
}

// Load returns the present load. It is safe for concurrent use once Listen returned.
func (s *Server) Load() Load {
	return Load{
		Requests: s.budget.requests.Load(), Bytes: s.budget.bytes.Load(),
		GRPC: s.grpcListener.Load(), HTTP: s.httpListener.Load(),
	}
}

// encrypted returns a copy of c that offers the given protocol only; nil for clear text.
func encrypted(c *tls.Config, protocol string) *tls.Config {
	if c == nil {
		return nil
	}
	c = c.Clone()
	c.NextProtos = []string{protocol}
	return c
}
