// Package otlp decodes OpenTelemetry trace requests, in protobuf and JSON, into flat spans.
//
// The input is an ExportTraceServiceRequest, which is encoded in the same way as TracesData. [Decoder] appends its
// spans to an [ingest.Batch]. It reads only the data that the analysis needs: identifiers, times, name, kind, status,
// flags, links, exceptions, the service and host of the resource, and the requested attributes. It skips all other
// fields and allocates nothing in the steady state. Fuzz tests compare it with pdata, the collector's decoder. The two
// differ in that the Decoder is
//
//   - finer: an identifier of the wrong length or an impossible time rejects the span, not the request;
//   - stricter: bytes after the request, field numbers and varints out of range, unbalanced groups, and in JSON a
//     duplicate resource or scope, or an unknown list in place of the spans, are errors;
//   - laxer: it does not notice errors inside events and skipped values (unwanted attributes), and in JSON it accepts
//     null for any field as its default, as the protobuf mapping allows, attribute values of other types, identifiers
//     in base64, and former names.
//
// [FromJSON] converts JSON to protobuf, for use where all data is needed. It accepts the same documents as the Decoder.
//
// Source: opentelemetry-proto trace.proto and the OTLP specification, "JSON Protobuf Encoding".
package otlp

import (
	"iter"

	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/trace"
)

// Decoder decodes requests. It keeps buffers and caches between requests. It is not safe for concurrent use.
type Decoder struct {
	build    *ingest.Builder
	protobuf protobufDecoder
	json     jsonDecoder
}

// NewDecoder returns a decoder that keeps the attributes in keys and adds names to table. table must not be used while
// the decoder is decoding.
func NewDecoder(table *trace.Table, keys *ingest.Keys) *Decoder {
	o := output{build: ingest.NewBuilder(table, keys), keys: keys}
	return &Decoder{
		build:    o.build,
		protobuf: protobufDecoder{output: o, scoped: keys.Find(scopeKey) != ingest.Unwanted},
		json:     jsonDecoder{output: o},
	}
}

// Limit makes d refuse requests with more records than [ingest.MaxRecords] allows.
func (d *Decoder) Limit() { d.protobuf.limited, d.json.walk.Limited = true, true }

// Forget empties the decoder's table. Names that appear again later are added again.
func (d *Decoder) Forget() { d.build.Forget() }

// Unnamed returns the result of [ingest.Builder.Unnamed].
func (d *Decoder) Unnamed() iter.Seq2[string, uint64] { return d.build.Unnamed() }
