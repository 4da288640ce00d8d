//go:build !linux || !(amd64 || arm64)

package kernel

import (
	"context"
	"runtime"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Check returns an error that wraps [ErrMissing].
func Check() (notes []string, err error) {
	reason := "it needs Linux on amd64 or arm64, this is " + runtime.GOOS + " on " + runtime.GOARCH
	return nil, &MissingError{[]string{reason}}
}

// Probes exist only on Linux.
type Probes struct{}

// Open returns the error of [Check].
func Open(Options) (*Probes, error) {
	_, err := Check()
	return nil, err
}

// Apply returns the error of [Check].
func (*Probes) Apply(Spec) error {
	_, err := Check()
	return err
}

// Close does nothing.
func (*Probes) Close() error { return nil }

// Observe returns the error of [Check].
func Observe(context.Context, Settings, func(*waits.Report) error) error {
	_, err := Check()
	return err
}

// SyscallName returns "", because nothing is observed.
func SyscallName(int32) string { return "" }
