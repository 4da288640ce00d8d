package critpath

import (
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// TestLargeTracesReleased: the buffers of a rare huge trace are not kept.
func TestLargeTracesReleased(t *testing.T) {
	x := NewExtractor(DefaultOptions())
	x.Extract(&trace.Trace{Spans: make([]trace.Span, maxKept+1)})
	x.Extract(&trace.Trace{Spans: make([]trace.Span, 1)})
	if n := cap(x.parents.caller); n > maxKept {
		t.Errorf("buffers for %d spans are kept", n)
	}
}
