package critpath

import (
	"testing"

	"github.com/sibyl-trace/sibyl/trace"
)

// An extractor does not keep the buffers of a trace that exceeds maxKept.
func TestLargeTracesReleased(t *testing.T) {
	x := NewExtractor(DefaultOptions())
	x.Extract(&trace.Trace{Spans: make([]trace.Span, maxKept+1)})
	x.Extract(&trace.Trace{Spans: make([]trace.Span, 1)})
	if n := cap(x.parents.caller); n > maxKept {
		t.Errorf("kept buffers for %d spans, want at most %d", n, maxKept)
	}
}
