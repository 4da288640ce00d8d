package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/client"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/terminal"
)

// serverFlags say which service is asked.
type serverFlags struct{ server, token string }

func addServerFlags(c *cobra.Command) *serverFlags {
	f := &serverFlags{}
	c.Flags().StringVar(&f.server, "server", client.DefaultServer, "URL of the service")
	c.Flags().StringVar(&f.token, "token", "", "token to show it; SIBYL_TOKEN keeps it out of the list of processes")
	return f
}

// client returns what asks the service.
func (f *serverFlags) client(p *process) (*client.Client, error) {
	c, err := client.New(f.server, cmp.Or(f.token, p.getenv("SIBYL_TOKEN")))
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// writeJSON writes an answer for programs.
func writeJSON(w io.Writer, x any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(x)
}

func (p *process) problemsCommand() *cobra.Command {
	output, sort := newChoice("table", "json"), newChoice("rank", "impact", "since", "cov", "p99", "rate")
	var muted bool
	var query string
	var limit int
	c := &cobra.Command{
		Use:   "problems",
		Short: "List the open problems of a running service, ranked",
		Long: `Lists the open problems of a running sibyl serve: what is wrong, where, since when, how bad it is, and how far its investigation has
come. Red ones have changed, yellow ones have always been so.`,
		Example: `  sibyl problems
  sibyl problems --sort impact --query checkout
  sibyl explain 1                            the first one with its evidence`,
		Args: cobra.NoArgs,
	}
	output.flag(c, "output", "o", "format")
	sort.flag(c, "sort", "", "what comes first")
	c.Flags().BoolVar(&muted, "muted", false, "show those, too, that somebody muted")
	c.Flags().StringVar(&query, "query", "", "only those whose diagnosis, request type or identity holds this text")
	c.Flags().IntVar(&limit, "limit", 20, "most problems shown; 0: all")
	f := addServerFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if limit < 0 {
			return usageError{errors.New("--limit must not be negative")}
		}
		api, err := f.client(p)
		if err != nil {
			return err
		}
		q := contract.ListProblemsParams{Sort: new(contract.ListProblemsParamsSort(sort.value)), Q: &query}
		if muted {
			q.Muted = new(contract.ListProblemsParamsMutedAll)
		}
		list, err := api.Problems(c.Context(), q, limit)
		switch {
		case err != nil:
			return err
		case output.value == "json":
			return writeJSON(p.out, list)
		}
		return client.ShowProblems(p.out, list, terminal.Of(p.out, p.getenv), time.Now())
	}
	return c
}
