//go:build !linux

package jvm

import (
	"context"
	"errors"
)

// Attach returns an error: attaching to a running JVM is only implemented for Linux.
func Attach(context.Context, int, string) error {
	return errors.New("attaching to a running JVM needs Linux: start the JVM with -javaagent")
}
