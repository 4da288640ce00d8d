package main

import (
	"encoding/json"
	"time"

	"github.com/sibyl-trace/sibyl/internal/cli"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

func (p *process) overheadCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	fault := cli.NewChoice(demoFaultNames(shop.Faults())...)
	o := &demo.OverheadOptions{Options: demo.Options{ExitWhenFound: true}}
	c := &cobra.Command{
		Use:   "overhead",
		Short: "Cost of tracepoints in the demo's shop",
		Long: `Runs sibylbench demo with a fault and keeps the largest plan of the search. Then another shop, without
a fault, runs at full load in short alternating runs: with the baseline only, with the kept plan, and with all
tracepoints. Prints throughput, P99 and CPU time of the shop: medians, and ratios to the baseline with their
intervals.`,
		Example: "  sibylbench overhead --rounds 20\n  sibylbench overhead --fault disk -o json",
		Args:    cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkDemo(&o.Options); err != nil {
				return err
			}
			if o.Rounds < 1 || o.Time <= 0 || o.Seed == 0 {
				return cli.Usagef("--rounds, --time and --seed must be above 0")
			}
			if err := p.programs(&o.Options); err != nil {
				return err
			}
			o.Fault, o.Out = shop.Fault(fault.Value), p.err
			r, err := demo.MeasureOverhead(c.Context(), o)
			if err != nil {
				return err
			}
			if output.Value == "json" {
				return json.NewEncoder(p.out).Encode(r)
			}
			return r.Table(p.out)
		},
	}
	output.Flag(c, "output", "o", "format")
	fault.Flag(c, "fault", "", "fault of the search")
	c.Flags().IntVar(&o.Rounds, "rounds", 20, "runs with each selection of tracepoints")
	c.Flags().DurationVar(&o.Time, "time", 4*time.Second, "duration of a run")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the customers and of the location of the fault")
	healthyFlags(c, &o.Options, defaultLearning)
	c.Flags().DurationVar(&o.Timeout, "timeout", defaultTimeout, "longest time of the search")
	return c
}
