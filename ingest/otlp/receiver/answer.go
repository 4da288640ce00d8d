package receiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/connlimit"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Transport is the protocol below OTLP.
type Transport uint8

// The transports of OTLP.
const (
	GRPC Transport = iota
	HTTP
)

// String returns the name of t in metrics.
func (t Transport) String() string { return [...]string{GRPC: "grpc", HTTP: "http"}[t] }

// Event describes an answered request. Connections that never sent an OTLP request cause no event.
type Event struct {
	Transport Transport
	Refused   refusal.Reason // None if accepted, even if some of its spans are rejected
	Bytes     int            // size of the uncompressed body; 0 if it wasn't read
	Rejected  int            // spans
	Duration  time.Duration  // from the request's header to its answer
}

// prescribed holds the HTTP statuses that OTLP prescribes for refusals, where they differ from our usual ones.
var prescribed = map[refusal.Reason]int{
	refusal.Overloaded:      http.StatusTooManyRequests,
	refusal.UnknownEncoding: http.StatusBadRequest,
}

// refuse returns a refusal with the status that OTLP prescribes. detail is shown to clients.
func refuse(reason refusal.Reason, detail string) *refusal.Error {
	e := refusal.New(reason, detail, "")
	e.Status = prescribed[reason]
	return e
}

// overloaded returns the refusal of a request that doesn't fit now. It asks the client to retry after the given time,
// or after one second if after is 0.
func overloaded(detail string, after time.Duration) *refusal.Error {
	return refuse(refusal.Overloaded, detail).Later(or(after, overloadBackoff))
}

var (
	errTooMany = overloaded("too many requests at the same time", 0)
	errYielded = overloaded("the body came too slowly while others waited", 0)
	errSlow    = errors.New("the body came too slowly")
)

// enter admits a request before its body is read, or returns a refusal. See [budget.enter] for cut and the returned
// place.
func (s *Server) enter(cut func()) (*place, error) {
	if refused := s.opts.Refuse(); refused != nil {
		return nil, overloaded(refused.Error(), refused.After)
	}
	p := s.budget.enter(cut)
	if p == nil {
		return nil, errTooMany
	}
	return p, nil
}

// take passes data, a body, to the Intake and returns the spans that it rejected, or a refusal. local is the local
// address of the connection.
func (s *Server) take(ctx context.Context, local net.Addr, data []byte, format Format) (Rejected, error) {
	defer connlimit.Working(local)()
	began := time.Now()
	rejected, err := s.intake.Take(ctx, data, format)
	rejected.Why = refusal.Text(rejected.Why)
	if err == nil {
		s.budget.taken(time.Since(began))
		return rejected, nil
	}
	if refused, ok := errors.AsType[*refusal.Error](err); ok {
		return Rejected{}, overloaded(refused.Error(), refused.After)
	}
	if wrong, ok := errors.AsType[*ingest.RecordError](err); ok {
		return Rejected{}, refuse(refusal.Malformed, wrong.Error())
	}
	if ctx.Err() != nil {
		return Rejected{}, refuse(refusal.Canceled, "canceled")
	}
	s.opts.Log.LogAttrs(ctx, slog.LevelError, "the intake failed", slog.Any("error", err))
	return Rejected{}, refuse(refusal.Failed, "internal error")
}

// unread returns the refusal of a request whose body couldn't be read because of err.
func (s *Server) unread(ctx context.Context, err error) *refusal.Error {
	if refused, ok := errors.AsType[*refusal.Error](err); ok {
		return refused
	}
	switch {
	case errors.Is(err, errCutOff), errors.Is(context.Cause(ctx), errCutOff):
		return errYielded
	case errors.Is(err, errOverBudget):
		return overloaded("too many bytes in flight", 0)
	case errors.Is(err, errTooLarge):
		return refuse(refusal.TooLarge,
			fmt.Sprintf("the request has more than %d bytes uncompressed", s.opts.MaxRequestBytes))
	case errors.Is(err, errCorrupt):
		return refuse(refusal.Malformed, "the body does not match its encoding, or needs a window over 8 MiB")
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed), errors.Is(context.Cause(ctx), errSlow):
		return refuse(refusal.TimedOut, errSlow.Error())
	case ctx.Err() != nil:
		return refuse(refusal.Canceled, "canceled")
	}
	return refuse(refusal.Malformed, "the body is incomplete")
}

// authorized reports whether header, an Authorization header from the address `from`, has a token that may send traces,
// or no token is needed.
func (s *Server) authorized(header, from string) bool {
	if s.opts.Authorized == nil {
		return true
	}
	scheme, token, _ := strings.Cut(header, " ")
	return strings.EqualFold(scheme, "Bearer") && s.opts.Authorized(strings.TrimSpace(token), from)
}

// errUnauthorized refuses a request without a valid token.
var errUnauthorized = &refusal.Error{
	Reason: refusal.Unauthenticated,
	Detail: "a valid bearer token is needed",
	Header: http.Header{"Www-Authenticate": {"Bearer"}},
}

// Field numbers of ExportTraceServiceResponse and of the ExportTracePartialSuccess in it.
const (
	responsePartial = protowire.Number(1)
	partialRejected = protowire.Number(1)
	partialMessage  = protowire.Number(2)
)

// protobuf returns r as an ExportTraceServiceResponse, or nil if r is zero.
func (r Rejected) protobuf() []byte {
	var partial []byte
	if r.Spans != 0 {
		partial = protowire.AppendTag(partial, partialRejected, protowire.VarintType)
		partial = protowire.AppendVarint(partial, uint64(r.Spans))
	}
	if r.Why != "" {
		partial = protowire.AppendTag(partial, partialMessage, protowire.BytesType)
		partial = protowire.AppendString(partial, r.Why)
	}
	if partial == nil {
		return nil
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, responsePartial, protowire.BytesType), partial)
}
