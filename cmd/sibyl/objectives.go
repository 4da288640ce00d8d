package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func objectivesCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "objectives",
		Short: "List, add and change objectives of a running service",
		Long: `Objectives lists the objectives of a running sibyl serve: whether requests meet them, the part of the error
budget that is left, and the burn rates of the last minutes and hours. At a burn rate of 1, the budget lasts exactly 30
days. An objective opens an incident if the rates of 5 minutes and an hour reach 14.4, or those of 30 minutes and 6
hours reach 6. Those of the configuration have no ID: they are changed there.`,
		Example: `  sibyl objectives
  sibyl objectives -o json | jq '.items[] | select(.burning)'`,
		Args: cli.Arguments(0, 0),
	}
	f := p.objectiveFlags(c)
	c.RunE = showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.ObjectiveList, error) {
		return api.Objectives(ctx)
	}, client.ShowObjectives)
	c.AddCommand(objectivesAddCommand(p), objectivesPreviewCommand(p), objectivesSetCommand(p),
		objectivesDeleteCommand(p))
	return c
}

// objectiveFlags adds the flags that name the service and the format.
func (p *process) objectiveFlags(c *cobra.Command) *listFlags {
	f := &listFlags{server: p.addServerFlags(c), output: cli.NewChoice("table", "json")}
	f.output.Flag(c, "output", "o", "format")
	return f
}

// goalFlags describe an objective.
type goalFlags struct {
	request contract.ObjectiveRequest
	below   time.Duration
	errors  float64 // in percent
}

func (g *goalFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&g.request.Entry, "entry", "",
		"service, space, operation, such as 'shop GET /cart'; or a service: all of its entries")
	c.Flags().StringVar(&g.request.Name, "name", "", "name; by default the entry")
	c.Flags().DurationVar(&g.below, "below", 0, "`duration` that requests must not reach, such as 300ms")
	c.Flags().Float64Var(&g.request.Percentile, "percentile", 99, "with --below: `percent` of the requests")
	c.Flags().Float64Var(&g.errors, "errors", 0, "`percent` of the requests that may fail, such as 0.1")
}

// body returns the objective that the flags describe.
func (g *goalFlags) body() (*contract.ObjectiveRequest, error) {
	r := g.request
	switch {
	case r.Entry == "":
		return nil, cli.Usagef("say whose requests: --entry 'shop GET /cart'")
	case (g.below > 0) == (g.errors > 0):
		return nil, cli.Usagef("say what requests must do: either --below 300ms or --errors 0.1")
	case g.errors > 0:
		r.Errors, r.Percentile = g.errors/100, 0
	default:
		r.BelowNs = g.below.Nanoseconds()
	}
	return &r, nil
}

func objectivesAddCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "add",
		Short: "Add an objective",
		Long:  "Add an objective, which is in effect at once. The configuration wins if it limits the same requests.",
		Example: `  sibyl objectives add --entry 'shop GET /cart' --below 300ms --percentile 99
  sibyl objectives add --entry shop --errors 0.1`,
		Args: cli.Arguments(0, 0),
	}
	g := &goalFlags{}
	g.add(c)
	f := p.objectiveFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		r, err := g.body()
		if err != nil {
			return err
		}
		return showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.Objective, error) {
			return api.AddObjective(ctx, r)
		}, client.ShowObjective)(c, nil)
	}
	return c
}

func objectivesPreviewCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:     "preview",
		Short:   "Tell when an objective would have burned in the last two days",
		Example: "  sibyl objectives preview --entry 'shop GET /cart' --below 300ms",
		Args:    cli.Arguments(0, 0),
	}
	g := &goalFlags{}
	g.add(c)
	f := p.objectiveFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		r, err := g.body()
		if err != nil {
			return err
		}
		return showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.ObjectivePreview, error) {
			return api.PreviewObjective(ctx, r)
		}, client.ShowObjectivePreview)(c, nil)
	}
	return c
}

func objectivesSetCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:     "set ID",
		Short:   "Change an objective that was added here or in the UI",
		Example: "  sibyl objectives set 3 --entry 'shop GET /cart' --below 250ms",
		Args:    cli.Arguments(1, 1),
	}
	g := &goalFlags{}
	g.add(c)
	f := p.objectiveFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := g.body()
		if err != nil {
			return err
		}
		return showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.Objective, error) {
			return api.SetObjective(ctx, args[0], r)
		}, client.ShowObjective)(c, nil)
	}
	return c
}

func objectivesDeleteCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:     "delete ID",
		Short:   "Delete an objective that was added here or in the UI",
		Example: "  sibyl objectives delete 3",
		Args:    cli.Arguments(1, 1),
	}
	remove := func(ctx context.Context, api *client.Client, args []string) error {
		return api.DeleteObjective(ctx, args[0])
	}
	c.RunE = change(p, p.addServerFlags(c), "Deleted.", remove)
	return c
}
