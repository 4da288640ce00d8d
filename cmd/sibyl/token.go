package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/durable"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/server"
)

func tokenCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke access tokens",
		Long: `Tokens authorize clients by role:
  viewer     reads
  operator   also switches tracepoints and mutes problems
  admin      does everything
  agent      sends traces and fetches plans

Until a token exists, sibyl serve listens on loopback only and allows everything. A running service applies changes at
once: once the first token exists, API and UI reject clients without one.`,
		Args: cli.OnlyCommands,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(tokenCreateCommand(p), tokenListCommand(p), tokenRevokeCommand(p))
	return c
}

// dataDirFlag adds the flag --data-dir to c, for the directory that contains the tokens, and returns its value.
func dataDirFlag(c *cobra.Command, p *process) *string {
	dir := cmp.Or(p.getenv("SIBYL_DATA_DIR"), "./sibyl-data")
	return c.Flags().String("data-dir", dir, "data directory of the service; also SIBYL_DATA_DIR")
}

func tokenCreateCommand(p *process) *cobra.Command {
	var like access.Token
	var last cli.NonNegative
	var ifNone bool
	c := &cobra.Command{
		Use:   "create --role viewer|operator|admin|agent",
		Short: "Create a token and print it once",
		Example: `  sibyl token create --role viewer --name grafana
  sibyl token create --role agent --services shop,pay-* --name shop-team
  sibyl token create --role agent --tenant shop
  SIBYL_TOKEN=$(sibyl token create --role operator --expires 8h) sibyl tracepoints list`,
		Args: cli.Arguments(0, 0),
	}
	c.Flags().StringVar((*string)(&like.Role), "role", "", "viewer, operator, admin or agent")
	c.Flags().StringVar(&like.Name, "name", "", "name of the token's owner, recorded with every action")
	c.Flags().StringSliceVar(&like.Services, "services", nil,
		"services for which agents with the token may speak, like shop,pay-*; default: all")
	c.Flags().StringVar(&like.Tenant, "tenant", "", "restrict the token to this tenant")
	c.Flags().BoolVar(&like.AnyTenant, "any-tenant", false, "let senders with the token name the tenant in "+
		"X-Scope-OrgID")
	c.Flags().Var(&last, "expires", "how long the token is valid; 0: until revoked")
	c.Flags().BoolVar(&ifNone, "if-none", false, "do nothing if a token exists, for scripts that run at each start "+
		"of a container")
	dir := dataDirFlag(c, p)
	c.RunE = func(*cobra.Command, []string) error {
		now := time.Now()
		if last > 0 {
			like.Expires = now.Add(time.Duration(last)).UTC().Truncate(time.Second)
		}
		if err := checkDataDir(*dir); err != nil {
			return err
		}
		tokens := access.Open(*dir)
		before, err := tokens.List()
		if err != nil {
			return err
		}
		if ifNone && len(before) > 0 {
			fmt.Fprintf(p.err, "sibyl: %s exists in %s; no token was "+
				"created\n", units.Plural(len(before), "token"), *dir)
			return nil
		}
		err = access.Validate(like)
		switch {
		case errors.Is(err, access.ErrRole):
			const want = "want viewer, operator, admin or agent"
			if like.Role == "" {
				return cli.Usagef("--role is missing: %s", want)
			}
			return cli.Usagef("--role %q: %s", like.Role, want)
		case errors.Is(err, access.ErrName):
			return cli.Usagef("--name: %w", err)
		case errors.Is(err, access.ErrServices):
			return cli.Usagef("--services: %w", err)
		case errors.Is(err, access.ErrTenant):
			return cli.Usagef("--any-tenant: %w", err)
		}
		if err := checkTenant(*dir, like.Tenant); err != nil {
			return err
		}
		var secret string
		var made access.Token
		e := audit.Entry{Operation: "createToken", Detail: tokenDetail(&like)}
		err = p.recorded(*dir, e, func() (id string, err error) {
			secret, made, err = tokens.Create(like, now)
			return made.ID, err
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(p.err, "sibyl: token %s with the role %s created in %s; it is not shown again\n",
			made.ID, made.Role, *dir)
		if len(before) == 0 {
			fmt.Fprintln(p.err, "sibyl: this is the first token: from now on, API and web UI reject clients without "+
				"one, including those already connected, unless a person has logged in")
		}
		_, err = fmt.Fprintln(p.out, secret)
		return err
	}
	return c
}

// revokeOperation is the name of a revocation in the audit log.
const revokeOperation = "revokeToken"

// tokenDetail returns the details of a new token for the audit log.
func tokenDetail(t *access.Token) string {
	detail := "role=" + string(t.Role)
	if t.Name != "" {
		detail += " name=" + t.Name
	}
	if len(t.Services) > 0 {
		detail += " services=" + strings.Join(t.Services, ",")
	}
	if t.Tenant != "" {
		detail += " tenant=" + t.Tenant
	}
	if t.AnyTenant {
		detail += " any-tenant"
	}
	if !t.Expires.IsZero() {
		detail += " expires=" + t.Expires.Format(time.RFC3339)
	}
	return detail
}

// recorded calls change, which makes a change in the data directory dir, and records the change in the audit log as e.
// change returns the ID of the resource that it has changed. If the log can't be written, recorded doesn't call change,
// unless the disk is full and the change is the revocation of a token.
func (p *process) recorded(dir string, e audit.Entry, change func() (on string, err error)) error {
	log := audit.Open(dir, time.Now, slog.New(slog.DiscardHandler)) // we return its errors
	e.Who, e.Via = fmt.Sprint("uid ", os.Getuid()), "command"
	if account, err := user.Current(); err == nil {
		e.Who = account.Username
	}
	if by := p.getenv("SUDO_USER"); by != "" && os.Geteuid() == 0 {
		e.Who = by
	}
	id, err := log.Start(e)
	switch {
	case durable.Full(err) && e.Operation == revokeOperation:
		fmt.Fprintf(p.err, "sibyl: this is not in the audit log: %v\n", err)
	case err != nil:
		return fmt.Errorf("nothing was changed: %w", err)
	}
	on, err := change()
	status := http.StatusOK
	switch {
	case errors.Is(err, access.ErrUnknown), errors.Is(err, server.ErrNoTenant):
		status = http.StatusNotFound
	case err != nil:
		status = http.StatusInternalServerError
	}
	log.Finish(id, status, on)
	return err
}

func tokenListCommand(p *process) *cobra.Command {
	output := cli.NewChoice("table", "json")
	c := &cobra.Command{
		Use:     "list",
		Short:   "List tokens, without their secrets",
		Example: "  sibyl token list",
		Args:    cli.Arguments(0, 0),
	}
	output.Flag(c, "output", "o", "format")
	dir := dataDirFlag(c, p)
	c.RunE = func(*cobra.Command, []string) error {
		tokens, err := access.Open(*dir).List()
		if err != nil {
			return err
		}
		if output.Value == "json" {
			for i := range tokens {
				tokens[i].Hash = ""
			}
			return writeJSON(p.out, tokens)
		}
		if len(tokens) == 0 {
			_, err := fmt.Fprintf(p.out, "No token in %s: clients on this machine may do everything.\n", *dir)
			return err
		}
		out := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(out, "ID\tROLE\tNAME\tCREATED\tEXPIRES\tSERVICES\tTENANT")
		for i := range tokens {
			t := &tokens[i]
			expires := "never"
			if !t.Expires.IsZero() {
				expires = t.Expires.Local().Format(time.DateTime)
			}
			if t.Expired(time.Now()) {
				expires += " (expired)"
			}
			services := "all"
			if len(t.Services) > 0 {
				services = strings.Join(t.Services, ",")
			}
			tenant := cmp.Or(t.Tenant, "default")
			if t.AnyTenant {
				tenant = "any"
			}
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				t.ID, t.Role, terminal.Printable(t.Name), t.Created.Local().Format(time.DateTime), expires,
				terminal.Printable(services), terminal.Printable(tenant))
		}
		return out.Flush()
	}
	return c
}

func tokenRevokeCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:     "revoke ID",
		Short:   "Revoke a token",
		Example: "  sibyl token revoke 3f2a90c1",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("ID is missing: sibyl token list shows them")
			}
			return nil
		},
	}
	dir := dataDirFlag(c, p)
	c.ValidArgsFunction = completeTokens(dir)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := checkDataDir(*dir); err != nil {
			return err
		}
		e := audit.Entry{Operation: revokeOperation, On: args[0]}
		err := p.recorded(*dir, e, func() (string, error) { return args[0], access.Open(*dir).Revoke(args[0]) })
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "revoked %s\n", terminal.Printable(args[0]))
		return err
	}
	return c
}
