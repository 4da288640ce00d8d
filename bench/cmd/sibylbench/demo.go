package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/demo"
	"github.com/sibyl-trace/sibyl/bench/demo/shop"
	"github.com/sibyl-trace/sibyl/bench/demo/springcatalog"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

// Default durations of a demo.
const (
	defaultLearning = 30 * time.Second
	defaultTimeout  = 6 * time.Minute
	defaultPast     = 30 * time.Minute
)

// demoFlags holds the flags of the demo command.
type demoFlags struct {
	demo     demo.Options
	fault    *cli.Choice
	output   *cli.Choice
	headless bool
	jvm      bool
	kernel   bool

	seeds     uint64 // of a series; 0 for a single demo
	firstSeed uint64
	faults    []string
}

func (p *process) demoCommand() *cobra.Command {
	names := slices.Concat([]string{"random"}, demoFaultNames(shop.AllFaults()), demoFaultNames(shop.JavaFaults()),
		[]string{string(shop.None)})
	f := &demoFlags{fault: cli.NewChoice(names...), output: cli.NewChoice("text", "table", "json")}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch Sibyl find a fault in a running application",
		Long: `Starts a shop of eight services, customers who use it, and Sibyl, each in a process of its own, on the
loopback interface. After half a minute it injects a fault into the shop and prints the story of its incident: the
sentence with a link to its page, enabled tracepoints with their evidence, and the location of the fault. Then
everything keeps running until Ctrl-C. Sibyl runs with its default settings.

Web UI and API are at the usual address of sibyl serve, so that commands such as sibyl incidents ask this server, or at
a free port if something listens there, or with --headless.

Data is deleted at the end, unless --data-dir names a directory.

With --seeds it runs a series of demos in sequence, about four minutes each: every fault with each seed. The table has
medians and worst values. As JSON, each result is printed on a line of its own at the end of its run.`,
		Example: `  sibylbench demo                                  one fault, chosen at random
  sibylbench demo --fault lock --seed 3
  sibylbench demo --headless --exit-when-located --fault disk --seed 1 -o json
  sibylbench demo --jvm                            faults in the methods of a Spring Boot service
  sibylbench demo --seeds 5                        every fault with five seeds, as a table`,
		Args: cli.Arguments(0, 0),
	}
	f.fault.Flag(c, "fault", "", "fault to inject; those of Java need --jvm")
	f.output.Flag(c, "output", "o", "format of the result")
	c.Flags().Uint64Var(&f.demo.Seed, "seed", 0, "seed of the customers, the fault and its location; 0: from the clock")
	c.Flags().BoolVar(&f.headless, "headless", false,
		"print progress to standard error, and only the result to standard output")
	c.Flags().BoolVar(&f.demo.ExitWhenFound, "exit-when-located", false,
		"exit with the answer, or with exit code 1 after the timeout")
	c.Flags().BoolVar(&f.kernel, "kernel", false, "run the kernel agent, too, which finds what threads wait for; "+
		"default: if it can observe processes here (Linux, root), but not in a series")
	c.Flags().BoolVar(&f.jvm, "jvm", false,
		"run the catalog as a Spring Boot service, with faults in its methods; needs a JDK and Maven")
	healthyFlags(c, &f.demo, defaultLearning)
	c.Flags().DurationVar(&f.demo.Hold, "hold", 0, "time to go on after the answer, to see further incidents")
	c.Flags().DurationVar(&f.demo.Timeout, "timeout", defaultTimeout, "longest time from the fault to the answer")
	c.Flags().StringVar(&f.demo.DataDir, "data-dir", "", "directory of Sibyl's data; empty: a temporary one")
	c.Flags().Uint64Var(&f.seeds, "seeds", 0, "run a series with this many seeds of each fault; 0: a single demo")
	c.Flags().Uint64Var(&f.firstSeed, "first-seed", 1, "first seed of a series, followed by consecutive ones")
	c.Flags().StringSliceVar(&f.faults, "faults", nil, "faults of a series; empty: all")
	c.RunE = func(c *cobra.Command, _ []string) error {
		f.demo.Kernel = f.kernelAgent(c.Flags().Changed("kernel"))
		return p.demo(c, f)
	}
	return c
}

// kernelAgent returns whether to run the kernel agent. given reports whether --kernel was given.
func (f *demoFlags) kernelAgent(given bool) demo.Kernel {
	switch {
	case f.kernel:
		return demo.WithKernel
	case !given && f.seeds == 0:
		return demo.KernelIfUsable
	}
	return demo.WithoutKernel
}

// healthyFlags defines the flags for the time before the fault.
func healthyFlags(c *cobra.Command, o *demo.Options, learning time.Duration) {
	c.Flags().DurationVar(&o.Learning, "learning", learning, "healthy time before the fault")
	c.Flags().DurationVar(&o.Past, "past", defaultPast,
		"time before the demo that Sibyl sees as well, made of the first requests; incidents need it")
}

// demo runs a single demo, or a series.
func (p *process) demo(c *cobra.Command, f *demoFlags) error {
	if err := errors.Join(checkDemo(&f.demo), f.checkFault()); err != nil {
		return err
	}
	if f.seeds == 0 {
		for _, name := range []string{"seeds", "first-seed", "faults"} {
			if c.Flags().Changed(name) {
				return cli.Usagef("--%s: a series of demos needs --seeds above 0", name)
			}
		}
		if err := p.demoPrograms(c.Context(), f); err != nil {
			return err
		}
		return p.singleDemo(c.Context(), f)
	}
	list, err := f.seriesFaults()
	if err != nil {
		return err
	}
	if err := p.demoPrograms(c.Context(), f); err != nil {
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
	} else {
		o.HTTP = client.DefaultAddress // so that sibyl incidents asks this server
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

// demoFaultNames returns the names of faults.
func demoFaultNames(faults []shop.Fault) []string {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = string(f)
	}
	return names
}

// possible returns the faults that the chosen shop can have.
func (f *demoFlags) possible() []shop.Fault {
	if f.jvm {
		return shop.JavaFaults()
	}
	return shop.AllFaults()
}

// checkFault returns a usage error if the shop does not have the fault.
func (f *demoFlags) checkFault() error {
	fault := shop.Fault(f.fault.Value)
	if f.fault.Value == "random" || fault == shop.None || slices.Contains(f.possible(), fault) {
		return nil
	}
	if f.jvm {
		return cli.Usagef("--fault: with --jvm the faults are %s",
			strings.Join(demoFaultNames(shop.JavaFaults()), ", "))
	}
	return cli.Usagef("--fault: %s needs --jvm", fault)
}

// demoPrograms sets the programs of a demo.
func (p *process) demoPrograms(ctx context.Context, f *demoFlags) error {
	if err := p.programs(&f.demo); err != nil || !f.jvm {
		return err
	}
	return p.javaPrograms(ctx, &f.demo)
}

// javaPrograms sets the programs of the service in Java, which it builds in the user's cache.
func (p *process) javaPrograms(ctx context.Context, o *demo.Options) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the folder for the Spring Boot service: %w", err)
	}
	o.Java, err = springcatalog.Build(ctx, javaHome(o.Environment), filepath.Join(cache, "sibyl"), p.err)
	return err
}

// javaHome returns the value of JAVA_HOME in an environment, or "" if it is not set.
func javaHome(environment []string) string {
	for _, variable := range environment {
		if home, found := strings.CutPrefix(variable, "JAVA_HOME="); found {
			return home
		}
	}
	return ""
}

// seriesFaults returns the faults of a series.
func (f *demoFlags) seriesFaults() ([]shop.Fault, error) {
	if f.firstSeed == 0 {
		return nil, cli.Usagef("--first-seed must be above 0")
	}
	if len(f.faults) == 0 {
		return f.possible(), nil
	}
	var list []shop.Fault
	for _, name := range f.faults {
		if !slices.Contains(append(f.possible(), shop.None), shop.Fault(name)) {
			return nil, cli.Usagef("--faults: no fault is named %q", name)
		}
		list = append(list, shop.Fault(name))
	}
	return list, nil
}

// checkDemo returns a usage error if the options of a demo are out of range.
func checkDemo(o *demo.Options) error {
	switch {
	case o.Timeout <= 0:
		return cli.Usagef("--timeout must be above 0")
	case o.Past < 0 || o.Hold < 0:
		return cli.Usagef("--past and --hold must not be negative")
	case o.Learning <= 0:
		return cli.Usagef("--learning must be above 0")
	case o.Past > 0 && o.Learning < demo.LeastRecording:
		return cli.Usagef("--learning must be at least %s, of which the past is made; or use --past 0",
			demo.LeastRecording)
	}
	return nil
}

// programs sets the programs of a demo and their environment.
func (p *process) programs(o *demo.Options) (err error) {
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find the path of this program: %w", err)
	}
	o.Environment = os.Environ()
	o.Sibyl, err = p.findSibyl()
	return err
}

// demoProcesses returns the hidden commands for the processes of a demo.
func (p *process) demoProcesses() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: demo.ShopCommand, Hidden: true, Args: cli.Arguments(0, 0), Short: "Run a process of the demo's shop",
			RunE: func(c *cobra.Command, _ []string) error { return shop.Run(c.Context(), p.in, p.out) },
		},
		{
			Use:    shop.NeighbourCommand,
			Hidden: true,
			Args:   cobra.ExactArgs(1),
			Short:  "Take a CPU from a process of the demo's shop",
			RunE:   func(c *cobra.Command, args []string) error { return shop.Disturb(c.Context(), p.in, args[0]) },
		},
		{
			Use:                demo.SupervisedCommand,
			Hidden:             true,
			DisableFlagParsing: true,
			Args:               cobra.MinimumNArgs(2),
			Short:              "Run a program until the end of standard input",
			RunE: func(c *cobra.Command, args []string) error {
				return demo.Supervise(c.Context(), p.in, p.err, args[0], args[1], args[2:]...)
			},
		},
	}
}
