package main

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/benchreport"
	"github.com/sibyl-trace/sibyl/bench/wild"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func (p *process) wildCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	o := wild.Options{}
	var traces, truth string
	c := &cobra.Command{
		Use:   "wild",
		Short: "Incidents in random applications with untidy traffic",
		Long: `Generates random applications with untidy traffic, plays their traces through the engine of sibyl
backtest with default settings, and judges the incidents. Each seed is another application of 7 to 30 services, with
queues, phones, streams, hops without spans and work after the response, each in some of them. It runs for eight to
nine hours, with a fault of every kind that it has a place for, and a harmless event of every kind, in random order. go
doc ./bench/wild lists all of them.

An incident counts for a fault if it opens or comes back in its window or within 60 s after it; others are false.

With --traces and --truth, nothing is played: the traces of the first seed, and its faults, are written for sibyl
backtest.`,
		Example: `  sibylbench wild --seeds 20 --first-seed 100 -o json
  sibylbench wild --first-seed 7 --traces traces.jsonl.gz --truth faults.jsonl
  sibyl backtest --incidents faults.jsonl traces.jsonl.gz`,
		Args: cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.Seeds < 1 || o.Seeds > 1000:
				return cli.Usagef("--seeds must be from 1 to 1000")
			case (traces == "") != (truth == ""):
				return cli.Usagef("--traces and --truth belong together: name both files")
			case traces != "":
				return wild.Write(c.Context(), o.FirstSeed, traces, truth)
			}
			defaults, err := config.Load(config.Sources{})
			if err != nil {
				return err
			}
			if o.Keys, err = ingest.NewKeys(defaults.Config.AttributeKeys()...); err != nil {
				return err
			}
			o.Backtest = backtest.Options{Core: defaults.Config.Engine(), Assembly: defaults.Config.OpenTraces()}
			o.Progress, o.Parallel = p.progress(), runtime.GOMAXPROCS(0)
			r, err := wild.Run(c.Context(), o)
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
	flags.IntVar(&o.Seeds, "seeds", 3, "number of applications")
	flags.Uint64Var(&o.FirstSeed, "first-seed", 1, "seed of the first application")
	flags.StringVar(&traces, "traces", "",
		"write the traces of the first seed to this file as OTLP in JSON lines, compressed if it ends in .gz")
	flags.StringVar(&truth, "truth", "",
		"write the faults of the first seed to this file, for sibyl backtest --incidents")
	return c
}
