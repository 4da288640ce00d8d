package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/internal/cli"
)

// process is the environment of a run.
type process struct {
	in  io.Reader
	out io.Writer
	err io.Writer

	sibyl string // --sibyl
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	p := &process{in: in, out: out, err: errOut}
	return cli.Run(ctx, p.root(), args, in, out, errOut)
}

func (p *process) root() *cobra.Command {
	c := &cobra.Command{
		Use:   "sibylbench",
		Short: "Measure Sibyl's speed and accuracy",
		Long: `Measures the speed of Sibyl's parts and of the whole service, and its accuracy on simulated faults,
recorded faults, and faults of a demo application on this machine.

Benchmarks of parts run on one core, with at least 64 MiB of distinct traces that are generated in memory beforehand,
and report the fastest of several passes. Benchmarks of the service and the demo start sibyl serve: the sibyl in the
directory of this program or, if there is none, on the PATH; --sibyl names another.

Exit codes: 0 success, 1 error, 2 wrong usage.`,
		Example: `  sibylbench demo                             watch Sibyl find a fault in a running application
  sibylbench ingest --time 30s                throughput of the whole service
  sibylbench localize --seeds 10              simulated faults`,
		Args:          cli.OnlyCommands,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.PersistentFlags().StringVar(&p.sibyl, "sibyl", "",
		"path of the sibyl program; empty: the one in the directory of this program or, if there is none, on the PATH")
	for _, b := range benchmarks {
		c.AddCommand(p.partCommand(b))
	}
	c.AddCommand(p.ingestCommand(), p.overloadCommand(), p.controlCommand(), p.localizeCommand(),
		p.demoCommand(), p.placesCommand(), p.estateCommand(), p.weekCommand(), p.wildCommand(), p.overheadCommand(),
		p.clusterCommand(),
		p.jvmCommand())
	c.AddCommand(p.estateProcesses(), p.kernelService())
	c.AddCommand(p.demoProcesses()...)
	return c
}

// findSibyl returns the path of the sibyl program.
func (p *process) findSibyl() (string, error) {
	if p.sibyl != "" {
		path, err := exec.LookPath(p.sibyl)
		if err != nil {
			return "", cli.Usagef("--sibyl: %w", err)
		}
		return filepath.Abs(path)
	}
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), "sibyl")); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("sibyl")
	if err != nil {
		return "", errors.New(
			"no program sibyl in the directory of this program or on the PATH: run make build, or name it with --sibyl")
	}
	return filepath.Abs(path)
}
