// Package otlp decodes OpenTelemetry trace requests, protobuf and JSON, into flat spans.
//
// Input is one ExportTraceServiceRequest (which on the wire is the same as TracesData); output goes to the end of an
// [ingest.Batch]. [Decoder] walks the bytes and looks only at what the analysis needs: identifiers, times, name, kind, status,
// flags, links, the service and host of the resource, and the attributes that were asked for. All else is skipped unread, and
// in the steady state nothing is allocated. [Reference] does the same with the collector's own decoder; fuzz tests hold
// the two equal, but for this:
//
//   - finer: identifiers of the wrong length, impossible times and names too long reject that span, not the request;
//   - stricter: bytes after the request, field numbers and varints out of range, unbalanced groups, and in JSON a resource or
//     scope that is given twice, are errors;
//   - laxer: errors inside values that nobody asked for (events, unwanted attributes) go unseen, and JSON null stands for
//     any field's default, as the protobuf mapping says.
//
// Source: opentelemetry-proto trace.proto and the OTLP specification, "JSON Protobuf Encoding".
package otlp

import (
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/internal/jsonwalk"
	"github.com/sibyl-trace/sibyl/trace"
)

// Decoder decodes requests. It has one owner and keeps its buffers and caches between requests.
type Decoder struct {
	build *ingest.Builder
	keys  *ingest.Keys
	data  []byte // the request being decoded

	scoped    bool   // the names of scopes are wanted
	scopeName []byte // of the scope being read

	walk    jsonwalk.Walker
	traceID [16]byte // what the builder points at while a span is read from JSON
	spanID  [8]byte
	parent  [8]byte
}

// NewDecoder returns a decoder that keeps the attributes in keys and enters names in table, which it shares with nobody
// while it is used.
func NewDecoder(table *trace.Table, keys *ingest.Keys) *Decoder {
	return &Decoder{build: ingest.NewBuilder(table, keys), keys: keys, scoped: keys.Find(scopeKey) != ingest.Unwanted}
}

// scopeKey is the key under which the name of the instrumentation scope counts as an attribute of its spans.
var scopeKey = []byte("otel.scope.name")
