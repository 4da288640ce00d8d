package main

import (
	"context"
	"errors"
	"fmt"
	"github.com/sibyl-trace/sibyl/cmd/internal/cli"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

func (p *process) tracepointsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "tracepoints",
		Short: "What a running service can switch on, and decisions about it",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(
		p.tracepointsListCommand(),
		p.wishCommand(contract.WishRequestKindEnable, "Switch a tracepoint on for a while", "for an hour, or as --for says, within the budget"),
		p.wishCommand(contract.WishRequestKindPin, "Keep a tracepoint on", "until it is withdrawn, or as --for says; the search does not evict it"),
		p.wishCommand(contract.WishRequestKindForbid, "Never switch a tracepoint on", "until it is withdrawn, or as --for says"),
		p.withdrawCommand(),
	)
	return c
}

func (p *process) tracepointsListCommand() *cobra.Command {
	state := cli.NewChoice("any", "on", "wanted", "forbidden", "off", "baseline")
	var query string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List tracepoints, what is on first",
		Example: "  sibyl tracepoints list --state on\n  sibyl tracepoints list --query payment",
		Args:    cobra.NoArgs,
	}
	state.Flag(c, "state", "", "only those in this state")
	c.Flags().StringVar(&query, "query", "", "only those whose name or operation holds this text")
	f := addListFlags(c, "tracepoints", 100)
	c.RunE = answer(p, f, func(ctx context.Context, api *client.Client) (*contract.TracepointList, error) {
		q := contract.ListTracepointsParams{Q: &query}
		if state.Value != "any" {
			q.State = new(contract.TracepointState(state.Value))
		}
		return api.Tracepoints(ctx, q, f.limit)
	}, client.ShowTracepoints)
	return c
}

// oneTracepoint checks that one tracepoint is named.
func oneTracepoint(_ *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return errors.New("which TRACEPOINT? Name one: sibyl tracepoints list shows them")
	}
	return nil
}

func (p *process) wishCommand(kind contract.WishRequestKind, short, how string) *cobra.Command {
	output := cli.NewChoice("table", "json")
	var last cli.NonNegative
	var force bool
	c := &cobra.Command{
		Use:     string(kind) + " TRACEPOINT",
		Short:   short,
		Long:    short + ", " + how + ". It takes effect when the epoch ends. TRACEPOINT is its name or its 16 digits.",
		Example: "  sibyl tracepoints " + string(kind) + " payment/Bank.charge --for 30m",
		Args:    oneTracepoint,
	}
	output.Flag(c, "output", "o", "format")
	c.Flags().Var(&last, "for", "how long; 0: as above")
	if kind != contract.WishRequestKindForbid {
		c.Flags().BoolVar(&force, "force", false, "even beyond the budget; needs the role admin")
	}
	f := addServerFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		api, err := f.client(p)
		if err != nil {
			return err
		}
		wish := contract.WishRequest{Kind: kind, Force: &force}
		if last > 0 {
			wish.Until = new(time.Now().Add(time.Duration(last)))
		}
		x, err := api.Wish(c.Context(), args[0], wish)
		switch {
		case err != nil:
			return err
		case output.Value == "json":
			return writeJSON(p.out, x)
		}
		return client.ShowTracepoints(p.out, &contract.TracepointList{Items: []contract.Tracepoint{*x}}, terminal.Of(p.out, p.getenv), time.Now())
	}
	return c
}

func (p *process) withdrawCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "withdraw TRACEPOINT",
		Short:   "Take back what was decided about a tracepoint",
		Long:    "Takes back what somebody decided about a tracepoint, so that the search decides again. TRACEPOINT is its name or its 16 digits.",
		Example: "  sibyl tracepoints withdraw payment/Bank.charge",
		Args:    oneTracepoint,
	}
	f := addServerFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		api, err := f.client(p)
		if err != nil {
			return err
		}
		if err := api.Withdraw(c.Context(), args[0]); err != nil {
			return err
		}
		_, err = fmt.Fprintln(p.out, "The search decides again, from the end of the epoch on.")
		return err
	}
	return c
}
