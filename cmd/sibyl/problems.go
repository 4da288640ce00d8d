package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// serverVariable is the environment variable with the URL of the service.
const serverVariable = "SIBYL_SERVER"

// serverFlags holds the flags that select the service to query.
type serverFlags struct{ server, token string }

func (p *process) addServerFlags(c *cobra.Command) *serverFlags {
	f := &serverFlags{}
	p.addServerFlag(c, &f.server)
	addTokenFlag(c, f)
	return f
}

// addTokenFlag adds the flag --token to c.
func addTokenFlag(c *cobra.Command, f *serverFlags) {
	c.Flags().StringVar(&f.token, "token", "", "access token; prefer SIBYL_TOKEN, which the process list does not show")
}

// addServerFlag adds the flag --server to c.
func (p *process) addServerFlag(c *cobra.Command, server *string) {
	c.Flags().StringVar(server, "server", cmp.Or(p.getenv(serverVariable), client.DefaultServer),
		"URL of the service; also "+serverVariable)
}

// tokenVariable is the environment variable with the token for the service.
const tokenVariable = "SIBYL_TOKEN"

// client returns a client for the selected service, with the token from --token or SIBYL_TOKEN. Without a token, the
// client uses the session of sibyl login, if there is one.
func (f *serverFlags) client(p *process) (*client.Client, error) {
	token := cmp.Or(f.token, p.getenv(tokenVariable))
	c, err := client.New(f.server, token)
	if err != nil {
		return nil, cli.UsageError{Err: err}
	}
	if token != "" {
		return c, nil
	}
	saved, err := readLogins()
	if err != nil {
		return nil, err
	}
	return c.For(saved[c.Server()].Token, ""), nil
}

// writeJSON writes x as indented JSON.
func writeJSON(w io.Writer, x any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(x)
}

// listFlags holds the flags that select the service, the length and the format of a list.
type listFlags struct {
	server *serverFlags
	output *cli.Choice
	limit  int
}

// addListFlags adds the flags of a command that lists items to c. limit is the default of --limit. formats are the
// output formats in addition to table and JSON.
func (p *process) addListFlags(c *cobra.Command, items string, limit int, formats ...string) *listFlags {
	f := &listFlags{
		server: p.addServerFlags(c),
		output: cli.NewChoice(append([]string{"table", "json"}, formats...)...),
	}
	f.output.Flag(c, "output", "o", "format")
	c.Flags().IntVar(&f.limit, "limit", limit, "largest number of "+items+" to show; 0: all")
	return f
}

type (
	// query asks the service for a T.
	query[T any] func(context.Context, *client.Client) (T, error)
	// printer writes a T for people.
	printer[T any] func(io.Writer, T, terminal.Style, time.Time) error
	runE           func(*cobra.Command, []string) error
)

// showQuery returns the RunE of a command that sends query to the selected service and shows the result, as JSON or
// with show.
func showQuery[T any](p *process, f *listFlags, query query[T], show printer[T]) runE {
	return func(c *cobra.Command, _ []string) error {
		if f.limit < 0 {
			return cli.Usagef("--limit must not be negative")
		}
		return showAnswer(c.Context(), p, f.server, f.output.Value, query, show)
	}
}

// showAnswer sends query to the selected service and writes the result in the given format: as JSON or, otherwise,
// with show.
func showAnswer[T any](
	ctx context.Context, p *process, f *serverFlags, format string, query query[T], show printer[T],
) error {
	api, err := f.client(p)
	if err != nil {
		return err
	}
	x, err := query(ctx, api)
	switch {
	case err != nil:
		return err
	case format == "json":
		return writeJSON(p.out, x)
	}
	return show(p.out, x, terminal.Of(p.out, p.getenv), time.Now())
}

// change returns the RunE of a command that makes a change in the selected service and then prints done.
func change(
	p *process, f *serverFlags, done string, do func(context.Context, *client.Client, []string) error,
) runE {
	return func(c *cobra.Command, args []string) error {
		api, err := f.client(p)
		if err != nil {
			return err
		}
		if err := do(c.Context(), api, args); err != nil {
			return err
		}
		_, err = fmt.Fprintln(p.out, done)
		return err
	}
}

// showJudged is like showQuery, but for a list that depends on recent traces. If traces have stopped arriving, it
// reports that first.
func showJudged[T any](p *process, f *listFlags, query query[T], show printer[T]) runE {
	var gap string
	return showQuery(p, f, func(ctx context.Context, api *client.Client) (T, error) {
		x, err := query(ctx, api)
		if err == nil && f.output.Value != "json" {
			gap, err = api.Gap(ctx, time.Now())
		}
		return x, err
	}, func(w io.Writer, x T, style terminal.Style, now time.Time) error {
		if gap != "" {
			for line := range strings.Lines(style.Wrap(gap, 0)) {
				if _, err := fmt.Fprintln(w, style.Paint(terminal.Red, strings.TrimRight(line, "\n"))); err != nil {
					return err
				}
			}
		}
		return show(w, x, style, now)
	})
}

func problemsCommand(p *process) *cobra.Command {
	sort := cli.NewChoice("rank", "impact", "since", "cov", "p99", "rate")
	var muted, closed bool
	var query string
	c := &cobra.Command{
		Use:   "problems [PROBLEM]",
		Short: "List the problems of a running service, ranked, or show one",
		Long: `Problems lists the open problems of a running sibyl serve: diagnosis, onset, impact, and the state of
the investigation. Changed problems are red, chronic ones yellow. With --closed it lists those that have closed, the
last one first, as they were then. With PROBLEM, its rank, its ID or the first digits of the ID, it shows that one
with its evidence.`,
		Example: `  sibyl problems
  sibyl problems --sort impact --query checkout
  sibyl problems --closed                    those of the last days
  sibyl problems 1                           the first problem with its evidence`,
		Args: cli.Arguments(0, 1),
	}
	sort.Flag(c, "sort", "", "sort order")
	c.Flags().BoolVar(&muted, "muted", false, "include muted problems")
	c.Flags().BoolVar(&closed, "closed", false, "list closed problems instead of open ones; --sort does not apply")
	c.Flags().StringVar(&query, "query", "",
		"show only problems whose diagnosis, request type or ID contains this text")
	f := p.addListFlags(c, "problems", 20)
	c.ValidArgsFunction = p.complete(f.server, problemNames)
	list := showJudged(p, f, func(ctx context.Context, api *client.Client) (*contract.ProblemList, error) {
		q := contract.ListProblemsParams{
			Sort:   new(contract.ListProblemsParamsSort(sort.Value)),
			Q:      &query,
			Closed: &closed,
		}
		if muted {
			q.Muted = new(contract.ListProblemsParamsMutedAll)
		}
		return api.Problems(ctx, q, f.limit)
	}, client.ShowProblems)
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return list(c, args)
		}
		return p.showProblem(c.Context(), f.server, f.output.Value, args[0])
	}
	return c
}
