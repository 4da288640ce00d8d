package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
)

func (p *process) servicesCommand() *cobra.Command {
	var query string
	c := &cobra.Command{
		Use:   "services",
		Short: "List the services in the traces of a running service, with their rates, errors and durations",
		Long: `Services lists the services whose traces a running sibyl serve receives, those that need attention first: the calls of the
last ten minutes, the share that fails, and durations, each beside its usual value. It is the place to see that all is well.`,
		Example: `  sibyl services
  sibyl services --query pay
  sibyl services -o json | jq '.items[] | select(.state != "well") | .service'`,
		Args: cobra.NoArgs,
	}
	c.Flags().StringVar(&query, "query", "", "show only services whose name contains this text")
	f := addListFlags(c, "services", 50)
	c.RunE = showJudged(p, f, func(ctx context.Context, api *client.Client) (*contract.ServiceList, error) {
		return api.Services(ctx, contract.ListServicesParams{Q: &query}, f.limit)
	}, client.ShowServices)
	return c
}
