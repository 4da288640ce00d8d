package trace

// Reason is the reason for refusing a span or a trace, or for excluding it from statistics. The set is small and fixed,
// so that a Reason can be a metric label or a JSON key.
type Reason string

// Reasons for refusing input. The first group applies to records and spans and is decided while reading; the second
// applies to traces and is decided when they are closed.
const (
	Malformed  Reason = "malformed"    // not valid in its format
	BadTraceID Reason = "bad_trace_id" // wrong length or all zero
	BadSpanID  Reason = "bad_span_id"  // wrong length or all zero
	BadTime    Reason = "bad_time"     // outside [0, MaxNanos]
	TooLarge   Reason = "too_large"    // above a limit on bytes, nesting or the length of names

	Incomplete Reason = "incomplete"  // a span's parent is missing
	TooLong    Reason = "too_long"    // duration of MaxDuration or more
	NoDuration Reason = "no_duration" // the root took no time, or ends before it starts
)
