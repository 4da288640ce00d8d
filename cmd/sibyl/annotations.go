package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
)

func annotationsCommand(p *process) *cobra.Command {
	var service string
	c := &cobra.Command{
		Use:   "annotations",
		Short: "List deploys, feature flags and other events of a running service, latest first",
		Long: `Annotations lists events that may explain why requests changed: deploys, which a running sibyl serve
detects by new versions in spans, and what pipelines and people report with sibyl annotate, the API or a webhook.`,
		Example: `  sibyl annotations
  sibyl annotations --service cart
  sibyl annotations -o json | jq -r '.items[] | select(.kind == "flag") | .title'`,
		Args: cli.Arguments(0, 0),
	}
	c.Flags().StringVar(&service, "service", "", "show only annotations of this service")
	f := p.addListFlags(c, "annotations", 50)
	c.RunE = showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.AnnotationList, error) {
		return api.Annotations(ctx, contract.ListAnnotationsParams{Service: optionalText(service)}, f.limit)
	}, client.ShowAnnotations)
	return c
}

func annotateCommand(p *process) *cobra.Command {
	kind := cli.NewChoice("change", "deploy", "flag", "other")
	var service, version, link string
	var tags []string
	c := &cobra.Command{
		Use:   "annotate [TEXT]",
		Short: "Report a deploy, a feature flag or another event to a running service",
		Long: `Annotate tells a running sibyl serve what happened now. Charts mark it, and incidents that begin within
half an hour list it. A token of the role agent is enough. If Sibyl also detects a deploy, it is one annotation.`,
		Example: `  sibyl annotate --service cart --kind flag "new-checkout on"
  sibyl annotate --service cart --kind deploy --version 1.8.2 --link https://ci.example/42
  sibyl annotate --kind other "sale begins"`,
		Args: cli.Arguments(0, 1),
	}
	kind.Flag(c, "kind", "", "kind of event")
	c.Flags().StringVar(&service, "service", "", "service that it concerns; by default all")
	c.Flags().StringVar(&version, "version", "", "deployed version, as in service.version of the spans")
	c.Flags().StringVar(&link, "link", "", "address of a page about it")
	c.Flags().StringSliceVar(&tags, "tag", nil, "a tag; may be repeated")
	server := p.addServerFlags(c)
	c.RunE = change(p, server, "Reported.", func(ctx context.Context, api *client.Client, args []string) error {
		r := contract.AnnotationRequest{
			Kind:    contract.AnnotationKind(kind.Value),
			Service: optionalText(service),
			Version: optionalText(version),
			Link:    optionalText(link),
		}
		if len(args) > 0 {
			r.Text = &args[0]
		}
		if len(tags) > 0 {
			r.Tags = &tags
		}
		return api.Annotate(ctx, r)
	})
	return c
}

// optionalText returns a pointer to text, or nil if it is empty.
func optionalText(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
