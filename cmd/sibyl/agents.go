package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/client"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/terminal"
)

func (p *process) agentsCommand() *cobra.Command {
	output, state := newChoice("table", "json"), newChoice("any", "current", "behind", "lost")
	var query, service string
	var limit int
	c := &cobra.Command{
		Use:     "agents",
		Short:   "List the agents of a running service, and how they are doing",
		Example: "  sibyl agents --state behind\n  sibyl agents --service payment -o json",
		Args:    cobra.NoArgs,
	}
	output.flag(c, "output", "o", "format")
	state.flag(c, "state", "", "only those in this state")
	c.Flags().StringVar(&service, "service", "", "only those of this service")
	c.Flags().StringVar(&query, "query", "", "only those whose service, id, host or version holds this text")
	c.Flags().IntVar(&limit, "limit", 100, "most agents shown; 0: all")
	f := addServerFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if limit < 0 {
			return usageError{errors.New("--limit must not be negative")}
		}
		api, err := f.client(p)
		if err != nil {
			return err
		}
		q := contract.ListAgentsParams{Q: &query}
		if state.value != "any" {
			q.State = new(contract.AgentState(state.value))
		}
		if service != "" {
			q.Service = &service
		}
		list, err := api.Agents(c.Context(), q, limit)
		switch {
		case err != nil:
			return err
		case output.value == "json":
			return writeJSON(p.out, list)
		}
		return client.ShowAgents(p.out, list, terminal.Of(p.out, p.getenv), time.Now())
	}
	return c
}
