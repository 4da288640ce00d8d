package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func searchCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "search",
		Short: "Start or end the search for the cause of an incident or a problem",
		Long: `Sibyl normally chooses the incidents and problems for whose cause it searches, by enabling tracepoints
within the budget. These commands override that choice, from the end of the epoch on.`,
		Args: cli.OnlyCommands,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		steerCommand(p, contract.SteeringRequestKindStart, "Start a search, ahead of all others",
			`Start makes Sibyl search for the cause of an incident or a problem, ahead of all others and within the
budget. If that search has ended, it starts again. For an hour, Sibyl neither postpones nor ends it by itself.`,
			"an hour"),
		steerCommand(p, contract.SteeringRequestKindEnd, "End a search, and disable its tracepoints",
			"End stops a search and disables its tracepoints. Sibyl doesn't resume it for a day.", "a day"),
		withdrawSteeringCommand(p),
	)
	return c
}

func steerCommand(p *process, kind contract.SteeringRequestKind, short, long, usual string) *cobra.Command {
	var last cli.NonNegative
	var reason string
	c := &cobra.Command{
		Use:     string(kind) + " ID",
		Short:   short,
		Long:    long + " ID is that of an incident or a problem, or its first digits.",
		Example: "  sibyl search " + string(kind) + " 101885cb --for 30m --reason 'ticket 42'",
		Args:    cli.Arguments(1, 1),
	}
	c.Flags().Var(&last, "for", "duration of the decision; 0: "+usual)
	c.Flags().StringVar(&reason, "reason", "", "reason, for the decision log")
	server := p.addServerFlags(c)
	c.ValidArgsFunction = p.complete(server, incidentNames)
	c.RunE = func(c *cobra.Command, args []string) error {
		api, err := server.client(p)
		if err != nil {
			return err
		}
		x, err := api.Steer(c.Context(), args[0], steering(kind, time.Duration(last), reason))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(p.out, steered(x))
		return err
	}
	return c
}

// steering returns a request for a decision that holds for the duration last, or for the service's default if last is
// 0.
func steering(kind contract.SteeringRequestKind, last time.Duration, reason string) contract.SteeringRequest {
	r := contract.SteeringRequest{Kind: kind, Reason: &reason}
	if last > 0 {
		r.Until = new(time.Now().Add(last))
	}
	return r
}

// steered returns a sentence that describes the effect of the decision x.
func steered(x *contract.Steering) string {
	does := "searched, ahead of all others and within the budget,"
	if x.Kind == contract.SteeringKindEnd {
		does = "not searched"
	}
	return fmt.Sprintf("From the end of the epoch it is %s until %s.", does, x.Until.Local().Format("2 Jan 15:04"))
}

func withdrawSteeringCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:     "withdraw ID",
		Short:   "Let Sibyl decide again whether to search",
		Example: "  sibyl search withdraw 101885cb",
		Args:    cli.Arguments(1, 1),
	}
	server := p.addServerFlags(c)
	c.ValidArgsFunction = p.complete(server, incidentNames)
	c.RunE = change(p, server, "Withdrawn: Sibyl decides again from the end of the epoch.",
		func(ctx context.Context, api *client.Client, args []string) error {
			return api.WithdrawSteering(ctx, args[0])
		})
	return c
}
