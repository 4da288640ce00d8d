// Package cli runs the command lines of the programs below cmd and holds the flags that they share.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// Exit codes of both programs. A command that returns an [ExitCode] adds its own.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
)

// ExitCode is an error that ends a program with that code and prints nothing.
type ExitCode int

// Error implements error.
func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// UsageError reports arguments that are invalid only in combination, which a command finds out after cobra accepted them.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e UsageError) Unwrap() error { return e.Err }

// Run executes root with args and returns the exit code. It prints an error to root's error stream, with control characters
// escaped. An error before the command's RunE is a usage error.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	parsed := false
	root.PersistentPreRun = func(*cobra.Command, []string) { parsed = true }
	root.SetArgs(append([]string{}, args...)) // not nil: cobra would read os.Args
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if code, ok := errors.AsType[ExitCode](err); ok {
		return int(code)
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %s\n", root.Name(), terminal.Printable(err.Error()))
	if _, ok := errors.AsType[UsageError](err); parsed && !ok {
		return ExitError
	}
	fmt.Fprintf(root.ErrOrStderr(), "See %s --help.\n", root.Name())
	return ExitUsage
}

// Interruptible returns a context that SIGINT or SIGTERM cancels, and a function that releases its resources. A second signal
// kills the process, but only after a second: a supervisor often sends the first one both to the process group and to its leader.
func Interruptible() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	return ctx, stop
}
