// Package cli runs the command lines of the programs below cmd, and provides their common flags.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// Exit codes of both programs. A command adds its own codes by returning an [ExitCode].
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
)

// ExitCode is an error that ends a program with the given code and without a message.
type ExitCode int

// Error implements error.
func (c ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// UsageError is an error in arguments that cobra accepted but a command rejects.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError that wraps the result of fmt.Errorf.
func Usagef(format string, args ...any) error { return UsageError{Err: fmt.Errorf(format, args...)} }

// Run executes root with args and the given streams, and returns the exit code. If there is an error, it prints it to
// errOut, with control characters escaped. An error before the command's RunE counts as a usage error.
func Run(ctx context.Context, root *cobra.Command, args []string, in io.Reader, out, errOut io.Writer) int {
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	parsed := false
	root.PersistentPreRun = func(*cobra.Command, []string) { parsed = true }
	root.SetArgs(append([]string{}, args...)) // not nil, or cobra would read os.Args
	root.SetFlagErrorFunc(explainFlag)
	root.SetUsageFunc(usage)
	root.SetHelpFunc(help)
	rejectUnknown(root)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	if code, ok := errors.AsType[ExitCode](err); ok {
		return int(code)
	}
	fmt.Fprintf(errOut, "%s: %s\n", root.Name(), terminal.Printable(err.Error()))
	if _, ok := errors.AsType[UsageError](err); parsed && !ok {
		return ExitError
	}
	if c.Name() == "help" { // it describes other commands
		c = root
	}
	fmt.Fprintf(errOut, "See %s --help.\n", c.CommandPath())
	return ExitUsage
}

// rejectUnknown makes cobra's own commands, help and completion, reject unknown arguments.
func rejectUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				about, unknown, err := root.Find(args)
				return cmp.Or(err, OnlyCommands(about, unknown))
			}
		case "completion":
			c.Args = OnlyCommands
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() } // so that cobra checks arguments
		}
	}
}

// OnlyCommands is a [cobra.PositionalArgs] for a command with subcommands. It rejects all arguments, and suggests
// subcommands with similar names.
func OnlyCommands(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return errors.New(fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath()) + suggestion(c, args[0]))
}

// suggestion returns a question that lists the subcommands with names similar to word, or "" if no name is similar.
func suggestion(c *cobra.Command, word string) string {
	c.SuggestionsMinimumDistance = 2
	if similar := c.SuggestionsFor(word); len(similar) > 0 {
		return "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return ""
}

// Arguments returns a [cobra.PositionalArgs] that accepts n arguments if least ≤ n ≤ most. Its errors show the
// arguments named in the command's usage.
func Arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		parent, hint := strings.TrimSuffix(c.CommandPath(), c.Name()), ""
		if len(args) > most {
			hint = suggestion(c, args[0])
		}
		if most == 0 {
			return fmt.Errorf("%s takes no arguments, but got %q%s", c.CommandPath(), args[0], hint)
		}
		return fmt.Errorf("got %s, want: %s%s", units.Plural(len(args), "argument"), parent+c.Use, hint)
	}
}

// Interruptible returns a context that is cancelled by SIGINT or SIGTERM, and a function that releases the resources of
// the context. A second signal kills the process, unless it follows the first within a second: a supervisor often sends
// one signal both to the process group and to its leader.
func Interruptible() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	return ctx, stop
}
