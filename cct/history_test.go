package cct

import (
	"math"
	"testing"
)

// The history of several investigations is their sum, and shares are clipped.
func TestHistory(t *testing.T) {
	h := HistoryOf(0.5, 0.25)
	h.Merge(HistoryOf(-7, math.NaN()))
	h.Merge(HistoryOf(3, 1))
	want := History{N: 3, Share: 1.5 * million, Square: 5.25 * million, MeanTime: 1.25 * million}
	if h != want {
		t.Errorf("%+v, want %+v", h, want)
	}
	if mean := h.Mean(); mean != 0.5 {
		t.Errorf("mean %v, want 0.5", mean)
	}
}
