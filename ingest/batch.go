// Package ingest turns encoded traces into flat span records.
//
// A decoder (ingest/otlp, ingest/jaeger) appends one record – an export request, a line of a file, an exported trace –
// to a [Batch]. An assembler (ingest/assemble) turns batches into closed traces. Package ingest/file reads files and
// runs both a decoder and an assembler. This package interprets the fields of spans for all formats ([Builder]): it
// decides which identifiers and times are valid, which attributes are kept ([Keys]), and how operations are named
// ([Names]). Decoders only find the fields.
//
// Invariants: a span in a batch has a valid trace ID, a span ID other than 0, and times in [0, trace.MaxNanos]. Invalid
// spans are dropped and counted by reason. A record that cannot be decoded adds nothing to a batch. The package reads
// no clock, starts no goroutines, keeps no global state, and does not depend on the order of records.
package ingest

import (
	"errors"
	"fmt"

	"github.com/sibyl-trace/sibyl/trace"
)

// Batch holds the spans of one or more records. The spans may belong to any traces, in any order. The zero Batch is
// empty and ready to use. A Batch is not safe for concurrent use.
type Batch struct {
	Traces   []trace.ID     // Traces[i] is the trace of Spans[i]
	Spans    []trace.Span   // in the order of the input
	Attrs    []trace.Attr   // Span indexes Spans; ascending
	Joins    []trace.Join   // Span indexes Spans; ascending
	Rejected []Rejection    // at most one per reason
	Versions []VersionStart // versions named by resources; may contain duplicates
}

// VersionStart pairs a service version with the start of its earliest span in the batch. First is 0 if the batch has no
// span of that version.
type VersionStart struct {
	ServiceVersion
	First trace.Nanos
}

// ServiceVersion is a service and its version, from the attribute service.version of a resource. Neither is 0.
type ServiceVersion struct {
	Service, Version trace.Symbol
}

// Rejection counts the spans of a batch that were rejected for one reason.
type Rejection struct {
	Reason trace.Reason
	Detail string // describes the first rejected span
	Spans  int
}

// Reset empties b but keeps its memory.
func (b *Batch) Reset() { b.Rollback(Mark{}) }

// Reject counts n spans as rejected for reason. detail describes the first of them; Reject keeps only the first detail
// for each reason.
func (b *Batch) Reject(reason trace.Reason, detail string, n int) {
	if !b.rejectAgain(reason, n) {
		b.Rejected = append(b.Rejected, Rejection{Reason: reason, Detail: detail, Spans: n})
	}
}

// rejectAgain adds n to the rejections for reason. It returns false and does nothing if there are no rejections for
// reason yet. It lets callers avoid formatting a detail that [Batch.Reject] would ignore.
func (b *Batch) rejectAgain(reason trace.Reason, n int) bool {
	for i := range b.Rejected {
		if b.Rejected[i].Reason == reason {
			b.Rejected[i].Spans += n
			return true
		}
	}
	return false
}

// RejectedSpans returns the number of rejected spans.
func (b *Batch) RejectedSpans() int {
	n := 0
	for _, r := range b.Rejected {
		n += r.Spans
	}
	return n
}

// Mark is a position in a batch for [Batch.Rollback]. The zero Mark is the start.
type Mark struct {
	spans, attrs, joins, versions int
	rejected                      [6]int // Rejected[i].Spans; there are fewer than six reasons
	reasons                       int
}

// Mark returns the current end of b, for [Batch.Rollback].
func (b *Batch) Mark() Mark {
	m := Mark{
		spans:    len(b.Spans),
		attrs:    len(b.Attrs),
		joins:    len(b.Joins),
		versions: len(b.Versions),
		reasons:  min(len(b.Rejected), 6),
	}
	for i := range m.reasons {
		m.rejected[i] = b.Rejected[i].Spans
	}
	return m
}

// Rollback removes everything added to b since m.
func (b *Batch) Rollback(m Mark) {
	b.Traces, b.Spans = b.Traces[:m.spans], b.Spans[:m.spans]
	b.Attrs, b.Joins = b.Attrs[:m.attrs], b.Joins[:m.joins]
	b.Versions, b.Rejected = b.Versions[:m.versions], b.Rejected[:m.reasons]
	for i := range b.Rejected {
		b.Rejected[i].Spans = m.rejected[i]
	}
}

// ErrRecords is the error for a request with more records than its size allows; see [MaxRecords].
var ErrRecords = errors.New("it has too many resources, scopes, spans, events, links and attributes for its size: " +
	"most of them are empty; send only those with data")

// Minimum sizes, in bytes, of records with data. An empty record takes 2 bytes in protobuf and 3 in JSON, so a request
// full of them would take many times as long to process as a request of the same size with data. An event, link or
// attribute with data is larger than these minimums. The identifiers of a span alone take enough bytes for the span, an
// empty resource and an empty scope.
const (
	MinRecord     = 8
	MinRecordJSON = 16
)

// MaxRecords returns the maximum total number of resources, scopes, spans, events, links and attributes in a request of
// size bytes. It assumes that they take at least as many bytes as smallest on average, but allows for some empty ones.
func MaxRecords(size, smallest int) int { return 1000 + size/smallest }

// RecordError is the error of a decoder for a record that cannot be decoded at all.
type RecordError struct {
	Reason trace.Reason
	Offset int64 // offset in the record where decoding stopped, in bytes, or −1 if unknown
	Err    error
}

// Error returns the reason, offset and cause in one line.
func (e *RecordError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s: %v", e.Reason, e.Err)
	}
	return fmt.Sprintf("%s at byte %d: %v", e.Reason, e.Offset, e.Err)
}

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Err }
