package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

func tracepointsCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "tracepoints",
		Short: "List tracepoints of a running service, and override their state",
		Args:  cli.OnlyCommands,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		tracepointsListCommand(p),
		overrideCommand(p, contract.OverrideRequestKindEnable, "Enable a tracepoint temporarily",
			"for an hour or for --for, within the budget"),
		overrideCommand(p, contract.OverrideRequestKindPin, "Keep a tracepoint on",
			"until withdrawn or for --for; the search cannot disable it"),
		overrideCommand(p, contract.OverrideRequestKindForbid, "Keep a tracepoint off", "until withdrawn or for --for"),
		withdrawCommand(p),
	)
	return c
}

func tracepointsListCommand(p *process) *cobra.Command {
	state := cli.NewChoice("all", "on", "pending", "forbidden", "off", "baseline")
	var query string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List tracepoints, enabled ones first",
		Example: "  sibyl tracepoints list --state on\n  sibyl tracepoints list --query payment",
		Args:    cli.Arguments(0, 0),
	}
	state.Flag(c, "state", "", "show only tracepoints in this state")
	c.Flags().StringVar(&query, "query", "", "show only tracepoints whose name or operation contains this text")
	f := p.addListFlags(c, "tracepoints", 100)
	c.RunE = showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.TracepointList, error) {
		q := contract.ListTracepointsParams{Q: &query}
		if state.Value != "all" {
			q.State = new(contract.TracepointState(state.Value))
		}
		return api.Tracepoints(ctx, q, f.limit)
	}, client.ShowTracepoints)
	return c
}

// oneTracepoint is a [cobra.PositionalArgs] that requires one tracepoint.
func oneTracepoint(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("TRACEPOINT is missing: sibyl tracepoints list shows them")
	}
	return nil
}

func overrideCommand(p *process, kind contract.OverrideRequestKind, short, how string) *cobra.Command {
	output := cli.NewChoice("table", "json")
	var last cli.NonNegative
	var force bool
	c := &cobra.Command{
		Use:   string(kind) + " TRACEPOINT",
		Short: short,
		Long: short + ", " + how +
			". It takes effect at the end of the epoch. TRACEPOINT is its name or its ID of 16 digits.",
		Example: "  sibyl tracepoints " + string(kind) + " payment/Bank.charge --for 30m",
		Args:    oneTracepoint,
	}
	output.Flag(c, "output", "o", "format")
	usual := "until withdrawn"
	if kind == contract.OverrideRequestKindEnable {
		usual = "an hour"
	}
	c.Flags().Var(&last, "for", "duration of the override; 0: "+usual)
	if kind != contract.OverrideRequestKindForbid {
		c.Flags().BoolVar(&force, "force", false, "exceed the budget; requires the role admin")
	}
	f := p.addServerFlags(c)
	c.ValidArgsFunction = p.complete(f, tracepointNames)
	c.RunE = func(c *cobra.Command, args []string) error {
		api, err := f.client(p)
		if err != nil {
			return err
		}
		override := contract.OverrideRequest{Kind: kind, Force: &force}
		if last > 0 {
			override.Until = new(time.Now().Add(time.Duration(last)))
		}
		x, err := api.Override(c.Context(), args[0], override)
		switch {
		case err != nil:
			return err
		case output.Value == "json":
			return writeJSON(p.out, x)
		}
		return client.ShowTracepoints(p.out, &contract.TracepointList{Items: []contract.Tracepoint{*x}},
			terminal.Of(p.out, p.getenv), time.Now())
	}
	return c
}

func withdrawCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "withdraw TRACEPOINT",
		Short: "Withdraw an override",
		Long: "Withdraw removes the override of a tracepoint, so that the search decides again. " +
			"TRACEPOINT is its name or its ID of 16 digits.",
		Example: "  sibyl tracepoints withdraw payment/Bank.charge",
		Args:    oneTracepoint,
	}
	f := p.addServerFlags(c)
	c.ValidArgsFunction = p.complete(f, tracepointNames)
	const done = "Override withdrawn: the search decides again from the end of the epoch."
	c.RunE = change(p, f, done, func(ctx context.Context, api *client.Client, args []string) error {
		return api.Withdraw(ctx, args[0])
	})
	return c
}
