package trace

// Span attributes of the tracepoint protocol. Decoders always read them.
const (
	KeyTracepoint = "sibyl.tracepoint.id" // tracepoint that emitted the span; absent on baseline spans
	KeyPlan       = "sibyl.plan"          // version of the plan, on the first span of each service; 0: no plan
	KeyArm        = "sibyl.arm"           // arm of that plan
	KeyJoin       = "sibyl.join"          // if true, the span waits for the end of the spans that it links to
)
