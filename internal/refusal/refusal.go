// Package refusal provides the error with which a service refuses a request, and writes it over HTTP and gRPC.
//
// An [Error] contains only text that may be shown to clients. Errors of other types are internal: the caller logs them
// and answers with [Failure].
package refusal

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// Reason is the kind of a refusal, from a small fixed set, so that it can be a metric label. A Reason is an error, so
// that callers can test for it: errors.Is(err, refusal.Overloaded).
type Reason uint8

// The reasons.
const (
	None            Reason = iota // the request was accepted
	Overloaded                    // temporary: too many requests, a full disk, starting or stopping; nothing was done
	Malformed                     // cannot be decoded
	Invalid                       // can be decoded, but breaks a rule
	TooLarge                      // the uncompressed body is too large
	TooManyHeaders                // the request has too many header fields
	UnknownEncoding               // the encoding of the body is unknown
	UnknownType                   // the type of the body is unknown
	UnknownMethod                 // the HTTP method is unknown
	UnknownPath                   // the HTTP path is unknown
	NotAcceptable                 // the client accepts no available representation
	NotFound                      // the resource does not exist or was deleted
	Conflict                      // conflicts with the current state
	Unauthenticated               // the token is missing or unknown
	Forbidden                     // not allowed for this client
	TimedOut                      // the body arrived too slowly
	Canceled                      // canceled by the client
	Failed                        // an internal error
)

// reasons holds the name of each Reason, its usual HTTP status and its gRPC code. Some protocols prescribe another
// status; see [Error.Status].
var reasons = [...]struct {
	name string
	http int
	grpc codes.Code
}{
	None:            {"accepted", http.StatusOK, codes.OK},
	Overloaded:      {"overloaded", http.StatusServiceUnavailable, codes.Unavailable},
	Malformed:       {"malformed", http.StatusBadRequest, codes.InvalidArgument},
	Invalid:         {"invalid", http.StatusUnprocessableEntity, codes.InvalidArgument},
	TooLarge:        {"too_large", http.StatusRequestEntityTooLarge, codes.ResourceExhausted},
	TooManyHeaders:  {"too_many_headers", http.StatusRequestHeaderFieldsTooLarge, codes.InvalidArgument},
	UnknownEncoding: {"unknown_encoding", http.StatusUnsupportedMediaType, codes.Unimplemented},
	UnknownType:     {"unknown_type", http.StatusUnsupportedMediaType, codes.InvalidArgument},
	UnknownMethod:   {"unknown_method", http.StatusMethodNotAllowed, codes.Unimplemented},
	UnknownPath:     {"unknown_path", http.StatusNotFound, codes.NotFound},
	NotAcceptable:   {"not_acceptable", http.StatusNotAcceptable, codes.InvalidArgument},
	NotFound:        {"not_found", http.StatusNotFound, codes.NotFound},
	Conflict:        {"conflict", http.StatusConflict, codes.Aborted},
	Unauthenticated: {"unauthenticated", http.StatusUnauthorized, codes.Unauthenticated},
	Forbidden:       {"forbidden", http.StatusForbidden, codes.PermissionDenied},
	TimedOut:        {"timed_out", http.StatusRequestTimeout, codes.DeadlineExceeded},
	Canceled:        {"canceled", http.StatusRequestTimeout, codes.Canceled},
	Failed:          {"failed", http.StatusInternalServerError, codes.Internal},
}

// String returns the name of r in metrics.
func (r Reason) String() string { return reasons[r].name }

// Error returns the name of r.
func (r Reason) Error() string { return r.String() }

// Error refuses a request. errors.Is(err, r) reports whether err contains an Error with the [Reason] r. An Error is
// immutable once it is shared.
type Error struct {
	Reason Reason
	Detail string        // description of the error for people
	Hint   string        // remedy; may be empty
	After  time.Duration // time to wait before a retry; 0 if retrying does not help
	Status int           // HTTP status; 0 means the usual status of Reason
	Header http.Header   // header fields of the answer over HTTP, such as Allow; may be nil
}

// New returns an Error with the usual status of reason. hint may be empty.
func New(reason Reason, detail, hint string) *Error {
	return &Error{Reason: reason, Detail: detail, Hint: hint}
}

// Failure returns the refusal for an internal error. The caller logs the error.
func Failure() *Error { return New(Failed, "internal error", "Sibyl's log has the details") }

// Error returns the detail and the hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Detail
	}
	return e.Detail + ": " + e.Hint
}

// Is reports whether target is the Reason of e, for [errors.Is].
func (e *Error) Is(target error) bool {
	r, ok := target.(Reason)
	return ok && r == e.Reason
}

// Later returns a copy of e that asks the client to retry after d.
func (e *Error) Later(d time.Duration) *Error {
	later := *e
	later.After = d
	return &later
}

// maxText is the maximum length of texts for clients, in bytes. gRPC sends these texts in headers.
const maxText = 512

// Text returns text as valid UTF-8 of at most maxText bytes, as required by protobuf and headers.
func Text(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}
