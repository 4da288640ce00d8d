package receiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sibyl-trace/sibyl/ingest"
)

// Outcome is what became of a request.
type Outcome uint8

// What can become of a request. Only of those that are Accepted was anything taken.
const (
	Accepted        Outcome = iota // though some of its spans may be rejected
	Overloaded                     // the sender should try again
	Malformed                      // not OTLP, or damaged
	TooLarge                       // uncompressed
	TooManyHeaders                 //
	UnknownEncoding                // neither identity nor gzip nor zstd
	UnknownType                    // HTTP only: neither protobuf nor JSON
	UnknownMethod                  // HTTP only: not POST
	UnknownPath                    // HTTP only
	Unauthenticated                // no token, or a wrong one
	TimedOut                       // the body came too slowly
	Canceled                       // the sender went away
	Failed                         // the Intake failed
)

// outcomes says how each is called in metrics and answered.
var outcomes = [...]struct {
	name string
	code codes.Code
	http int
}{
	Accepted:        {"accepted", codes.OK, http.StatusOK},
	Overloaded:      {"overloaded", codes.Unavailable, http.StatusTooManyRequests},
	Malformed:       {"malformed", codes.InvalidArgument, http.StatusBadRequest},
	TooLarge:        {"too_large", codes.ResourceExhausted, http.StatusRequestEntityTooLarge},
	TooManyHeaders:  {"too_many_headers", codes.InvalidArgument, http.StatusRequestHeaderFieldsTooLarge},
	UnknownEncoding: {"unknown_encoding", codes.Unimplemented, http.StatusBadRequest},
	UnknownType:     {"unknown_type", codes.InvalidArgument, http.StatusUnsupportedMediaType},
	UnknownMethod:   {"unknown_method", codes.Unimplemented, http.StatusMethodNotAllowed},
	UnknownPath:     {"unknown_path", codes.NotFound, http.StatusNotFound},
	Unauthenticated: {"unauthenticated", codes.Unauthenticated, http.StatusUnauthorized},
	TimedOut:        {"timed_out", codes.DeadlineExceeded, http.StatusRequestTimeout},
	Canceled:        {"canceled", codes.Canceled, http.StatusRequestTimeout}, // which nobody reads
	Failed:          {"failed", codes.Internal, http.StatusInternalServerError},
}

// String returns the name of o in metrics.
func (o Outcome) String() string { return outcomes[o].name }

// Transport is how a request came.
type Transport uint8

// The transports of OTLP.
const (
	GRPC Transport = iota
	HTTP
)

// String returns the name of t in metrics.
func (t Transport) String() string { return [...]string{GRPC: "grpc", HTTP: "http"}[t] }

// Event tells of one request, after its answer. Connections that never became a request of OTLP tell nothing.
type Event struct {
	Transport Transport
	Outcome   Outcome
	Bytes     int           // of the body, uncompressed; 0 unless it was read
	Rejected  int           // spans
	Duration  time.Duration // from its header to its answer
}

// refusal is the answer to a request that is not taken.
type refusal struct {
	outcome Outcome // not Accepted
	why     string  // safe to show
	after   time.Duration
}

// Error returns what the client is told.
func (r *refusal) Error() string { return r.why }

// status returns the refusal in gRPC's form, with the time to wait if trying again can help.
func (r *refusal) status() *status.Status {
	st := status.New(outcomes[r.outcome].code, r.why)
	if r.outcome != Overloaded {
		return st
	}
	wait := protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(r.after)})
	if detailed, err := st.WithDetails(wait); err == nil {
		return detailed
	}
	return st
}

// overloaded is the refusal of a request that did not fit now.
func overloaded(why string, after time.Duration) *refusal {
	return &refusal{outcome: Overloaded, why: show(why), after: or(after, overloadBackoff)}
}

var (
	errTooMany = overloaded("too many requests at the same time", 0)
	errSlow    = errors.New("the body came too slowly")
)

// enter lets a request in before its body is read; if there is no refusal, leave must follow.
func (s *Server) enter() error {
	if later := s.opts.Refuse(); later != nil {
		return overloaded(later.Why, later.After)
	}
	if !s.budget.enter() {
		return errTooMany
	}
	return nil
}

// take hands a body to the intake and returns what it left out, or a refusal.
func (s *Server) take(ctx context.Context, data []byte, format Format) (Rejected, error) {
	began := time.Now()
	rejected, err := s.intake.Take(ctx, data, format)
	rejected.Why = show(rejected.Why)
	if err == nil {
		s.budget.taken(time.Since(began))
		return rejected, nil
	}
	if later, ok := errors.AsType[*Overload](err); ok {
		return Rejected{}, overloaded(later.Why, later.After)
	}
	if wrong, ok := errors.AsType[*ingest.RecordError](err); ok {
		return Rejected{}, &refusal{outcome: Malformed, why: show(wrong.Error())}
	}
	if ctx.Err() != nil {
		return Rejected{}, &refusal{outcome: Canceled, why: "canceled"}
	}
	s.opts.Log.LogAttrs(ctx, slog.LevelError, "the intake failed", slog.Any("error", err))
	return Rejected{}, &refusal{outcome: Failed, why: "internal error"}
}

// unread returns the refusal of a request whose body could not be read because of err.
func (s *Server) unread(ctx context.Context, err error) *refusal {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused
	}
	switch {
	case errors.Is(err, errOverBudget):
		return overloaded("too many bytes in flight", 0)
	case errors.Is(err, errTooLarge):
		return &refusal{outcome: TooLarge, why: fmt.Sprintf("the request has more than %d bytes uncompressed", s.opts.MaxRequestBytes)}
	case errors.Is(err, errCorrupt):
		return &refusal{outcome: Malformed, why: "the body is not what its encoding says, or needs a window over 8 MiB"}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(context.Cause(ctx), errSlow):
		return &refusal{outcome: TimedOut, why: errSlow.Error()}
	case ctx.Err() != nil:
		return &refusal{outcome: Canceled, why: "canceled"}
	}
	return &refusal{outcome: Malformed, why: "the body is incomplete"}
}

// maxMessage bounds messages to clients, in bytes: gRPC sends them in headers.
const maxMessage = 512

// show returns text as protobuf and headers can carry it.
func show(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
}

// authorized reports whether the value of an Authorization header lets a request in.
func (s *Server) authorized(header string) bool {
	if s.opts.Authorized == nil {
		return true
	}
	scheme, token, _ := strings.Cut(header, " ")
	return strings.EqualFold(scheme, "Bearer") && s.opts.Authorized(strings.TrimSpace(token))
}

// Fields of ExportTraceServiceResponse and of the ExportTracePartialSuccess in it.
const (
	responsePartial = protowire.Number(1)
	partialRejected = protowire.Number(1)
	partialMessage  = protowire.Number(2)
)

// protobuf returns r as an ExportTraceServiceResponse: nothing if there is nothing to say.
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
