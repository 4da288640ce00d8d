package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func incidentsCommand(p *process) *cobra.Command {
	state := cli.NewChoice("all", "open", "closed")
	kind := cli.NewChoice("all", "slow", "crept", "failing", "silent", "objective")
	var muted bool
	var service string
	c := &cobra.Command{
		Use:   "incidents [ID]",
		Short: "List the incidents of a running service, or show one",
		Long: `Incidents lists the incidents of a running sibyl serve, open ones first: periods when requests are
slower, or fail more often, than the history explains. Each line has the ID, the opening time, the duration, and the
suspects with their scores.

With an ID, its first digits, or its place in the list, it shows the incident with its evidence: suspects with their
parts and instances, the search for the place inside the first suspect, affected request types with their usual times,
annotations, timeline, comments and slow traces. As markdown, or as one self-contained HTML page, it is a document for a
ticket or a post-mortem.`,
		Example: `  sibyl incidents --state open
  sibyl incidents 1                          the first one with its evidence
  sibyl incidents 101885cb
  sibyl incidents 1 -o html >incident.html   for a post-mortem
  sibyl incidents comment 1 "rolled back"
  sibyl incidents -o json | jq '.items[].sentence'
  sibyl incidents accept 101885cb            what happens since its onset is normal`,
		Args: cli.Arguments(0, 1),
	}
	state.Flag(c, "state", "", "show only incidents in this state")
	c.Flags().BoolVar(&muted, "muted", false, "include muted incidents")
	kind.Flag(c, "kind", "", "show only incidents of this kind")
	c.Flags().StringVar(&service, "service", "", "show only incidents whose first suspect is this service")
	f := p.addListFlags(c, "incidents", 20, markdownFormat, htmlFormat)
	c.ValidArgsFunction = p.complete(f.server, incidentNames)
	list := showJudged(p, f, func(ctx context.Context, api *client.Client) (*contract.IncidentList, error) {
		q := contract.ListIncidentsParams{State: new(contract.ListIncidentsParamsState(state.Value))}
		if muted {
			q.Muted = new(contract.ListIncidentsParamsMutedAll)
		}
		if service != "" {
			q.Service = &service
		}
		if kind.Value != "all" {
			q.Kind = new(contract.IncidentKind(kind.Value))
		}
		return api.Incidents(ctx, q, f.limit)
	}, client.ShowIncidents)
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) == 0 && f.isDocument():
			return cli.Usagef("--output %s: name an incident; sibyl incidents lists them", f.output.Value)
		case len(args) == 0:
			return list(c, args)
		}
		return p.showIncident(c.Context(), f, args[0])
	}
	c.AddCommand(
		incidentNoteCommand(p, "acknowledge", "Acknowledge an incident, for a day", "Acknowledged for a day.",
			(*client.Client).AcknowledgeIncident),
		incidentNoteCommand(p, "mute", "Mute an incident, for a day: lists omit it, and webhooks are not called",
			"Muted for a day.", (*client.Client).MuteIncident),
		acceptIncidentCommand(p),
		commentCommand(p),
		telemetryCommand(p),
	)
	return c
}

// Formats of documents about one incident.
const (
	markdownFormat = "markdown"
	htmlFormat     = "html"
)

// isDocument reports whether --output selects a document instead of a table or JSON.
func (f *listFlags) isDocument() bool {
	return f.output.Value == markdownFormat || f.output.Value == htmlFormat
}

// showIncident shows the incident with the given name, or writes a document about it.
func (p *process) showIncident(ctx context.Context, f *listFlags, name string) error {
	if f.isDocument() {
		api, err := f.server.client(p)
		if err != nil {
			return err
		}
		document, err := api.IncidentReport(ctx, name, contract.GetIncidentReportParamsFormat(f.output.Value))
		if err != nil {
			return err
		}
		_, err = p.out.Write(document)
		return err
	}
	return showAnswer(ctx, p, f.server, f.output.Value,
		func(ctx context.Context, api *client.Client) (*contract.IncidentDetail, error) {
			return api.Incident(ctx, name)
		}, client.ShowIncident)
}

// incidentNoteCommand returns a command with the given name. The command calls set with the ID of an incident and the
// text of a note, and then prints done.
func incidentNoteCommand(
	p *process, name, short, done string, set func(*client.Client, context.Context, string, string) error,
) *cobra.Command {
	var text string
	c := &cobra.Command{
		Use:     name + " ID",
		Short:   short,
		Example: "  sibyl incidents " + name + " 101885cb --text 'known, ticket 42'",
		Args:    cli.Arguments(1, 1),
	}
	c.Flags().StringVar(&text, "text", "", "text of the note")
	server := p.addServerFlags(c)
	c.ValidArgsFunction = p.complete(server, incidentNames)
	c.RunE = change(p, server, done, func(ctx context.Context, api *client.Client, args []string) error {
		return set(api, ctx, args[0], text)
	})
	return c
}

func acceptIncidentCommand(p *process) *cobra.Command {
	c := incidentNoteCommand(p, "accept", "Accept the behaviour since the onset of an open incident as normal",
		"Accepted: the incident closes when the epoch ends.", (*client.Client).AcceptIncident)
	c.Long = `Accept closes an open incident at the end of the epoch and makes the behaviour since its onset normal. It
deletes the older history of the first suspect and of the calls to it. The service then raises no incident for a quarter
of an hour.`
	c.Example = "  sibyl incidents accept 101885cb --text 'invoices have more items since 1.8.2'"
	return c
}

func commentCommand(p *process) *cobra.Command {
	var helped bool
	c := &cobra.Command{
		Use:     "comment ID TEXT",
		Short:   "Comment on an incident",
		Example: `  sibyl incidents comment 101885cb --helped "rolled back to 1.8.1"`,
		Args:    cli.Arguments(2, 2),
	}
	c.Flags().BoolVar(&helped, "helped", false,
		"mark the comment as the remedy that ended the incident; later incidents of the service show it")
	server := p.addServerFlags(c)
	c.ValidArgsFunction = p.complete(server, incidentNames)
	c.RunE = change(p, server, "Added.", func(ctx context.Context, api *client.Client, args []string) error {
		return api.CommentOnIncident(ctx, args[0], contract.CommentRequest{Text: args[1], Helped: &helped})
	})
	return c
}

func telemetryCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "telemetry ID",
		Short: "Show logs, metrics and Kubernetes events of the first suspect of an incident",
		Long: `Telemetry shows metrics before and after the onset of an incident, and restarts, events and logs of its
first suspect. The service asks the servers in logs, metrics and kubernetes of its configuration.`,
		Example: "  sibyl incidents telemetry 101885cb",
		Args:    cli.Arguments(1, 1),
	}
	output := cli.NewChoice("table", "json")
	output.Flag(c, "output", "o", "format")
	server := p.addServerFlags(c)
	c.ValidArgsFunction = p.complete(server, incidentNames)
	c.RunE = func(c *cobra.Command, args []string) error {
		return showAnswer(c.Context(), p, server, output.Value,
			func(ctx context.Context, api *client.Client) (*contract.IncidentTelemetry, error) {
				return api.IncidentTelemetry(ctx, args[0])
			}, client.ShowTelemetry)
	}
	return c
}
