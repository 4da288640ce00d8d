package trace

// Attributes by which the tracepoint protocol marks spans. Decoders read them whatever else was asked for.
const (
	KeyTracepoint = "sibyl.tracepoint.id" // the tracepoint that emitted a span outside the baseline
	KeyPlan       = "sibyl.plan"          // version of the plan that applied, on each service's first span; 0: none
	KeyArm        = "sibyl.arm"           // arm of that plan
	KeyJoin       = "sibyl.join"          // true: the span waits for the spans that it links to
)
