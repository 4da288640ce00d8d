package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/cmd/internal/cli"
)

// Default durations of a demo.
const (
	learnFor     = 30 * time.Second
	answerWithin = 3 * time.Minute
)

// demoFlags are the flags of the demo command.
type demoFlags struct {
	demo     demo.Options
	fault    *cli.Choice
	output   *cli.Choice
	headless bool

	seeds     uint64 // of a series; 0: a single demo
	firstSeed uint64
	faults    []string
}

func (p *process) demoCommand() *cobra.Command {
	names := []string{"random"}
	for _, f := range shop.Faults() {
		names = append(names, string(f))
	}
	f := &demoFlags{fault: cli.NewChoice(append(names, string(shop.None))...), output: cli.NewChoice("text", "table", "json")}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch Sibyl find a fault in a running application",
		Long: `Starts, on this machine and on loopback only, a shop of eight services in processes of their own, customers who use it, and a Sibyl that
watches it. Half a minute later it injects a fault into the shop, and prints how Sibyl finds it: which requests are slow, which tracepoints
it enables, what they show, and where the fault is. Then the shop keeps running, to be looked at, until Ctrl-C.

Data is deleted at the end, unless --data-dir names a directory.

With --seeds it runs a series of demos, one after the other and about a minute each: every fault with each seed. The table has medians, the
worst, and how many tracepoints were on; as JSON it prints the result of each run on a line, as soon as the run has ended.`,
		Example: `  sibylbench demo                                  one fault, chosen at random
  sibylbench demo --fault lock --seed 3
  sibylbench demo --headless --exit-when-located --fault disk --seed 1 -o json
  sibylbench demo --seeds 5                        every fault with five seeds, as a table`,
		Args: cobra.NoArgs,
	}
	f.fault.Flag(c, "fault", "", "the fault to inject")
	f.output.Flag(c, "output", "o", "format of the result")
	c.Flags().Uint64Var(&f.demo.Seed, "seed", 0, "of customers, fault and place; 0: by the clock")
	c.Flags().BoolVar(&f.headless, "headless", false, "print progress on standard error, and only the result on standard output")
	c.Flags().BoolVar(&f.demo.ExitWhenFound, "exit-when-located", false, "end with the answer, with exit code 1 if there is none in time")
	c.Flags().DurationVar(&f.demo.Learning, "learning", learnFor, "how long Sibyl learns normal behaviour before the fault is injected")
	c.Flags().DurationVar(&f.demo.Timeout, "timeout", answerWithin, "how long to wait for the answer, from the injection of the fault")
	c.Flags().StringVar(&f.demo.DataDir, "data-dir", "", "directory of Sibyl's data; empty: a temporary one")
	c.Flags().Uint64Var(&f.seeds, "seeds", 0, "run a series: each fault with this many seeds; 0: a single demo")
	c.Flags().Uint64Var(&f.firstSeed, "first-seed", 1, "of a series: the first seed; the others count on from there")
	c.Flags().StringSliceVar(&f.faults, "faults", nil, "of a series: only these faults; none: all")
	c.RunE = func(c *cobra.Command, _ []string) error { return p.demo(c, f) }
	return c
}

// demo runs a single demo, or a series.
func (p *process) demo(c *cobra.Command, f *demoFlags) error {
	if err := checkDemo(&f.demo); err != nil {
		return err
	}
	if f.seeds == 0 {
		for _, name := range []string{"seeds", "first-seed", "faults"} {
			if c.Flags().Changed(name) {
				return cli.UsageError{Err: fmt.Errorf("--%s: a series of demos needs --seeds above 0", name)}
			}
		}
		if err := p.programs(&f.demo); err != nil {
			return err
		}
		return p.singleDemo(c.Context(), f)
	}
	list, err := f.seriesFaults()
	if err != nil {
		return err
	}
	if err := p.programs(&f.demo); err != nil {
		return err
	}
	return p.demoSeries(c.Context(), f, list)
}

// singleDemo runs one demo and prints its result.
func (p *process) singleDemo(ctx context.Context, f *demoFlags) error {
	o := &f.demo
	if f.fault.Value != "random" {
		o.Fault = shop.Fault(f.fault.Value)
	}
	o.Seed = cmp.Or(o.Seed, uint64(time.Now().UnixNano())%1_000_000)
	o.Out = p.out
	if f.headless || f.output.Value == "json" {
		o.Out = p.err
	}
	o.Done = func(r *demo.Result) error {
		switch f.output.Value {
		case "json":
			return json.NewEncoder(p.out).Encode(r)
		case "table":
			return demo.Table(p.out, []*demo.Result{r})
		}
		_, err := fmt.Fprint(p.out, r)
		return err
	}
	return demo.Run(ctx, o)
}

// demoSeries runs a demo for each fault and seed and prints the results.
func (p *process) demoSeries(ctx context.Context, f *demoFlags, faults []shop.Fault) error {
	var results []*demo.Result
	o := &f.demo
	o.Out, o.ExitWhenFound = io.Discard, true
	o.Done = func(r *demo.Result) error {
		results = append(results, r)
		if f.output.Value == "json" {
			return json.NewEncoder(p.out).Encode(r)
		}
		return nil
	}
	for seed := f.firstSeed; seed < f.firstSeed+f.seeds; seed++ {
		for _, o.Fault = range faults {
			o.Seed = seed
			if err := demo.Run(ctx, o); err != nil && !errors.Is(err, demo.ErrNotFound) {
				return err
			}
		}
	}
	if f.output.Value == "json" {
		return nil
	}
	return demo.Table(p.out, results)
}

// seriesFaults returns the faults of a series.
func (f *demoFlags) seriesFaults() ([]shop.Fault, error) {
	if f.firstSeed == 0 {
		return nil, cli.UsageError{Err: errors.New("--first-seed must be above 0")}
	}
	if len(f.faults) == 0 {
		return shop.Faults(), nil
	}
	var list []shop.Fault
	for _, name := range f.faults {
		if !slices.Contains(append(shop.Faults(), shop.None), shop.Fault(name)) {
			return nil, cli.UsageError{Err: fmt.Errorf("--faults: there is no fault %q", name)}
		}
		list = append(list, shop.Fault(name))
	}
	return list, nil
}

// checkDemo returns a usage error if the options of a demo are out of range.
func checkDemo(o *demo.Options) error {
	switch {
	case o.Timeout <= 0:
		return cli.UsageError{Err: errors.New("--timeout must be above 0")}
	case o.Learning < demo.Epoch:
		return cli.UsageError{Err: fmt.Errorf("--learning must be at least %s, the time between two decisions", demo.Epoch)}
	}
	return nil
}

// programs sets the programs that a demo starts, and their environment.
func (p *process) programs(o *demo.Options) (err error) {
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	o.Environment = os.Environ()
	o.Sibyl, err = p.findSibyl()
	return err
}

// demoProcesses returns the hidden commands that run in the processes of a demo.
func (p *process) demoProcesses() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: demo.ShopCommand, Hidden: true, Args: cobra.NoArgs, Short: "A process of the demo's shop",
			RunE: func(c *cobra.Command, _ []string) error { return shop.Run(c.Context(), p.in, p.out) },
		},
		{
			Use: demo.AttendedCommand, Hidden: true, DisableFlagParsing: true, Args: cobra.MinimumNArgs(2), Short: "A program that ends with its standard input",
			RunE: func(c *cobra.Command, args []string) error {
				return demo.Attend(c.Context(), p.in, p.err, args[0], args[1], args[2:]...)
			},
		},
	}
}
