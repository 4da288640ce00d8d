package receiver

import (
	"errors"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

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

// Event describes an answered request. Connections that never send an OTLP request cause no event.
type Event struct {
	Transport Transport
	Refused   refusal.Reason // refusal.None if accepted, even if some of the spans were rejected
	Bytes     int            // size of the uncompressed body; 0 if it wasn't read
	Rejected  int            // number of rejected spans
	Duration  time.Duration  // from the request's header to its answer
}

// prescribed holds the HTTP status codes that OTLP prescribes for refusals, where they differ from our usual ones.
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

// overloaded returns the refusal for a request that there is currently no room for. It asks the client to retry after
// the given time, or after one second if after is 0.
func overloaded(detail string, after time.Duration) *refusal.Error {
	return refuse(refusal.Overloaded, detail).Later(or(after, overloadBackoff))
}

var (
	errTooMany = overloaded("too many requests at the same time", 0)
	errYielded = overloaded("the body came too slowly while others waited", 0)
	errSlow    = errors.New("the body came too slowly")
)

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
