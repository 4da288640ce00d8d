package main

import (
	"context"
	"github.com/sibyl-trace/sibyl/cmd/internal/cli"
	"io"

	"github.com/spf13/cobra"
)

// exitProblems is the exit code of analyze --fail-on-problem when the report holds a problem.
const exitProblems cli.ExitCode = 4

// process is the environment of a run.
type process struct {
	getenv func(string) string
	in     io.Reader
	out    io.Writer
	err    io.Writer
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, in io.Reader, out, errOut io.Writer) int {
	p := &process{getenv: getenv, in: in, out: out, err: errOut}
	root := p.root()
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	return cli.Run(ctx, root, args)
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
		Version:       buildVersion().String(),
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.SetVersionTemplate("{{.Version}}\n")
	c.AddCommand(
		p.serveCommand(), p.analyzeCommand(), p.traceCommand(), p.replayCommand(), p.configCommand(), p.webhookCommand(), p.versionCommand(),
		p.problemsCommand(), p.explainCommand(), p.tracepointsCommand(), p.agentsCommand(), p.tokenCommand(),
	)
	return c
}
