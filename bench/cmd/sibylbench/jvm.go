package main

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func (p *process) jvmCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	faults := demoFaultNames(shop.JavaFaults())
	o := &demo.JVMOptions{}
	c := &cobra.Command{
		Use:   "jvm",
		Short: "Cost and use of the agent for the JVM",
		Long: `Runs the Spring Boot service of sibylbench demo --jvm in five configurations at once: without agents,
twice with OpenTelemetry's Java agent, and with Sibyl's agent beside it, steered by sibyl serve with default settings,
or with all tracepoints enabled. Customers send each request to all of them, in random order. Sibyl first looks for the
reasons of latencies that vary without a fault. After a healthy time without tracepoints, a fault is injected into all
of them, which Sibyl has to locate, and is then removed. Each run has new JVMs and the next fault.

Prints the answers, the tracepoints that Sibyl enabled, and CPU time of the JVM per request and response times:
medians of windows, and of their ratios to OpenTelemetry's agent in the same window, with 95 % intervals. Measurements
need Linux.`,
		Example: "  sibylbench jvm --runs 10\n  sibylbench jvm --runs 1 --faults java-lock -o json",
		Args:    cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, name := range faults {
				o.Faults = append(o.Faults, shop.Fault(name))
			}
			if err := errors.Join(checkDemo(&o.Options), checkJVM(o)); err != nil {
				return err
			}
			o.Out = p.err
			if err := p.programs(&o.Options); err != nil {
				return err
			}
			if err := p.javaPrograms(c.Context(), &o.Options); err != nil {
				return err
			}
			r, err := demo.MeasureJVM(c.Context(), o)
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
	c.Flags().StringSliceVar(&faults, "faults", faults, "faults of the runs, in turn")
	c.Flags().IntVar(&o.Runs, "runs", 10, "number of runs")
	c.Flags().DurationVar(&o.Window, "window", 10*time.Second, "time in which the configurations are compared")
	c.Flags().DurationVar(&o.Search, "search", 15*time.Minute,
		"longest time for Sibyl to find the reasons of latencies that vary without a fault")
	c.Flags().DurationVar(&o.Well, "well", 2*time.Minute, "time measured before the fault, once Sibyl has searched")
	c.Flags().DurationVar(&o.Back, "back", time.Minute, "time measured after the fault")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed of the first run")
	healthyFlags(c, &o.Options, 2*time.Minute)
	c.Flags().DurationVar(&o.Timeout, "timeout", defaultTimeout, "longest time from the fault to the answer")
	return c
}

// checkJVM returns a usage error if options are out of range.
func checkJVM(o *demo.JVMOptions) error {
	if o.Runs < 1 || len(o.Faults) == 0 || o.Window <= 0 || o.Well <= 0 || o.Back <= 0 || o.Seed == 0 {
		return cli.Usagef("--runs, --window, --well, --back and --seed must be above 0, and --faults must name one")
	}
	for _, f := range o.Faults {
		if !slices.Contains(shop.JavaFaults(), f) {
			return cli.Usagef("--faults: no fault of the service in Java is named %q", f)
		}
	}
	return nil
}
