package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/notify"
)

func webhookCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "webhook",
		Short: "Test webhooks, and manage events that they did not accept",
		Args:  cli.OnlyCommands,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(webhookTestCommand(p), webhookDeadCommand(p), webhookResendCommand(p), webhookDropCommand(p))
	return c
}

func webhookTestCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test event to a webhook and print its response",
		Long: `Call the named webhook once, as sibyl serve would, with an event marked as a test, and print the
response. With the name of an element of email, send one e-mail to its recipients. PagerDuty and Opsgenie open an alert
of low priority: close it there.

Exit codes: 0 accepted, 1 not accepted or not reachable, 2 wrong usage.`,
		Example: `  sibyl webhook test oncall --config /etc/sibyl/sibyl.yaml
  sibyl webhook test oncall --config /etc/sibyl/sibyl.yaml --tenant shop`,
		Args: func(_ *cobra.Command, names []string) error {
			if len(names) != 1 || names[0] == "" {
				return errors.New("NAME is missing: name a webhook from the configuration")
			}
			return nil
		},
	}
	flags := config.AddFlags(c.Flags(), cli.FlagGroup, "webhooks", "email", "tenants")
	tenant := c.Flags().String("tenant", "", "tenant of the webhook; default: the default tenant")
	c.RunE = func(c *cobra.Command, names []string) error {
		e, err := config.Load(config.Sources{Getenv: p.getenv, Flags: flags})
		if err != nil {
			return p.printConfigErrors(err)
		}
		of := &e.Config
		if *tenant != "" {
			of = of.Tenant(*tenant, 1)
		}
		return p.tryWebhook(c.Context(), of, names[0])
	}
	return c
}

// tryWebhook sends a test message to the webhook or e-mail destination with the given name, and prints its response.
func (p *process) tryWebhook(ctx context.Context, c *config.Config, name string) error {
	endpoint, err := c.Endpoint(name)
	if err != nil {
		return err
	}
	if endpoint == nil {
		known := c.EndpointNames()
		if len(known) == 0 {
			return cli.Usagef("the configuration has no webhooks: name the file with --config")
		}
		return cli.Usagef("the configuration has no webhook %q, but %s", name, strings.Join(known, ", "))
	}
	answer, err := notify.Try(ctx, endpoint, "", time.Now)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "%d after %s\n", answer.Status, units.Duration(answer.Took))
	if answer.Text != "" {
		fmt.Fprintln(p.out, terminal.Printable(answer.Text))
	}
	if err := answer.Err(); err != nil {
		return fmt.Errorf("webhook %s did not accept the event: %w", name, err)
	}
	return nil
}

func webhookDeadCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "dead [NUMBER]",
		Short: "List dead letters of a running service, or show one",
		Long: `List the events that webhooks did not accept within a day, oldest first, each with its last error. With
a NUMBER, show that event and the body sent.`,
		Example: "  sibyl webhook dead\n  sibyl webhook dead 17",
		Args:    cli.Arguments(0, 1),
	}
	f := p.addListFlags(c, "dead letters", 100)
	c.RunE = func(c *cobra.Command, numbers []string) error {
		if len(numbers) == 1 {
			return showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.DeadLetterDetail, error) {
				return client.Admin{Client: api}.DeadLetter(ctx, numbers[0])
			}, client.ShowDeadLetter)(c, nil)
		}
		return showQuery(p, f, func(ctx context.Context, api *client.Client) (*contract.DeadLetterList, error) {
			return client.Admin{Client: api}.DeadLetters(ctx, f.limit)
		}, client.ShowDeadLetters)(c, nil)
	}
	return c
}

func webhookResendCommand(p *process) *cobra.Command {
	c := deadLettersCommand(p, "resend", "Send dead letters again", client.Admin.Resend, "sent again")
	c.Long = "Queue dead letters again, in the given order, behind the events waiting for the same webhook. " +
		"Each is retried for another day."
	return c
}

func webhookDropCommand(p *process) *cobra.Command {
	return deadLettersCommand(p, "drop", "Delete dead letters", client.Admin.Drop, "dropped")
}

// deadLettersCommand returns a command with the given name. The command applies do to the selected dead letters and
// then prints done.
func deadLettersCommand(
	p *process, name, short string, do func(client.Admin, context.Context, string) error, done string,
) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:     name + " NUMBER…",
		Short:   short,
		Example: "  sibyl webhook " + name + " 17\n  sibyl webhook " + name + " --all",
		Args: func(_ *cobra.Command, numbers []string) error {
			if all == (len(numbers) > 0) {
				return errors.New("NUMBER is missing: sibyl webhook dead lists them; --all selects all")
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, name+" all dead letters")
	f := p.addServerFlags(c)
	c.ValidArgsFunction = p.complete(f, deadLetterNames)
	c.RunE = func(c *cobra.Command, numbers []string) error {
		api, err := f.client(p)
		if err != nil {
			return err
		}
		admin := client.Admin{Client: api}
		if all {
			list, err := admin.DeadLetters(c.Context(), 0)
			if err != nil {
				return err
			}
			for i := range list.Items {
				numbers = append(numbers, list.Items[i].Number)
			}
		}
		for i, number := range numbers {
			if err := do(admin, c.Context(), number); err != nil {
				if i > 0 {
					return fmt.Errorf("dead letter %s, after %d %s: %w", number, i, done, err)
				}
				return fmt.Errorf("dead letter %s: %w", number, err)
			}
		}
		_, err = fmt.Fprintf(p.out, "%s %s\n", units.Plural(len(numbers), "dead letter"), done)
		return err
	}
	return c
}
