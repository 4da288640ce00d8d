package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/cmd/sibyl/config"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/terminal"
	"github.com/sibyl-trace/sibyl/notify"
)

func (p *process) webhookCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "webhook",
		Short: "Try the webhooks of a configuration",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.webhookTestCommand())
	return c
}

func (p *process) webhookTestCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "test NAME",
		Short: "Call a webhook once with a test event, and print its answer",
		Long: `Calls the webhook of this name once, as sibyl serve would, with an event that says that it is a test, and prints what it answers.

Exit codes: 0 it accepted the event, 1 it did not or could not be called, 2 wrong usage.`,
		Example: "  sibyl webhook test oncall --config /etc/sibyl/sibyl.yaml",
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) != 1 || names[0] == "" {
				return errors.New("which webhook? NAME one of the configuration")
			}
			return nil
		},
	}
	flags := config.AddFlags(c.Flags())
	c.RunE = func(c *cobra.Command, names []string) error {
		e, err := config.Load(config.Sources{Getenv: p.getenv, Flags: flags})
		if err != nil {
			return p.mistaken(err)
		}
		return p.tryWebhook(c.Context(), e.Config.Webhooks, names[0])
	}
	return c
}

// tryWebhook calls the webhook called name.
func (p *process) tryWebhook(ctx context.Context, webhooks []config.Webhook, name string) error {
	var known []string
	for i := range webhooks {
		if webhooks[i].Name != name {
			known = append(known, webhooks[i].Name)
			continue
		}
		endpoint, err := webhooks[i].Endpoint()
		if err != nil {
			return err
		}
		answer, err := notify.Try(ctx, endpoint, "", time.Now)
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "%d after %s\n", answer.Status, answer.Took.Round(time.Millisecond))
		if answer.Text != "" {
			fmt.Fprintln(p.out, terminal.Printable(answer.Text))
		}
		if err := answer.Err(); err != nil {
			return fmt.Errorf("webhook %s did not accept the event: %w", name, err)
		}
		return nil
	}
	if len(known) == 0 {
		return usageError{errors.New("the configuration has no webhooks: name the file with --config")}
	}
	return usageError{fmt.Errorf("the configuration has no webhook %q, but %s", name, strings.Join(known, ", "))}
}
