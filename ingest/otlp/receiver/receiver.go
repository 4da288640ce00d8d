// Package receiver receives OTLP export requests over gRPC and HTTP, and spans of Zipkin over HTTP, and passes their
// bodies to an [Intake].
//
// Input: connections from OpenTelemetry SDKs and Collectors. Output: request bodies, uncompressed but not decoded, each
// passed to one call of Intake.Take, and the answer that OTLP prescribes for the result. The package does not interpret
// spans.
//
// Invariants: the number of requests and the memory that they hold together are bounded ([Options]), whatever clients
// send and however much it expands; memory is reserved before it is used. Bodies that arrive slowly do not keep slots,
// memory or connections from others. A request that there is no room for gets a retryable refusal and never reaches the
// Intake. An acknowledged request was taken; a refused one was not. Clients never see internal errors.
//
// Source: OTLP specification 1.x (opentelemetry.io/docs/specs/otlp) and the gRPC protocol over HTTP/2
// (PROTOCOL-HTTP2).
package receiver

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/internal/listener"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Format is the format of a request body.
type Format uint8

// The formats of OTLP, and JSON of Zipkin, version 2.
const (
	Protobuf Format = iota
	JSON
	Zipkin
)

// Intake takes export requests. Implementations must be safe for concurrent use.
type Intake interface {
	// Take takes one uncompressed request. It returns once the request is as durable as configured. It must not retain
	// body. A *[refusal.Error] means that nothing was taken and the sender should retry. An *[ingest.RecordError] means
	// that the request is not in its format. Any other error is internal. Take returns soon after ctx is done.
	Take(ctx context.Context, body []byte, format Format) (Rejected, error)
}

// Rejected counts the rejected spans of a request. The zero value means that all were accepted.
type Rejected struct {
	Spans int
	Why   string // shown to clients; may be set although Spans is 0
}

// Options configures a [Server]. Zero fields stand for their defaults.
type Options struct {
	GRPC string        // host:port of gRPC; "" means off, and port 0 any port, see [Server.GRPCAddr]
	HTTP string        // address of HTTP, like GRPC
	TLS  connlimit.TLS // encryption of both addresses; clear text if zero

	// Route returns the destination of the requests of a sender, or a refusal such as [ErrUnauthorized]. If Route is
	// nil or returns nil, requests go to the Intake of [New]. It must be safe for concurrent use.
	Route func(Sender) (*Destination, error)

	// Foreign reports whether to refuse a request over HTTP because it may come from a web page of another site. If
	// Foreign is nil, no request is refused for that reason. It isn't needed if senders need a token, since such pages
	// don't have one. It must be safe for concurrent use.
	Foreign func(*http.Request) bool

	MaxRequestBytes  int64         // largest body, uncompressed; default 64 MiB
	MaxInFlightBytes int64         // memory for all requests being read, uncompressed or taken; default 160 MiB
	MaxRequests      int64         // concurrent requests, or fewer while the Intake is slow; default [DefaultRequests]
	MaxConnections   int           // open connections of each address; default 1024
	Decoders         int           // bodies uncompressed in parallel; default one per core
	ReadTimeout      time.Duration // from the header of a request to the last byte of its body; default 30 s
	IdleTimeout      time.Duration // time until a connection without requests is closed; default 5 min

	// Refuse is called before a body is read and returns the refusal that the Intake would currently return for any
	// request, or nil. It must be safe for concurrent use and may be nil.
	Refuse  func() *refusal.Error
	Observe func(Event)  // called once for every answered request; may be nil. Safe for concurrent use
	Log     *slog.Logger // internal errors of the Intake; discarded if nil
}

// Defaults of [Options] and fixed limits.
const (
	defaultRequestBytes  = 64 << 20
	defaultInFlightBytes = 160 << 20 // the largest request needs 131 MiB, typical ones a quarter to half a MiB
	DefaultRequests      = 1024
	defaultConnections   = 1024
	defaultReadTimeout   = 30 * time.Second
	defaultIdleTimeout   = 5 * time.Minute

	headerTimeout   = 10 * time.Second // for a header or the setup of a connection; ReadTimeout if that is shorter
	answerTimeout   = 10 * time.Second // for a client to read the answer
	maxHeaderBytes  = 32 << 10
	maxHeaders      = 256 // maximum number of header fields of a request; SDKs send about ten
	streamsPerConn  = 256 // concurrent gRPC requests per connection; SDKs and Collectors have 1 to 100
	pingInterval    = 10 * time.Second
	overloadBackoff = time.Second // delay before a retry if the refusal has none of its own
)

func (o Options) withDefaults() Options {
	o.MaxRequestBytes = or(o.MaxRequestBytes, defaultRequestBytes)
	o.MaxInFlightBytes = or(o.MaxInFlightBytes, defaultInFlightBytes)
	o.MaxRequests = or(o.MaxRequests, DefaultRequests)
	o.MaxConnections = or(o.MaxConnections, defaultConnections)
	o.Decoders = or(o.Decoders, runtime.GOMAXPROCS(0))
	o.ReadTimeout = or(o.ReadTimeout, defaultReadTimeout)
	o.IdleTimeout = or(o.IdleTimeout, defaultIdleTimeout)
	if o.Refuse == nil {
		o.Refuse = func() *refusal.Error { return nil }
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

// errInFlight rejects options with which the largest requests would always be refused.
var errInFlight = errors.New("allow more in flight, or smaller requests")

// InFlight returns the smallest MaxInFlightBytes that admits a request of maxRequestBytes. Each body is briefly held
// twice: either compressed and uncompressed, or in pieces and joined. Pieces are rounded up in size.
func InFlight(maxRequestBytes int64) int64 { return 2*maxRequestBytes + 3*maxPiece }

// Server receives OTLP. Its life cycle is New, Listen, Serve, Shutdown.
type Server struct {
	opts Options
	tls  *tls.Config  // nil for clear text
	main *Destination // for requests that Options.Route sends nowhere else

	grpc, http *listener.Listener // set by Listen; nil if off

	handling sync.RWMutex // read-locked by every HTTP handler, so that Shutdown can wait for all
}

// New returns a server that passes requests to intake. It reads the TLS files but doesn't listen yet. It returns an
// error if the files can't be used or opts.MaxInFlightBytes is too small.
func New(intake Intake, opts Options) (*Server, error) {
	main, err := NewDestination(intake, opts)
	if err != nil {
		return nil, err
	}
	encryption, err := opts.TLS.Config()
	if err != nil {
		return nil, err
	}
	return &Server{opts: main.opts, tls: encryption, main: main}, nil
}

// Listen starts listening on the addresses in the options. If it fails, it closes any listener that it has opened.
func (s *Server) Listen(ctx context.Context) (err error) {
	if s.grpc, err = listener.OpenGRPC(ctx, s.listenerConfig("OTLP over gRPC", s.opts.GRPC), s.newGRPC); err != nil {
		return err
	}
	if s.http, err = listener.OpenHTTP(ctx, s.listenerConfig("OTLP over HTTP", s.opts.HTTP), s.newHTTP()); err != nil {
		s.Close()
		return err
	}
	return nil
}

func (s *Server) listenerConfig(name, address string) listener.Config {
	return listener.Config{
		Name:    name,
		Address: address,
		Share:   connlimit.NewShare(s.opts.MaxConnections, s.opts.Log),
		TLS:     s.tls,
		ByWork:  true,
		Log:     s.opts.Log,
	}
}

// listeners returns the listeners that aren't disabled.
func (s *Server) listeners() []*listener.Listener {
	var open []*listener.Listener
	for _, l := range []*listener.Listener{s.grpc, s.http} {
		if l != nil {
			open = append(open, l)
		}
	}
	return open
}

// GRPCAddr returns the address that gRPC is served on, or nil if gRPC is off. Call it after Listen.
func (s *Server) GRPCAddr() net.Addr { return s.grpc.Addr() }

// HTTPAddr returns the address that HTTP is served on, or nil if HTTP is off. Call it after Listen.
func (s *Server) HTTPAddr() net.Addr { return s.http.Addr() }

// Serve answers requests until Shutdown is called, and then returns nil. If one of the listeners fails, Serve closes
// the other and returns the error.
func (s *Server) Serve() error {
	var serving errgroup.Group
	for _, l := range s.listeners() {
		serving.Go(func() error {
			err := l.Serve()
			if err != nil {
				s.Close()
			}
			return err
		})
	}
	return serving.Wait()
}

// Shutdown stops accepting requests and returns nil once the current ones have been answered. If ctx is done first,
// Shutdown closes their connections, cancels their contexts so that the Intake returns soon, waits for that, and
// returns an error that wraps the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	var draining errgroup.Group
	for _, l := range s.listeners() {
		draining.Go(func() error { return l.Drain(ctx) })
	}
	err := draining.Wait()
	s.handling.Lock()
	defer s.handling.Unlock()
	return err
}

// Close closes all listeners and connections at once.
func (s *Server) Close() {
	for _, l := range s.listeners() {
		_ = l.Close() // the caller has the relevant error
	}
}

// Load is the current load of a [Server]. Requests and Bytes count only requests for the Intake passed to [New].
type Load struct {
	Requests   int64          // number of requests being read, uncompressed or taken
	Bytes      int64          // memory held by these requests in bytes
	GRPC, HTTP connlimit.Load // connections
}

// Load returns the current load. It is safe for concurrent use after Listen.
func (s *Server) Load() Load {
	return Load{
		Requests: s.main.budget.inFlight(), Bytes: s.main.budget.bytes.Load(),
		GRPC: s.grpc.Load(), HTTP: s.http.Load(),
	}
}
