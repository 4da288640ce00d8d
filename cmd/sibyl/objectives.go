package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func objectivesCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "objectives",
		Short: "List the objectives of a running service with their burn rates",
		Long: `Objectives lists the objectives in the configuration of a running sibyl serve: whether requests meet
them, the part of the error budget that is left, and the burn rates of the last minutes and hours. At a burn rate of 1,
the budget lasts exactly 30 days. An objective opens an incident if the rates of 5 minutes and an hour reach 14.4, or
those of 30 minutes and 6 hours reach 6.`,
		Example: `  sibyl objectives
  sibyl objectives -o json | jq '.items[] | select(.burning)'`,
		Args: cli.Arguments(0, 0),
	}
	f := &listFlags{server: p.addServerFlags(c), output: cli.NewChoice("table", "json")}
	f.output.Flag(c, "output", "o", "format")
	c.RunE = showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.ObjectiveList, error) {
		return api.Objectives(ctx)
	}, client.ShowObjectives)
	return c
}
