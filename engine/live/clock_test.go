package live

import (
	"testing"
	"time"

	"github.com/sibyl-trace/sibyl/trace"
)

// A clock that is set neither stops the time nor turns it back; one that was set forward is followed at once.
func TestSteady(t *testing.T) {
	began := time.Now() // with a monotonic reading, which setting the clock does not change
	at := func(passed, set time.Duration) trace.Nanos {
		// the service sees the wall time; what passed is in the monotonic reading
		return trace.Nanos(began.Add(passed).UnixNano()) + trace.Nanos(set)
	}
	var s steady
	s.set(began, at(0, 0))
	for _, step := range []struct {
		passed, set time.Duration
		want        trace.Nanos
	}{
		{time.Minute, 0, at(time.Minute, 0)},
		{2 * time.Minute, time.Hour, at(2*time.Minute, time.Hour)},                       // set forward
		{12 * time.Minute, 0, at(2*time.Minute, time.Hour) + trace.Nanos(9*time.Minute)}, // and back: the time goes on
		{12*time.Minute + 11*time.Hour, 0, at(12*time.Minute+11*time.Hour, 0)},           // until the clock has caught up
	} {
		if got := s.set(began.Add(step.passed), at(step.passed, step.set)); got != step.want {
			t.Errorf("after %v with the clock set by %v: %v, want %v", step.passed, step.set, got, step.want)
		}
	}
}
