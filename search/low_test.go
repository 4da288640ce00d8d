package search

import "testing"

// TestLowRate checks that, if requests are rare, a verdict takes all of them, and that adaptive costs no more spans
// than hierarchical.
func TestLowRate(t *testing.T) {
	for _, rate := range []float64{2, 4} {
		a, h := play("adaptive", 300, rate, 16), play("hierarchical", 300, rate, 16)
		if a.top1 < h.top1 || a.hits > h.hits {
			t.Errorf("%g/s: adaptive finds %d at the price of %d spans, hierarchical %d for %d",
				rate, a.top1, a.hits, h.top1, h.hits)
		}
	}
}
