package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// Limits on completions that query a service. They are tight, because the shell waits for completions.
const (
	completionTimeout = 700 * time.Millisecond
	mostCompletions   = 100
)

// A names function returns the values that can complete an argument, with descriptions.
type names func(context.Context, *client.Client) ([]cobra.Completion, error)

// complete returns a function that completes the first argument with names that the service knows. The function offers
// nothing if the service doesn't answer in time.
func (p *process) complete(f *serverFlags, of names) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		api, err := f.client(p)
		if len(args) > 0 || err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		found, err := of(ctx, api)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

func completion(name, text string) cobra.Completion {
	return cobra.CompletionWithDesc(terminal.Printable(name), terminal.Printable(text))
}

func problemNames(ctx context.Context, api *client.Client) (found []cobra.Completion, err error) {
	list, err := api.Problems(ctx, contract.ListProblemsParams{}, mostCompletions)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		found = append(found, completion(list.Items[i].ID[:8], list.Items[i].Diagnosis))
	}
	return found, nil
}

func incidentNames(ctx context.Context, api *client.Client) (found []cobra.Completion, err error) {
	all := contract.ListIncidentsParams{Muted: new(contract.ListIncidentsParamsMutedAll)}
	list, err := api.Incidents(ctx, all, mostCompletions)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		found = append(found, completion(list.Items[i].ID[:8], list.Items[i].Sentence))
	}
	return found, nil
}

func serviceNames(ctx context.Context, api *client.Client) (found []cobra.Completion, err error) {
	list, err := api.Services(ctx, contract.ListServicesParams{}, mostCompletions)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		found = append(found, completion(list.Items[i].Service, string(list.Items[i].State)))
	}
	return found, nil
}

func tracepointNames(ctx context.Context, api *client.Client) (found []cobra.Completion, err error) {
	list, err := api.Tracepoints(ctx, contract.ListTracepointsParams{}, mostCompletions)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		found = append(found, completion(list.Items[i].Name, string(list.Items[i].State)))
	}
	return found, nil
}

func deadLetterNames(ctx context.Context, api *client.Client) (found []cobra.Completion, err error) {
	list, err := client.Admin{Client: api}.DeadLetters(ctx, mostCompletions)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		found = append(found, completion(list.Items[i].Number, list.Items[i].Type+" to "+list.Items[i].Endpoint))
	}
	return found, nil
}

// completeTokens returns a function that completes the first argument with the IDs of the tokens in *dir.
func completeTokens(dir *string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		tokens, err := access.Open(*dir).List()
		if err == nil && len(args) == 0 {
			for i := range tokens {
				found = append(found, completion(tokens[i].ID, string(tokens[i].Role)+" "+tokens[i].Name))
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}
