package tracepoint

import (
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// TestInvalidDecision checks that a decision that doesn't fit in the tracestate leaves the span context unchanged.
func TestInvalidDecision(t *testing.T) {
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	if got := (&request{decision: "1,2"}).withDecision(sc); !got.Equal(sc) {
		t.Errorf("span context %v, want %v", got, sc)
	}
	if got := (&request{decision: "1-a"}).withDecision(sc).TraceState().String(); got != "sibyl=1-a" {
		t.Errorf("tracestate %q, want sibyl=1-a", got)
	}
}
