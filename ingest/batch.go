// Package ingest defines what the readers of traces hand on: bytes in, flat span records out.
//
// A decoder (ingest/otlp, ingest/jaeger) turns one record, that is one export request, one line of a file or one exported
// trace, into a [Batch]. An assembler (ingest/assemble) turns batches into closed traces. ingest/file reads files and runs
// both. What a span's fields mean is decided here once for all formats ([Builder]), so that decoders only find the fields:
// which identifiers and times are valid, which attributes are kept ([Keys]), what makes an operation ([Names]).
//
// Invariants: a span in a batch has a valid trace ID, a span ID other than 0, and times in [0, trace.MaxNanos]; what does not
// is left out and counted with a reason. A record that cannot be decoded adds nothing to a batch. Nothing here reads a
// clock, starts a goroutine or keeps global state, and nothing depends on the order of records.
package ingest

import (
	"fmt"

	"github.com/sibyl-trace/sibyl/trace"
)

// Batch holds the spans of one or more records, flat, of any traces in any order. Decoders append to it. The zero Batch is
// empty and ready to use. It is not safe for concurrent use.
type Batch struct {
	Traces   []trace.ID       // Traces[i] is the trace of Spans[i]
	Spans    []trace.Span     // in the order of the input
	Attrs    []trace.Attr     // Span is an index in Spans; ascending
	Joins    []trace.Join     // Span is an index in Spans; ascending
	Rejected []Rejection      // at most one per reason
	Versions []ServiceVersion // of the services of resources; the same may be there more than once
}

// ServiceVersion is a version of a service, as a resource says with service.version. Neither is zero.
type ServiceVersion struct {
	Service, Version trace.Symbol
}

// Rejection counts the spans of a batch that were left out for one reason.
type Rejection struct {
	Reason trace.Reason
	Detail string // what was wrong with the first of them
	Spans  int
}

// Reset empties b and keeps its memory.
func (b *Batch) Reset() { b.Rollback(Mark{}) }

// Reject counts n spans as left out for reason. Only the first detail of each reason is kept.
func (b *Batch) Reject(reason trace.Reason, detail string, n int) {
	if !b.rejectAgain(reason, n) {
		b.Rejected = append(b.Rejected, Rejection{Reason: reason, Detail: detail, Spans: n})
	}
}

// rejectAgain counts n spans for reason if there are some already, and so needs no detail.
func (b *Batch) rejectAgain(reason trace.Reason, n int) bool {
	for i := range b.Rejected {
		if b.Rejected[i].Reason == reason {
			b.Rejected[i].Spans += n
			return true
		}
	}
	return false
}

// RejectedSpans returns how many spans were left out, for whatever reason.
func (b *Batch) RejectedSpans() int {
	n := 0
	for _, r := range b.Rejected {
		n += r.Spans
	}
	return n
}

// Mark is a place in a batch to go back to. The zero Mark is its beginning.
type Mark struct {
	spans, attrs, joins, versions int
	rejected                      [6]int // Rejected[i].Spans; there are fewer reasons than places
	reasons                       int
}

// Mark returns the present end of b.
func (b *Batch) Mark() Mark {
	m := Mark{spans: len(b.Spans), attrs: len(b.Attrs), joins: len(b.Joins), versions: len(b.Versions), reasons: min(len(b.Rejected), 6)}
	for i := range m.reasons {
		m.rejected[i] = b.Rejected[i].Spans
	}
	return m
}

// Rollback removes everything that was added to b since m.
func (b *Batch) Rollback(m Mark) {
	b.Traces, b.Spans = b.Traces[:m.spans], b.Spans[:m.spans]
	b.Attrs, b.Joins = b.Attrs[:m.attrs], b.Joins[:m.joins]
	b.Versions, b.Rejected = b.Versions[:m.versions], b.Rejected[:m.reasons]
	for i := range b.Rejected {
		b.Rejected[i].Spans = m.rejected[i]
	}
}

// RecordError says why a whole record could not be decoded.
type RecordError struct {
	Reason trace.Reason
	Offset int64 // byte in the record where decoding stopped; −1: not known
	Err    error
}

// Error returns the reason, the position and the cause in one line.
func (e *RecordError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s: %v", e.Reason, e.Err)
	}
	return fmt.Sprintf("%s at byte %d: %v", e.Reason, e.Offset, e.Err)
}

// Unwrap returns the cause.
func (e *RecordError) Unwrap() error { return e.Err }
