package otlp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// clockOffset returns the difference between Unix time and the time of the monotonic clock, which the probes use.
func clockOffset() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("%w", errors.Join(errClock, err))
	}
	return time.Duration(time.Now().UnixNano() - t.Nano()), nil
}
