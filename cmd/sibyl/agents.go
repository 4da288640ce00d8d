package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func agentsCommand(p *process) *cobra.Command {
	state := cli.NewChoice("all", "current", "behind", "lost")
	var query, service string
	c := &cobra.Command{
		Use:     "agents",
		Short:   "List the agents of a running service and their state",
		Example: "  sibyl agents --state behind\n  sibyl agents --service payment -o json",
		Args:    cli.Arguments(0, 0),
	}
	state.Flag(c, "state", "", "show only agents in this state")
	c.Flags().StringVar(&service, "service", "", "show only agents of this service")
	c.Flags().StringVar(&query, "query", "", "show only agents whose service, ID, host or version contains this text")
	f := p.addListFlags(c, "agents", 100)
	c.RunE = showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.AgentList, error) {
		q := contract.ListAgentsParams{Q: &query}
		if state.Value != "all" {
			q.State = new(contract.AgentState(state.Value))
		}
		if service != "" {
			q.Service = &service
		}
		return api.Agents(ctx, q, f.limit)
	}, client.ShowAgents)
	return c
}
