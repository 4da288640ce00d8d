package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/benchreport"
	"github.com/sibyl-trace/sibyl/bench/estate"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func (p *process) estateCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	o := &estate.Options{Rate: 12}
	c := &cobra.Command{
		Use:   "estate",
		Short: "Incidents of faults in third-party programs",
		Long: `Installs third-party programs with official OpenTelemetry instrumentation below a cache folder, runs
them on the loopback interface behind a gateway, and sends them requests. Then it injects faults, one at a time:
latency, jitter and resets of links; little CPU for a process; pauses of one instance of several; locks in a database;
errors of a service; a killed process. Seeds determine order and strength.

sibyl serve runs with its default settings and is judged by its incidents. An incident counts for a fault if it opens
in the window of the fault or within 60 s after it. All others are false, including further ones in one window.
Suspects are judged 60 s after the window, or as they stood when the incident closed.

It needs go, python3, node with npm, and java with mvn, and installs from their package registries. PostgreSQL and
Redis are those of the system, or Debian's packages, unpacked below the cache. It skips programs that cannot be
installed, and prints the reason. No program runs after the end.`,
		Example: `  sibylbench estate --faults 20
  sibylbench estate --quiet 2h                 no faults: every incident is false
  sibylbench estate --faults 8 --window 2m --record recording/ -o json`,
		Args: cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkEstate(o); err != nil {
				return cli.UsageError{Err: err}
			}
			if err := p.estatePrograms(o); err != nil {
				return err
			}
			r, err := estate.Run(c.Context(), o)
			if err != nil {
				return err
			}
			if output.Value == "json" {
				return benchreport.JSON(p.out, r)
			}
			return r.Table(p.out)
		},
	}
	output.Flag(c, "output", "o", "format of the result")
	flags := c.Flags()
	flags.StringVar(&o.Cache, "cache", "",
		"folder of the installed programs; empty: sibylbench in the user's cache folder")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the faults and the requests")
	flags.IntVar(&o.Faults, "faults", 20, "number of faults")
	flags.DurationVar(&o.Learn, "learn", time.Hour,
		"healthy time before the first fault; within the first hour only large changes raise incidents")
	flags.DurationVar(&o.Window, "window", 3*time.Minute, "duration of a fault")
	flags.DurationVar(&o.Between, "between", 6*time.Minute, "healthy time after a fault")
	flags.DurationVar(&o.Quiet, "quiet", 0, "healthy time instead of faults; 0: faults")
	flags.Float64Var(&o.Rate, "rate", o.Rate, "requests per second")
	flags.StringVar(&o.Record, "record", "",
		"folder for a recording of traces and faults, which localize --recorded and sibyl backtest read; empty: none")
	flags.StringSliceVar(&o.Only, "only", nil, "programs to run, with those that they call; empty: all")
	return c
}

// checkEstate returns an error if an option is out of range.
func checkEstate(o *estate.Options) error {
	switch {
	case o.Faults < 0:
		return errors.New("--faults must not be negative")
	case o.Window <= 0:
		return errors.New("--window must be above 0")
	case o.Learn < 0 || o.Between < 0 || o.Quiet < 0:
		return errors.New("--learn, --between and --quiet must not be negative")
	case !(o.Rate > 0 && o.Rate <= 1000):
		return errors.New("--rate must be above 0 and at most 1000")
	}
	return nil
}

// estatePrograms sets the programs of the estate, their environment and the cache folder.
func (p *process) estatePrograms(o *estate.Options) (err error) {
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find the path of this program: %w", err)
	}
	o.Environment, o.Out = os.Environ(), p.err
	if o.Cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return cli.Usagef("--cache: %w", err)
		}
		o.Cache = filepath.Join(dir, "sibylbench")
	}
	o.Sibyl, err = p.findSibyl()
	return err
}

// estateProcesses returns the hidden command that kills the programs of an estate whose process died.
func (p *process) estateProcesses() *cobra.Command {
	return &cobra.Command{
		Use:    estate.ReaperCommand,
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		Short:  "Kill the programs of an estate at the end of standard input",
		RunE:   func(_ *cobra.Command, args []string) error { return estate.Reap(p.in, args[0]) },
	}
}
