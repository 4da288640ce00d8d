package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/cmd/sibyl/terminal"
)

// Exit codes.
const (
	exitFine     = 0
	exitError    = 1
	exitUsage    = 2
	exitProblems = 4 // analyze --fail-on-problem found some
)

// errProblems says that an analysis that was to fail on problems found some.
var errProblems = errors.New("problems found")

// process is what commands see of the world.
type process struct {
	getenv  func(string) string
	in      io.Reader
	out     io.Writer
	err     io.Writer
	started bool // arguments were understood: what fails from now on is no usage error
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, in io.Reader, out, errOut io.Writer) int {
	p := &process{getenv: getenv, in: in, out: out, err: errOut}
	root := p.root()
	root.SetArgs(append([]string{}, args...)) // not nil: cobra would look at the process's own
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitFine
	case errors.Is(err, errProblems):
		return exitProblems
	case p.started && !isUsage(err):
		fmt.Fprintf(errOut, "sibyl: %s\n", terminal.Printable(err.Error()))
		return exitError
	}
	fmt.Fprintf(errOut, "sibyl: %s\nSee sibyl --help.\n", terminal.Printable(err.Error()))
	return exitUsage
}

// usageError is a mistake in the arguments that shows only when a command looks at several of them.
type usageError struct{ error }

func isUsage(err error) bool {
	_, ok := errors.AsType[usageError](err)
	return ok
}

func (p *process) root() *cobra.Command {
	c := &cobra.Command{
		Use:   "sibyl",
		Short: "Which requests misbehave, where on their critical path, why, and what to instrument next",
		Long: `Sibyl reads OpenTelemetry and Jaeger traces, extracts the critical path of each, and tells which requests misbehave,
where on their critical path, why, and what to instrument next.

Exit codes: 0 fine, 1 error, 2 wrong usage, 4 problems found (analyze --fail-on-problem).
Colours are left out when the output is no terminal or NO_COLOR is set.`,
		Example: `  sibyl analyze traces.jsonl.gz              what is wrong, as a table
  sibyl analyze -o html traces/ > report.html   the same as a page
  sibyl trace traces.jsonl.gz | less         each trace with its critical path`,
		Version:          buildVersion().String(),
		Args:             cobra.NoArgs,
		SilenceErrors:    true,
		SilenceUsage:     true,
		PersistentPreRun: func(*cobra.Command, []string) { p.started = true },
		RunE:             func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.SetVersionTemplate("{{.Version}}\n")
	c.AddCommand(
		p.serveCommand(), p.analyzeCommand(), p.traceCommand(), p.replayCommand(), p.benchCommand(), p.configCommand(), p.webhookCommand(), p.versionCommand(),
		p.problemsCommand(), p.explainCommand(), p.tracepointsCommand(), p.agentsCommand(), p.tokenCommand(),
	)
	c.AddCommand(append(p.demoCommands(), p.demoCommand())...)
	return c
}
