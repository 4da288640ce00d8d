package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func servicesCommand(p *process) *cobra.Command {
	var query string
	c := &cobra.Command{
		Use: "services [SERVICE]",
		Short: "List the services in the traces of a running service with their rates, errors and times, " +
			"or show one",
		Long: `Services lists the services whose traces a running sibyl serve receives, those that need attention
first: the calls of the last ten minutes, the share that fails, and durations, each beside its usual value. It is the
place to see that all is well. With SERVICE it shows that one with its operations, callers, callees, instances and
annotations.`,
		Example: `  sibyl services
  sibyl services --query pay
  sibyl services payment                     one with its operations
  sibyl services -o json | jq '.items[] | select(.state != "well") | .service'`,
		Args: cli.Arguments(0, 1),
	}
	c.Flags().StringVar(&query, "query", "", "show only services whose name contains this text")
	f := p.addListFlags(c, "services", 50)
	c.ValidArgsFunction = p.complete(f.server, serviceNames)
	list := showJudged(p, f, func(ctx context.Context, api *client.Client) (*contract.ServiceList, error) {
		return api.Services(ctx, contract.ListServicesParams{Q: &query}, f.limit)
	}, client.ShowServices)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return list(c, args)
		}
		return showJudged(p, f, func(ctx context.Context, api *client.Client) (*contract.ServiceDetail, error) {
			return api.Service(ctx, args[0])
		}, client.ShowService)(c, args)
	}
	return c
}
