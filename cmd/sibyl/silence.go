package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func silenceCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "silence",
		Short: "Stop the notifications about some incidents for some time",
		Long: `Silence stops the webhooks and e-mails about incidents that match, as during an upgrade. Incidents are
found and listed as always. If one is still open when its silence ends, the notification is sent then.`,
		Args: cli.OnlyCommands,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(silenceCreateCommand(p), silenceListCommand(p), silencePreviewCommand(p), silenceEndCommand(p))
	return c
}

// addMatchFlags adds the flags with the conditions of a silence.
func addMatchFlags(c *cobra.Command, m *contract.SilenceMatch) {
	c.Flags().StringVar(&m.Service, "service", "",
		"match incidents with this first suspect; * matches any text, as in --type and --tag")
	c.Flags().StringVar(&m.RequestType, "type", "", "match incidents that affect only request types with this `name`")
	c.Flags().StringSliceVar(&m.Tags, "tag", nil, "`key=value` of an attribute that the first suspect has; repeatable")
}

func silenceCreateCommand(p *process) *cobra.Command {
	r := &contract.SilenceRequest{}
	var lasts, length time.Duration
	var until string
	weekly := &contract.Weekly{}
	var days []string
	c := &cobra.Command{
		Use:   "create",
		Short: "Add a silence",
		Long: `Add a silence with at least one condition. It ends after --for, or at the time --until. With --days it
covers only a window on these days of each week.`,
		Example: `  sibyl silence create --service cart --for 2h --text "upgrade, ticket 42"
  sibyl silence create --tag k8s.namespace.name=shop --until 2026-12-24T06:00:00Z
  sibyl silence create --service 'batch-*' --for 2160h --days friday --start 22:00 --length 4h --zone Europe/Berlin`,
		Args: cli.Arguments(0, 0),
	}
	addMatchFlags(c, &r.Match)
	c.Flags().DurationVar(&lasts, "for", 0, "how long it lasts, such as 2h; at most 90 days (2160h)")
	c.Flags().StringVar(&until, "until", "", "`time` at which it ends, such as 2026-12-24T06:00:00Z")
	c.Flags().StringVar(&r.Text, "text", "", "reason, shown with the silence")
	c.Flags().StringSliceVar(&days, "days", nil, "`days` of the week, such as friday,sunday; by default always")
	c.Flags().StringVar(&weekly.Start, "start", "00:00", "with --days: `time` of day at which the window begins")
	c.Flags().DurationVar(&length, "length", 24*time.Hour, "with --days: length of the window")
	c.Flags().StringVar(&weekly.Zone, "zone", "UTC", "with --days: time zone")
	f := p.silenceFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch at, err := time.Parse(time.RFC3339, until); {
		case (lasts > 0) == (until != ""):
			return cli.Usagef("say when the silence ends: either --for or --until")
		case until != "" && err != nil:
			return cli.Usagef("--until %s: want a time like 2026-12-24T06:00:00Z", until)
		case until != "":
			r.Until = at
		default:
			r.Until = time.Now().Add(lasts)
		}
		if len(days) > 0 {
			for _, day := range days {
				weekly.Days = append(weekly.Days, contract.Weekday(day))
			}
			weekly.LengthNs, r.Weekly = length.Nanoseconds(), weekly
		}
		return showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.Silence, error) {
			return api.AddSilence(ctx, r)
		}, client.ShowSilence)(c, nil)
	}
	return c
}

// silenceFlags adds the flags that name the service and the format.
func (p *process) silenceFlags(c *cobra.Command) *listFlags {
	f := &listFlags{server: p.addServerFlags(c), output: cli.NewChoice("table", "json")}
	f.output.Flag(c, "output", "o", "format")
	return f
}

func silenceListCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the silences, those in force first",
		Example: "  sibyl silence list",
		Args:    cli.Arguments(0, 0),
	}
	c.RunE = showQuery(p, p.silenceFlags(c),
		func(ctx context.Context, api *client.Client) (*contract.SilenceList, error) {
			return api.Silences(ctx)
		}, client.ShowSilences)
	return c
}

func silencePreviewCommand(p *process) *cobra.Command {
	m := &contract.SilenceMatch{}
	c := &cobra.Command{
		Use:     "preview",
		Short:   "List the incidents of now and of the last 7 days that a silence would match",
		Example: "  sibyl silence preview --service cart --tag host.name=node-7",
		Args:    cli.Arguments(0, 0),
	}
	addMatchFlags(c, m)
	c.RunE = showQuery(p, p.silenceFlags(c),
		func(ctx context.Context, api *client.Client) (*contract.SilencePreview, error) {
			return api.PreviewSilence(ctx, m)
		}, client.ShowSilencePreview)
	return c
}

func silenceEndCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:     "end ID",
		Short:   "End a silence now",
		Example: "  sibyl silence end 3",
		Args:    cli.Arguments(1, 1),
	}
	end := func(ctx context.Context, api *client.Client, args []string) error {
		return api.EndSilence(ctx, args[0])
	}
	c.RunE = change(p, p.addServerFlags(c), "Ended.", end)
	return c
}
