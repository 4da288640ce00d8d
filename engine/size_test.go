package engine

import "testing"

// Healthy requests after the end of an incident don't dilute its size. Requests with a smaller loss still count.
func TestHealthyRequestsDoNotDilute(t *testing.T) {
	const ms = 1e6
	before := AffectedType{Requests: 400, Mean: 32 * ms, Usual: 10 * ms}
	after := func(added uint64, mean float64) *AffectedType {
		n := before.Requests + added
		return &AffectedType{
			Requests: n,
			Mean:     (before.Mean*float64(before.Requests) + mean*float64(added)) / float64(n), Usual: before.Usual,
		}
	}
	for _, c := range []struct {
		added  uint64
		mean   float64
		goesOn bool
	}{
		{10, 32 * ms, true},
		{60, 16 * ms, true},
		{60, 10.5 * ms, false},
		{60, 9 * ms, false},
		{60, 13 * ms, false},
		{2000, 13 * ms, true}, // a much smaller loss, but for a long time
	} {
		if got := after(c.added, c.mean).goesOn(&before); got != c.goesOn {
			t.Errorf("%d requests of %g ms: goes on %t", c.added, c.mean/ms, got)
		}
	}
}
