package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/agents/kernel"
	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/search"
)

// placePrograms are the programs that faults are injected into: the shop in Go, and the same with a service in Java.
var placePrograms = []string{"shop", "spring"}

// placesFlags holds the flags of the places command.
type placesFlags struct {
	demo       demo.Options
	only       []string
	strategies []string
	faults     []string
	runs       int
	output     *cli.Choice
}

func (p *process) placesCommand() *cobra.Command {
	f := &placesFlags{output: cli.NewChoice("table", "json")}
	c := &cobra.Command{
		Use:   "places",
		Short: "How few tracepoints Sibyl enables to find a fault",
		Long: `Injects faults into programs that run with Sibyl in its default settings, as sibylbench demo does, and
measures the search: whether the right place comes first, the time from the incident to its place, the tracepoints that
were ever enabled, and the spans that they added. The programs are the demo's shop, and the shop with a service in Java
(spring, needs a JDK and Maven). Each run takes about four minutes and injects the next fault.`,
		Example: "  sibylbench places --only shop --runs 8 -o json\n" +
			"  sibylbench places --only shop --strategies adaptive,hierarchical",
		Args: cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return p.places(c.Context(), f) },
	}
	f.output.Flag(c, "output", "o", "format")
	c.Flags().StringSliceVar(&f.only, "only", placePrograms, "programs")
	c.Flags().StringSliceVar(&f.strategies, "strategies", []string{search.DefaultStrategy},
		"strategies of the search: "+strings.Join(search.StrategyNames(), ", "))
	c.Flags().StringSliceVar(&f.faults, "faults", nil, "faults of the runs, in turn; empty: all of the program")
	c.Flags().IntVar(&f.runs, "runs", 30, "runs of each program with each strategy")
	c.Flags().Uint64Var(&f.demo.Seed, "first-seed", 1, "seed of the first round of faults, followed by others")
	healthyFlags(c, &f.demo, defaultLearning)
	c.Flags().DurationVar(&f.demo.Timeout, "timeout", defaultTimeout, "longest time from a fault to its place")
	return c
}

// places runs the searches and prints their results.
func (p *process) places(ctx context.Context, f *placesFlags) error {
	if err := errors.Join(f.check(), checkDemo(&f.demo), p.programs(&f.demo)); err != nil {
		return err
	}
	f.demo.Out, f.demo.ExitWhenFound = p.err, true
	f.demo.Kernel = demo.KernelIfUsable
	all := &demo.Places{Runs: []demo.Place{}}
	for _, program := range f.only {
		o := f.demo
		if program == "spring" {
			if err := p.javaPrograms(ctx, &o); err != nil {
				return err
			}
		}
		for _, o.Strategy = range f.strategies {
			if err := f.program(ctx, program, o, all); err != nil {
				return err
			}
		}
	}
	if f.output.Value == "json" {
		return json.NewEncoder(p.out).Encode(all)
	}
	return all.Table(p.out)
}

// program adds the runs of a program with one strategy.
func (f *placesFlags) program(ctx context.Context, program string, o demo.Options, all *demo.Places) error {
	faults := f.faultsOf(program)
	o.Done = func(r *demo.Result) error {
		all.Runs = append(all.Runs, demo.PlaceOf(program, o.Strategy, r))
		_, err := fmt.Fprint(o.Out, r) // the whole output comes hours later
		return err
	}
	first := o.Seed
	for i := range f.runs {
		o.Fault, o.Seed = faults[i%len(faults)], first+uint64(i/len(faults))
		if err := demo.Run(ctx, &o); err != nil && !errors.Is(err, demo.ErrNotFound) {
			return err
		}
	}
	return nil
}

// faultsOf returns the faults to inject into a program. Those that only the kernel agent sees need it.
func (f *placesFlags) faultsOf(program string) []shop.Fault {
	var named []shop.Fault
	for _, name := range f.faults {
		named = append(named, shop.Fault(name))
	}
	if len(named) > 0 {
		return named
	}
	if program == "spring" {
		return shop.JavaFaults()
	}
	if _, missing := kernel.Check(); missing != nil {
		return shop.Faults()
	}
	return shop.AllFaults()
}

// check returns a usage error if a flag is out of range.
func (f *placesFlags) check() error {
	for _, name := range f.only {
		if !slices.Contains(placePrograms, name) {
			return cli.Usagef("--only: no program is named %q: the programs are %s", name,
				strings.Join(placePrograms, ", "))
		}
	}
	for _, name := range f.strategies {
		if !slices.Contains(search.StrategyNames(), name) {
			return cli.Usagef("--strategies: no strategy is named %q", name)
		}
	}
	for _, name := range f.faults {
		if !slices.Contains(slices.Concat(shop.AllFaults(), shop.JavaFaults()), shop.Fault(name)) {
			return cli.Usagef("--faults: no fault is named %q", name)
		}
	}
	if f.runs < 1 || f.demo.Seed < 1 {
		return cli.Usagef("--runs and --first-seed must be above 0")
	}
	return nil
}
