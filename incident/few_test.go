package incident

import (
	"testing"

	"github.com/sibyl-trace/sibyl/analysis/compare"
)

// TestThresholdOfFewRequests judges windows after 20 healthy ones. The traffic of the night isn't known yet, so a tenth
// of the usual requests is judged as usual. A few requests prove little, unless most of them fail.
func TestThresholdOfFewRequests(t *testing.T) {
	b := newBaseline()
	for range 20 {
		b.learn(&window{requests: 700}, 1)
	}
	for _, c := range []struct {
		requests uint64
		score    float64
		unusual  bool
	}{{700, 0.05, true}, {70, 0.05, true}, {2, 0.1, false}, {2, 1, true}} {
		s := &compare.Suspect{Score: c.score, Own: c.score}
		if got := b.unusual(s, c.requests, b.ratio(10), 1); got != c.unusual {
			t.Errorf("%d requests with score %g: unusual %t", c.requests, c.score, got)
		}
	}
}
