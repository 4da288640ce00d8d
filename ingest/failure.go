package ingest

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"strconv"

	"github.com/sibyl-trace/sibyl/trace"
)

// FailureRules is a set of [trace.FailureRule] values: bit i stands for rule i.
type FailureRules uint8

// AllFailureRules is the set of all rules.
const AllFailureRules FailureRules = 1<<trace.FailureRules - 1

// NewFailureRules returns the rules with the given names. It returns an error for unknown names.
func NewFailureRules(names ...string) (FailureRules, error) {
	var set FailureRules
	for _, name := range names {
		r, ok := trace.ParseFailureRule(name)
		if !ok {
			return 0, fmt.Errorf("unknown rule for failures %q", name)
		}
		set |= 1 << r
	}
	return set, nil
}

// FailureRuleNames returns the names of all rules in the configuration, strongest first.
func FailureRuleNames() []string { return trace.FailureRuleNames() }

func (s FailureRules) has(r trace.FailureRule) bool { return s&(1<<r) != 0 }

// sign is a kind of attribute that can indicate a failure.
type sign uint8

const (
	statusText sign = iota // OK or ERROR
	httpCode
	grpcCode // a number, possibly as text, or a name
	errorType
	errorTag
)

// signKeys are the attributes that indicate failures. They come from the current and former semantic conventions of
// OpenTelemetry and from OpenTracing, Zipkin and Envoy.
var signKeys = [...]struct {
	name string
	sign sign
}{
	{"otel.status_code", statusText}, // in formats without a status
	{"http.response.status_code", httpCode},
	{"http.status_code", httpCode},
	{"rpc.response.status_code", grpcCode},
	{"rpc.grpc.status_code", grpcCode},
	{"rpc.connect_rpc.error_code", grpcCode},
	{"grpc.status_code", grpcCode},
	{"error.type", errorType},
	{"error", errorTag},
}

// FailureKeys returns the set of keys that indicate failures. Unlike with other sets, the values of these keys become
// attributes.
func FailureKeys() *Keys {
	var names []string
	for i := range signKeys {
		names = append(names, signKeys[i].name)
	}
	keys, err := NewKeys(names...)
	if err != nil {
		panic(err) // there are fewer than MaxKeys
	}
	return keys
}

// Status is the status of a span, numbered as in OTLP.
type Status uint8

// The status codes.
const (
	StatusUnset Status = iota
	StatusOK
	StatusError
)

// Escape is the fate of a recorded exception: its span handled it, or it left the span.
type Escape uint8

// The values of Escape. The current conventions no longer have exception.escaped, and say that only exceptions that the
// operation does not handle should be recorded.
const (
	_ Escape = iota // no exception
	Handled
	EscapeUnknown
	Escaped
)

// Names that identify exceptions: the name of their events, and the attribute that says whether they left the span.
const (
	ExceptionEvent   = "exception"
	ExceptionEscaped = "exception.escaped"
)

// EscapeOf interprets v as the value of exception.escaped. It returns EscapeUnknown if v is neither "true" nor "false".
func EscapeOf(v Value) Escape {
	switch {
	case !v.Numeric && bytes.EqualFold(v.Text, trueText):
		return Escaped
	case !v.Numeric && bytes.EqualFold(v.Text, falseText):
		return Handled
	}
	return EscapeUnknown
}

// signs collects everything that can indicate a failure of the current span.
type signs struct {
	status     Status // status of the span
	text       Status // status given by an attribute
	http       uint16 // 0 if unknown
	grpc       uint8  // code + 1; 0 if unknown
	errorType  bool
	errorTag   bool
	clientsTag bool // error or error.type is a 4xx code
	exception  Escape
}

// Status sets the status of the current span. The last call wins.
func (b *Builder) Status(s Status) { b.signs.status = s }

// Exception records an exception event of the current span. If a span has several, the worst one counts.
func (b *Builder) Exception(e Escape) { b.signs.exception = max(b.signs.exception, e) }

// add interprets v as the value of signKeys[key]. Meaningless values have no effect.
func (s *signs) add(key int, v Value) {
	switch signKeys[key].sign {
	case statusText:
		switch string(v.Text) {
		case "OK":
			s.text = StatusOK
		case "ERROR":
			s.text = StatusError
		}
	case httpCode:
		if code, ok := v.code(); ok {
			s.addHTTP(code)
		}
	case grpcCode:
		if code, ok := grpcCodeOf(v); ok {
			s.grpc = code + 1
		}
	case errorType:
		s.errorType = s.errorType || v.Numeric || len(v.Text) != 0
		s.addTag(v)
	case errorTag:
		set := v.Numeric && v.Number != 0 || !v.Numeric && len(v.Text) != 0 && !bytes.EqualFold(v.Text, falseText)
		s.errorTag = s.errorTag || set
		s.addTag(v)
	}
}

// addNumber is like add, but for a number that is probably a status code.
func (s *signs) addNumber(key int, n uint16) {
	if signKeys[key].sign == httpCode {
		s.addHTTP(int(n))
	} else {
		s.add(key, Value{Number: float64(n), Numeric: true})
	}
}

func (s *signs) addHTTP(code int) {
	if 100 <= code && code < 1000 {
		s.http = uint16(code)
	}
}

var trueText, falseText = []byte("true"), []byte("false")

// addTag records whether v, the value of error or error.type, is a 4xx code. Zipkin's instrumentation copies the
// response code to the tag, and a 4xx code means that the client is at fault.
func (s *signs) addTag(v Value) {
	code, ok := v.code()
	s.clientsTag = s.clientsTag || ok && code/100 == 4
}

// code returns v, a number or a text of at most four digits, as a non-negative integer. It returns false if v is
// anything else.
func (v Value) code() (int, bool) {
	if v.Numeric {
		if !(0 <= v.Number && v.Number <= math.MaxInt32) {
			return 0, false
		}
		n := int(v.Number)
		return n, float64(n) == v.Number
	}
	if len(v.Text) == 0 || len(v.Text) > 4 || v.Text[0] < '0' || v.Text[0] > '9' {
		return 0, false // the usual case; avoids allocating an error
	}
	n, err := strconv.Atoi(string(v.Text))
	return n, err == nil
}

// gRPC status codes that are treated specially, and the number of codes.
const (
	grpcOK        = 0
	grpcCancelled = 1
	grpcCodes     = 17
)

// grpcNames are the names of gRPC's status codes without underscores, in upper case.
var grpcNames = map[string]uint8{
	"OK": grpcOK, "CANCELLED": grpcCancelled, "CANCELED": grpcCancelled, "UNKNOWN": 2, "INVALIDARGUMENT": 3,
	"DEADLINEEXCEEDED": 4, "NOTFOUND": 5, "ALREADYEXISTS": 6, "PERMISSIONDENIED": 7, "RESOURCEEXHAUSTED": 8,
	"FAILEDPRECONDITION": 9, "ABORTED": 10, "OUTOFRANGE": 11, "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14,
	"DATALOSS": 15, "UNAUTHENTICATED": 16,
}

// grpcServerFaults is the set of codes that the semantic conventions blame on the server: UNKNOWN, DEADLINE_EXCEEDED,
// UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS.
const grpcServerFaults = 1<<2 | 1<<4 | 1<<12 | 1<<13 | 1<<14 | 1<<15

// grpcCodeOf returns the gRPC status code that v contains as a number or name. It returns false for any other value,
// such as a code of another RPC system.
func grpcCodeOf(v Value) (uint8, bool) {
	if code, ok := v.code(); ok {
		return uint8(code), code < grpcCodes
	}
	var name [20]byte
	n := 0
	for _, c := range v.Text {
		if n == len(name) {
			return 0, false
		}
		if c == '_' {
			continue
		}
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		name[n] = c
		n++
	}
	code, ok := grpcNames[string(name[:n])]
	return code, ok
}

// outcome is the result of a span according to the status code of a response.
type outcome uint8

const (
	unknownOutcome outcome = iota
	succeeded
	clientsFault // the span refused the request as it should, or canceled its own call
	failed
)

// asks reports whether spans of the given kind make requests rather than answer them.
func asks(kind trace.Kind) bool { return kind == trace.Client || kind == trace.Producer }

// httpOutcome returns the outcome of a span of the given kind according to its HTTP status code, or unknownOutcome if
// it has no code.
func (s *signs) httpOutcome(kind trace.Kind) outcome {
	switch {
	case s.http == 0:
		return unknownOutcome
	case s.http >= 500 || s.http >= 400 && asks(kind):
		return failed
	case s.http >= 400:
		return clientsFault
	}
	return succeeded
}

// grpcOutcome returns the outcome of a span of the given kind according to its gRPC status code, or unknownOutcome if
// it has no code. If a client cancels its call, for example because it hedges, it no longer needs the answer, so the
// call didn't fail.
func (s *signs) grpcOutcome(kind trace.Kind) outcome {
	if s.grpc == 0 {
		return unknownOutcome
	}
	switch code := s.grpc - 1; {
	case code == grpcOK:
		return succeeded
	case asks(kind) && code != grpcCancelled, grpcServerFaults&(1<<code) != 0:
		return failed
	}
	return clientsFault
}

// failure returns the strongest rule that marks the span as failed, and reports whether the span failed.
//
//  1. If the status of the span is set, it decides. OK is only set by an application that knows better than its
//     instrumentation.
//  2. A response code that indicates a fault decides. A code that refuses the client's request isn't a failure of the
//     server, regardless of other attributes.
//  3. Otherwise the error attributes count, and so does an exception that is known to have left the span.
//  4. An exception that was only recorded counts unless the response code indicates success or the span is internal.
//     Applications record exceptions that they handle in internal spans. If an exception left, a span above also
//     failed.
func (s *signs) failure(kind trace.Kind, rules FailureRules) (trace.FailureRule, bool) {
	if *s == (signs{}) {
		return 0, false // the usual case
	}
	if status := cmp.Or(s.status, s.text); status != StatusUnset && rules.has(trace.ByStatus) {
		return trace.ByStatus, status == StatusError
	}
	answer, rule := unknownOutcome, trace.ByHTTP
	if rules.has(trace.ByHTTP) {
		answer = s.httpOutcome(kind)
	}
	if grpc := s.grpcOutcome(kind); rules.has(trace.ByGRPC) && grpc > answer {
		answer, rule = grpc, trace.ByGRPC
	}
	switch {
	case answer == failed:
		return rule, true
	case answer == clientsFault, s.clientsTag && !asks(kind):
		return 0, false
	}
	return s.weakFailure(kind, rules, answer)
}

// weakFailure is like failure, but for spans whose status and response code indicate no fault.
func (s *signs) weakFailure(kind trace.Kind, rules FailureRules, answer outcome) (trace.FailureRule, bool) {
	switch {
	case s.errorType && rules.has(trace.ByErrorType):
		return trace.ByErrorType, true
	case s.errorTag && rules.has(trace.ByErrorTag):
		return trace.ByErrorTag, true
	case s.exception == Escaped, s.exception == EscapeUnknown && answer == unknownOutcome && kind != trace.Internal:
		return trace.ByException, rules.has(trace.ByException)
	}
	return 0, false
}
