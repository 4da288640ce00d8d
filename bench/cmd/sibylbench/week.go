package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/benchreport"
	"github.com/sibyl-trace/sibyl/bench/week"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

// weekGC lets the heap grow to five times its live part, so that the collector scans the state of weeks less often.
const weekGC = 400

func (p *process) weekCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	o := week.Options{}
	c := &cobra.Command{
		Use:   "week",
		Short: "Incidents in simulated weeks",
		Long: `Simulates weeks of an application in compressed time, plays them through the engine of sibyl serve with
its default settings, and judges the incidents. Latency and traffic follow day, night and weekend; a batch runs every
night; instances come and go with the traffic and are slow at first. The first week is healthy. Each of the following
ones has 20 harmless deploys, half of which change the structure of requests, and faults: steps of 30 % at random
hours, after deploys and during other faults; slow instances; errors; an outage; a leak; an intermittent fault. go doc
./bench/week lists all parameters.

An incident counts for a fault if it opens in its window or within 60 s after it; all others are false.`,
		Example: `  sibylbench week
  sibylbench week --weeks 3 --seed 7 -o json`,
		Args: cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.Weeks < 2:
				return cli.Usagef("--weeks must be at least 2: the first week has no faults")
			case o.Types < 20 || o.Types > 3200:
				return cli.Usagef("--types must be from 20 to 3200")
			case o.Rate < 1 || o.Rate > 1000:
				return cli.Usagef("--rate must be from 1 to 1000 requests per second")
			}
			defaults, err := config.Load(config.Sources{})
			if err != nil {
				return err
			}
			o.Backtest = backtest.Options{Core: defaults.Config.Engine(), Assembly: defaults.Config.OpenTraces()}
			o.Progress = p.progress()
			defer debug.SetGCPercent(debug.SetGCPercent(weekGC))
			r, err := week.Run(c.Context(), o)
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
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of the application and its faults")
	flags.IntVar(&o.Weeks, "weeks", 2, "number of weeks; the first has no faults")
	flags.IntVar(&o.Types, "types", 1000, "request types")
	flags.Float64Var(&o.Rate, "rate", 15, "requests per second at the peak of the traffic")
	return c
}
