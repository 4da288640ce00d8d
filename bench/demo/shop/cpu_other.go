//go:build !linux

package shop

import "time"

// cpuTime returns 0. We know of no clock on this system for the CPU time of other processes.
func cpuTime(int) (time.Duration, error) { return 0, nil }
