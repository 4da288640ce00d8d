package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func tracesCommand(p *process) *cobra.Command {
	var q struct {
		service, operation string
		attributes         []string
		longer             time.Duration
		failed             bool
	}
	sort := cli.NewChoice("newest", "slowest")
	c := &cobra.Command{
		Use:   "traces [ID]",
		Short: "List the traces that a running service keeps, or show one",
		Long: `Traces lists the sample traces that a running sibyl serve keeps: slow, typical, fast and failed ones of
each request type, and those of incidents. --service, --operation, --failed and --attribute must hold for one span of a
trace.

With ID, or its first digits, it shows the trace: how it differs from normal ones of its request type, the spans that
carry its critical path, those that failed, and those that took longer than usual. sibyl trace shows traces of files.`,
		Example: `  sibyl traces --sort slowest --limit 5
  sibyl traces --service payment --longer 200ms
  sibyl traces --attribute service.instance.id=payment-1 --failed
  sibyl traces 4bf92f35
  sibyl traces -o json | jq -r '.items[].id'`,
		Args: cli.Arguments(0, 1),
	}
	c.Flags().StringVar(&q.service, "service", "", "show only traces with a span of this service")
	c.Flags().StringVar(&q.operation, "operation", "", "show only traces with a span of this name")
	c.Flags().StringArrayVar(&q.attributes, "attribute", nil,
		"show only traces with a span that has this attribute, as key=value or key; repeatable")
	c.Flags().DurationVar(&q.longer, "longer", 0, "show only requests that took at least this long")
	c.Flags().BoolVar(&q.failed, "failed", false, "show only traces with a span that failed")
	sort.Flag(c, "sort", "", "sort order")
	f := p.addListFlags(c, "traces", 20)
	list := showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.TraceList, error) {
		params := contract.ListTracesParams{Sort: new(contract.ListTracesParamsSort(sort.Value))}
		if q.service != "" {
			params.Service = &q.service
		}
		if q.operation != "" {
			params.Operation = &q.operation
		}
		if len(q.attributes) > 0 {
			params.Attribute = &q.attributes
		}
		if q.longer > 0 {
			params.LongerNs = new(q.longer.Nanoseconds())
		}
		if q.failed {
			params.Error = &q.failed
		}
		return api.Traces(ctx, params, f.limit)
	}, client.ShowTraces)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return list(c, args)
		}
		return p.showTrace(c.Context(), f, args[0])
	}
	return c
}

// showTrace shows the kept trace with the given name; see [client.Client.Trace].
func (p *process) showTrace(ctx context.Context, f *listFlags, name string) error {
	return showAnswer(ctx, p, f.server, f.output.Value,
		func(ctx context.Context, api *client.Client) (*contract.Trace, error) {
			return api.Trace(ctx, name)
		}, client.ShowTrace)
}
