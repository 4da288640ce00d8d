package trace

// Reason is the reason for refusing a span or a trace, or for excluding it from statistics. The set is small and fixed,
// so that a Reason can be a metric label or a JSON key.
type Reason string

// Reasons for refusing input. The first group applies to records and spans and is decided while reading. The second
// group applies to spans and roots of traces and is decided when traces are closed. A missing parent is not a reason:
// see package critpath.
const (
	Malformed  Reason = "malformed"    // not valid in its format
	BadTraceID Reason = "bad_trace_id" // wrong length or all zero
	BadSpanID  Reason = "bad_span_id"  // wrong length or all zero
	BadTime    Reason = "bad_time"     // outside [0, MaxNanos]
	TooLarge   Reason = "too_large"    // above a limit on bytes or nesting

	Incomplete Reason = "incomplete"  // a span's parent is missing: the trace is counted, and judged in its parts
	TooLong    Reason = "too_long"    // duration of MaxDuration or more
	NoDuration Reason = "no_duration" // the root took no time, or ends before it starts
	Misdated   Reason = "misdated"    // far before or after all other spans in a recording: a wrong clock
	Outside    Reason = "outside"     // a tracepoint span outside its parent, or without a baseline span above
	Duplicate  Reason = "duplicate"   // an identical copy of another span
	Conflict   Reason = "conflict"    // another span of the trace has the same ID but different content
	Late       Reason = "late"        // arrived after its trace was closed
	Cut        Reason = "cut"         // its trace was closed early because of a limit on its age, its size, or memory
)

// LeftOut lists the reasons why a [Coverage] leaves out spans of files or of a running service. Misdated applies to
// files only: a service dates traces by their arrival, and judges them regardless of their clocks.
var LeftOut = []Reason{
	Malformed, BadTraceID, BadSpanID, BadTime, TooLarge,
	TooLong, NoDuration, Misdated, Outside, Duplicate, Conflict, Late, Cut,
}
