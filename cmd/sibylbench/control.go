package main

import (
	"errors"

	"github.com/sibyl-trace/sibyl/cmd/internal/cli"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/throughput"
)

func (p *process) controlCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	o := throughput.ControlOptions{}
	c := &cobra.Command{
		Use:   "control",
		Short: "Agents: how fast plans reach them, and what they take of the server",
		Long: `Starts sibyl serve as a process of its own, with its data in a temporary directory, and connects agents to it from this process. Both
share the machine. Each agent takes a file descriptor in either process.`,
		Example: "  sibylbench control\n  sibylbench control --agents 1000 -o json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Agents < 1 || o.Services < 1 || o.Tracepoints < 1 || o.Rounds < 1 {
				return cli.UsageError{Err: errors.New("--agents, --services, --tracepoints and --rounds must be above 0")}
			}
			program, err := p.findSibyl()
			if err != nil {
				return err
			}
			o.Program = program
			r, err := throughput.Control(c.Context(), o)
			if err != nil {
				return err
			}
			return p.measured(r, output)
		},
	}
	output.Flag(c, "output", "o", "format")
	c.Flags().IntVar(&o.Agents, "agents", 10_000, "agents that are connected at the same time")
	c.Flags().IntVar(&o.Services, "services", 20, "services that they belong to")
	c.Flags().IntVar(&o.Tracepoints, "tracepoints", 50, "tracepoints of each service that are on")
	c.Flags().BoolVar(&o.OpAMP, "opamp", false, "agents are connected by WebSockets, with OpAMP's own client")
	c.Flags().IntVar(&o.Rounds, "rounds", 10, "changes of the plan")
	return c
}
