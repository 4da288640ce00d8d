//go:build !linux

package otlp

import "time"

// clockOffset returns an error: waits are observed on Linux only.
func clockOffset() (time.Duration, error) { return 0, errClock }
