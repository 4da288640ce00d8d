package trace

// Reason says why a span or a trace was refused or left out of the statistics. The set is small and fixed, fit for a metric
// label and for the key of a JSON object.
type Reason string

// Why input is refused. The first group concerns records and spans (decided while reading), the second whole traces
// (decided when the trace is closed).
const (
	Malformed  Reason = "malformed"    // bytes that are not what their format says
	BadTraceID Reason = "bad_trace_id" // wrong length or all zero
	BadSpanID  Reason = "bad_span_id"  // wrong length or all zero
	BadTime    Reason = "bad_time"     // outside [0, MaxNanos]
	TooLarge   Reason = "too_large"    // above a limit on bytes, depth or names

	Incomplete Reason = "incomplete"  // a span's parent is missing
	TooLong    Reason = "too_long"    // duration of MaxDuration or more
	NoDuration Reason = "no_duration" // the root took no time, or ends before it starts
)
