package live

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// Setting the clock neither stops the time nor turns it back. If the clock is set forward, the time follows at once.
func TestSteady(t *testing.T) {
	began := time.Now() // its monotonic reading doesn't change when the clock is set
	at := func(passed, set time.Duration) trace.Nanos {
		// The service reads the wall time; the monotonic reading has the elapsed time.
		return trace.Nanos(began.Add(passed).UnixNano()) + trace.Nanos(set)
	}
	var s steadyClock
	s.update(began, at(0, 0))
	for _, step := range []struct {
		passed, set time.Duration
		want        trace.Nanos
	}{
		{time.Minute, 0, at(time.Minute, 0)},
		{2 * time.Minute, time.Hour, at(2*time.Minute, time.Hour)}, // set forward
		{
			12 * time.Minute, 0, at(2*time.Minute, time.Hour) + trace.Nanos(9*time.Minute),
		}, // set back: the time continues
		{12*time.Minute + 11*time.Hour, 0, at(12*time.Minute+11*time.Hour, 0)}, // until the clock has caught up
	} {
		if got := s.update(began.Add(step.passed), at(step.passed, step.set)); got != step.want {
			t.Errorf("after %v with the clock set by %v: %v, want %v", step.passed, step.set, got, step.want)
		}
	}
}
