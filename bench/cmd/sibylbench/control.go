package main

import (
	"github.com/sibyl-trace/sibyl/internal/cli"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/throughput"
)

func (p *process) controlCommand() *cobra.Command {
	output := cli.NewChoice("table", "json")
	o := throughput.ControlOptions{}
	c := &cobra.Command{
		Use:   "control",
		Short: "Time until plans reach many agents, and their cost to the server",
		Long: `Starts sibyl serve with a temporary data directory, and connects agents to it from this process. Both
share the machine. Each agent uses a file descriptor in either process.`,
		Example: "  sibylbench control\n  sibylbench control --agents 1000 -o json",
		Args:    cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Agents < 1 || o.Services < 1 || o.Tracepoints < 1 || o.Rounds < 1 {
				return cli.Usagef("--agents, --services, --tracepoints and --rounds must be above 0")
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
			return p.write(r, output)
		},
	}
	output.Flag(c, "output", "o", "format")
	c.Flags().IntVar(&o.Agents, "agents", 10_000, "number of connected agents")
	c.Flags().IntVar(&o.Services, "services", 20, "number of their services")
	c.Flags().IntVar(&o.Tracepoints, "tracepoints", 50, "enabled tracepoints of each service")
	c.Flags().BoolVar(&o.OpAMP, "opamp", false, "connect agents over WebSockets, with OpAMP's own client")
	c.Flags().IntVar(&o.Rounds, "rounds", 10, "number of changes of the plan")
	return c
}
