//go:build !linux

package otlp

import "time"

// clockOffset returns an error: waits are only observed on Linux.
func clockOffset() (time.Duration, error) { return 0, errClock }
