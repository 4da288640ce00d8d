package tracepoint

import (
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// A mark that the tracestate does not take is not carried on, and nothing else happens.
func TestCarry(t *testing.T) {
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	if got := (&request{mark: "1,2"}).carry(sc); !got.Equal(sc) {
		t.Errorf("%v became %v", sc, got)
	}
	if got := (&request{mark: "1-a"}).carry(sc).TraceState().String(); got != "sibyl=1-a" {
		t.Errorf("%q is carried on", got)
	}
}
