package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/internal/cli"
)

// exitProblems is the exit code of analyze --fail-on-problem if the report contains a problem.
const exitProblems cli.ExitCode = 4

// process is the environment of a run of the program. Its methods, each in a file of its own, create the commands.
type process struct {
	getenv func(string) string
	in     io.Reader
	out    io.Writer
	err    io.Writer
}

// run executes the command that args selects and returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, in io.Reader, out, errOut io.Writer) int {
	p := &process{getenv: getenv, in: in, out: out, err: errOut}
	return cli.Run(ctx, p.root(), args, in, out, errOut)
}

func (p *process) root() *cobra.Command {
	c := &cobra.Command{
		Use:   "sibyl",
		Short: "Find out why requests are slow",
		Long: `Sibyl reads OpenTelemetry and Jaeger traces, extracts their critical paths, and finds slow and erratic
requests, the operations that cause the delay, and the tracepoints to enable next.

Exit codes: 0 success, 1 error, 2 wrong usage, 4 problems found (analyze --fail-on-problem).
Output is coloured only on a terminal, and only if NO_COLOR is not set.`,
		Example: `  sibyl serve                                   receive traces and report problems continuously
  sibyl analyze traces.jsonl.gz                 problems in a file, as a table
  sibyl analyze -o html traces/ > report.html   the same as an HTML page
  sibyl backtest traces.jsonl.gz                the incidents that sibyl serve would have reported
  sibyl trace traces.jsonl.gz | less            each trace with its critical path`,
		Args:          cli.OnlyCommands,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	// We don't use cobra's Version, because its template would keep the linker from removing unused methods.
	printVersion := c.Flags().BoolP("version", "v", false, "print the version")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !*printVersion {
			return c.Help()
		}
		_, err := fmt.Fprintln(p.out, buildVersion())
		return err
	}
	c.AddCommand(
		serveCommand(p),
		analyzeCommand(p),
		diffCommand(p),
		backtestCommand(p),
		backupCommand(p),
		traceCommand(p),
		replayCommand(p),
		configCommand(p),
		webhookCommand(p),
		silenceCommand(p),
		versionCommand(p),
		incidentsCommand(p),
		annotationsCommand(p),
		annotateCommand(p),
		objectivesCommand(p),
		problemsCommand(p),
		servicesCommand(p),
		tracesCommand(p),
		explainCommand(p),
		tracepointsCommand(p),
		searchCommand(p),
		agentsCommand(p),
		agentCommand(p),
		loginCommand(p),
		logoutCommand(p),
		tokenCommand(p),
		tenantCommand(p),
		auditCommand(p),
		doctorCommand(p),
		mcpCommand(p),
	)
	return c
}
