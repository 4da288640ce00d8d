package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/cmd/sibyl/demo"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/demo/shop"
)

// Times of a demo, if nobody says otherwise.
const (
	learnFor     = 30 * time.Second
	answerWithin = 3 * time.Minute
)

func (p *process) demoCommand() *cobra.Command {
	names := []string{"random"}
	for _, f := range shop.Faults() {
		names = append(names, string(f))
	}
	fault, output := newChoice(append(names, string(shop.None))...), newChoice("text", "json")
	o := &demo.Options{}
	var headless bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Watch Sibyl find a fault in a running shop",
		Long: `Starts, on this machine and on loopback only, a shop of eight services in processes of their own, customers who use it, and a Sibyl that
watches it. Half a minute later one thing goes wrong with the shop. What Sibyl finds out is told as it happens: what is wrong, which
tracepoints it switches on, what they show, and where the fault is. Then the shop keeps running, to be looked at, until Ctrl-C.

Nothing is kept, unless --data-dir says where.`,
		Example: `  sibyl demo                                  one fault, at random
  sibyl demo --fault lock --seed 3
  sibyl demo --headless --exit-when-located --fault disk --seed 1 -o json`,
		Args: cobra.NoArgs,
	}
	fault.flag(c, "fault", "", "what goes wrong")
	output.flag(c, "output", "o", "format of the result")
	c.Flags().Uint64Var(&o.Seed, "seed", 0, "of customers, fault and place; 0: by the clock")
	c.Flags().BoolVar(&headless, "headless", false, "tell what happens on standard error, and only the result on standard output")
	c.Flags().BoolVar(&o.ExitWhenFound, "exit-when-located", false, "end with the answer, with exit code 1 if there is none in time")
	c.Flags().DurationVar(&o.Learning, "learning", learnFor, "how long Sibyl learns what is normal before something goes wrong")
	c.Flags().DurationVar(&o.Timeout, "timeout", answerWithin, "how long to wait for the answer, from when something goes wrong")
	c.Flags().StringVar(&o.DataDir, "data-dir", "", "directory of Sibyl's data; empty: a temporary one")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := checkDemo(o); err != nil {
			return err
		}
		if fault.value != "random" {
			o.Fault = shop.Fault(fault.value)
		}
		o.Seed = cmp.Or(o.Seed, uint64(time.Now().UnixNano())%1_000_000)
		o.Out = p.out
		if headless || output.value == "json" {
			o.Out = p.err
		}
		o.Done = func(r *demo.Result) error {
			if output.value == "json" {
				return json.NewEncoder(p.out).Encode(r)
			}
			_, err := fmt.Fprint(p.out, r)
			return err
		}
		return p.demo(c.Context(), o)
	}
	return c
}

// checkDemo returns what is wrong with the options of a demo.
func checkDemo(o *demo.Options) error {
	switch {
	case o.Timeout <= 0:
		return usageError{errors.New("--timeout must be above 0")}
	case o.Learning < demo.Epoch:
		return usageError{fmt.Errorf("--learning must be at least %s, the time between two decisions", demo.Epoch)}
	}
	return nil
}

func (p *process) demo(ctx context.Context, o *demo.Options) (err error) {
	if o.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program's file: %w", err)
	}
	o.Environment = os.Environ()
	return demo.Run(ctx, o)
}

// demoCommands returns the commands that the demo starts processes with.
func (p *process) demoCommands() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: demo.ShopCommand, Hidden: true, Args: cobra.NoArgs, Short: "A process of the demo's shop",
			RunE: func(c *cobra.Command, _ []string) error { return shop.Run(c.Context(), p.in, p.out) },
		},
		{
			Use: demo.AttendedCommand, Hidden: true, DisableFlagParsing: true, Args: cobra.MinimumNArgs(2), Short: "A command that ends with its standard input",
			RunE: func(c *cobra.Command, args []string) error {
				return demo.Attend(c.Context(), p.in, args[0], func(ctx context.Context) error {
					root := p.root()
					root.SetArgs(args[1:])
					return root.ExecuteContext(ctx)
				})
			},
		},
	}
}
