package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func explainCommand(p *process) *cobra.Command {
	output := cli.NewChoice("table", "json")
	c := &cobra.Command{
		Use:   "explain PROBLEM",
		Short: "Show a problem of a running service with its evidence",
		Long: `Explain shows one problem of a running sibyl serve, open or closed: its diagnosis, the next step, the
edges that carry it, correlated variables, and the tracepoints enabled to locate it. PROBLEM is its rank, its ID, or
the first digits of the ID, at least four. It is the same as sibyl problems PROBLEM.`,
		Example: `  sibyl explain 1
  sibyl explain f072d879 -o json | jq '.edges[0]'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return errors.New("PROBLEM is missing: sibyl problems lists them")
			}
			return nil
		},
	}
	output.Flag(c, "output", "o", "format")
	f := p.addServerFlags(c)
	c.ValidArgsFunction = p.complete(f, problemNames)
	c.RunE = func(c *cobra.Command, args []string) error {
		return p.showProblem(c.Context(), f, output.Value, args[0])
	}
	return c
}

// showProblem shows the problem with the given name; see [client.Client.Problem].
func (p *process) showProblem(ctx context.Context, f *serverFlags, output, name string) error {
	return showAnswer(ctx, p, f, output,
		func(ctx context.Context, api *client.Client) (*contract.ProblemDetail, error) {
			return api.Problem(ctx, name)
		}, client.ShowProblem)
}
