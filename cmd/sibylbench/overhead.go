package main

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/sibyl-trace/sibyl/cmd/internal/cli"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
)

func (p *process) overheadCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	names := make([]string, len(shop.Faults()))
	for i, f := range shop.Faults() {
		names[i] = string(f)
	}
	fault := cli.NewChoice(names...)
	o := &demo.OverheadOptions{Options: demo.Options{ExitWhenFound: true}}
	c := &cobra.Command{
		Use:   "overhead",
		Short: "What tracepoints cost the demo's shop",
		Long: `Runs sibylbench demo with a fault to see what the search switches on. Then has another shop, without a fault, serve as many requests as it can, in
short runs that take turns: with nothing on but the baseline, with what the search had on when it had most on, and with everything on.
Prints throughput, P99 and CPU time of the shop: medians, and ratios to nothing on with their intervals.`,
		Example: "  sibylbench overhead --rounds 20\n  sibylbench overhead --fault disk -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkDemo(&o.Options); err != nil {
				return err
			}
			if o.Rounds < 1 || o.Time <= 0 || o.Seed == 0 {
				return cli.UsageError{Err: errors.New("--rounds, --time and --seed must be above 0")}
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
	fault.Flag(c, "fault", "", "what the search looks for")
	c.Flags().IntVar(&o.Rounds, "rounds", 20, "how often the shop runs with each selection")
	c.Flags().DurationVar(&o.Time, "time", 4*time.Second, "of a run")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "of customers, and of the place of the fault")
	c.Flags().DurationVar(&o.Learning, "learning", learnFor, "how long the search learns what is normal before something goes wrong")
	c.Flags().DurationVar(&o.Timeout, "timeout", answerWithin, "how long the search may take")
	return c
}
