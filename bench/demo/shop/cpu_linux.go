package shop

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// schedulerClock selects, in the ID of a process's clock, the time that its threads ran, in nanoseconds.
const schedulerClock = 2

// cpuTime returns the CPU time that a process has used.
func cpuTime(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|schedulerClock, &t); err != nil { // as in clock_getcpuclockid
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
