package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/cmd/sibyl/demo"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/demo/shop"
)

func (p *process) benchDemoCommand() *cobra.Command {
	output := newChoice("table", "json")
	var seeds, firstSeed uint64
	var faults []string
	o := &demo.Options{Out: io.Discard, ExitWhenFound: true}
	c := &cobra.Command{
		Use:   "demo",
		Short: "How well faults of the demo are located, and at what cost",
		Long: `Runs sibyl demo with every fault and several seeds, one after the other: about a minute each. The table has medians, the worst, and how
many tracepoints were on; what is written as JSON is the result of each run, a line as soon as it ended.`,
		Example: "  sibyl bench demo --seeds 5\n  sibyl bench demo --faults lock,disk -o json",
		Args:    cobra.NoArgs,
	}
	output.flag(c, "output", "o", "format")
	c.Flags().Uint64Var(&seeds, "seeds", 5, "runs with each fault")
	c.Flags().Uint64Var(&firstSeed, "first-seed", 1, "of the first run; the others count on from there")
	c.Flags().StringSliceVar(&faults, "faults", nil, "only these; none: all")
	c.Flags().DurationVar(&o.Learning, "learning", learnFor, "how long Sibyl learns what is normal before something goes wrong")
	c.Flags().DurationVar(&o.Timeout, "timeout", answerWithin, "how long to wait for an answer")
	c.RunE = func(c *cobra.Command, _ []string) error {
		list := shop.Faults()
		if len(faults) > 0 {
			list = nil
		}
		for _, name := range faults {
			if !slices.Contains(append(shop.Faults(), shop.None), shop.Fault(name)) {
				return usageError{fmt.Errorf("--faults: there is no fault %q", name)}
			}
			list = append(list, shop.Fault(name))
		}
		if err := checkDemo(o); err != nil {
			return err
		}
		if seeds == 0 || firstSeed == 0 {
			return usageError{errors.New("--seeds and --first-seed must be above 0")}
		}
		var results []*demo.Result
		o.Done = func(r *demo.Result) error {
			results = append(results, r)
			if output.value == "json" {
				return json.NewEncoder(p.out).Encode(r)
			}
			return nil
		}
		for seed := firstSeed; seed < firstSeed+seeds; seed++ {
			for _, o.Fault = range list {
				o.Seed = seed
				if err := p.demo(c.Context(), o); err != nil && !errors.Is(err, demo.ErrNotFound) {
					return err
				}
			}
		}
		if output.value == "json" {
			return nil
		}
		return demo.Table(p.out, results)
	}
	return c
}
