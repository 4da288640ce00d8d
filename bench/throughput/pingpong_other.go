//go:build !linux

package throughput

import (
	"errors"
	"time"
)

type pingPong struct{ pid uint32 }

func newPingPong() (*pingPong, error) { return nil, errors.New("the benchmark needs Linux") }

func (*pingPong) play(time.Duration) (float64, error) { return 0, nil }

func (*pingPong) close() error { return nil }
