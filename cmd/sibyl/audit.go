package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func auditCommand(p *process) *cobra.Command {
	var since cli.NonNegative
	var who, operation string
	c := &cobra.Command{
		Use:   "audit",
		Short: "List who changed what, when and from where",
		Long: `Audit lists the entries of the audit log of a running sibyl serve, latest first: all changes, and the number of
attempts in each minute that were refused. It needs a token of the role admin, once a token exists.

With -o json it writes an entry a line, for export.`,
		Example: `  sibyl audit --since 24h
  sibyl audit --who grafana --operation backUp
  sibyl audit -o json --limit 0 > audit.jsonl`,
		Args: cli.Arguments(0, 0),
	}
	c.Flags().Var(&since, "since", "show only entries that are at most this old; 0: all")
	c.Flags().StringVar(&who, "who", "", "show only entries of this token or person")
	c.Flags().StringVar(&operation, "operation", "", "show only entries of this operation, such as muteIncident")
	f := p.addListFlags(c, "entries", 50)
	query := func(ctx context.Context, api *client.Client) (*contract.AuditList, error) {
		params := contract.ListAuditParams{}
		if since > 0 {
			params.From = new(time.Now().Add(-time.Duration(since)).UTC().Format(time.RFC3339Nano))
		}
		if who != "" {
			params.Who = &who
		}
		if operation != "" {
			params.Operation = &operation
		}
		return api.Audit(ctx, params, f.limit)
	}
	table := showQuery(p, f, query, client.ShowAudit)
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.output.Value != "json" || f.limit < 0 {
			return table(c, args)
		}
		api, err := f.server.client(p)
		if err != nil {
			return err
		}
		list, err := query(c.Context(), api)
		if err != nil {
			return err
		}
		lines := json.NewEncoder(p.out)
		lines.SetEscapeHTML(false)
		for i := range list.Items {
			if err := lines.Encode(&list.Items[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}
