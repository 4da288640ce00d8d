package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/durable"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

func loginCommand(p *process) *cobra.Command {
	var server string
	c := &cobra.Command{
		Use:   "login",
		Short: "Log in at a running service, with a browser on any machine",
		Long: `Login logs you in at a running sibyl serve at which people log in (auth.oidc). It prints an address and a code.
Open the address in a browser, on this machine or another one, and confirm the code there. Confirm only codes of your
own sibyl login: whoever started it is then logged in as you.

Commands that query this service then act for you, for eight hours, unless they have a token. The session is in the file
sibyl/login.json of your configuration directory, which only you can read.`,
		Example: `  sibyl login --server https://sibyl.example.com
  SIBYL_SERVER=https://sibyl.example.com sibyl login`,
		Args: cli.Arguments(0, 0),
	}
	p.addServerFlag(c, &server)
	c.RunE = func(c *cobra.Command, _ []string) error {
		api, err := client.New(server, "")
		if err != nil {
			return cli.UsageError{Err: err}
		}
		if strings.HasPrefix(api.Server(), "http:") && !isLocal(server) {
			return cli.Usagef("--server %s: people log in over https, except on the same machine", server)
		}
		return p.logIn(c.Context(), api)
	}
	return c
}

// logIn logs a person in, and saves the session.
func (p *process) logIn(ctx context.Context, api *client.Client) error {
	if err := changeLogins(func(map[string]savedLogin) {}); err != nil {
		return err // rather than after the person has confirmed
	}
	started, err := api.StartLogin(ctx)
	if refused, ok := errors.AsType[*client.RefusedError](err); ok && refused.Status == http.StatusNotFound {
		return fmt.Errorf("%s: people do not log in there; use a token of sibyl token create with %s",
			api.Server(), tokenVariable)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(p.out, "Open %s and enter the code %s\n",
		terminal.Printable(started.VerificationURI), terminal.Printable(started.UserCode))
	if whole := started.VerificationURIComplete; whole != "" {
		fmt.Fprintf(p.out, "or open %s and check that it shows this code.\n", terminal.Printable(whole))
	}
	session, err := p.awaitSession(ctx, api, started)
	if err != nil {
		return err
	}
	err = changeLogins(func(all map[string]savedLogin) {
		all[api.Server()] = savedLogin{Token: session.Token, Expires: session.Expires}
	})
	if err != nil {
		return err
	}
	if p.getenv(tokenVariable) != "" {
		fmt.Fprintf(p.err, "sibyl: %s is set, so commands still use its token\n", tokenVariable)
	}
	_, err = fmt.Fprintf(p.out, "You are logged in at %s as %s, with the role %s, until %s.\n", api.Server(),
		terminal.Printable(session.Name), terminal.Printable(session.Role), session.Expires.Local().Format("15:04"))
	return err
}

// awaitSession polls the service until the person has confirmed the log-in. It keeps polling if the service or the
// provider doesn't answer.
func (p *process) awaitSession(
	ctx context.Context, api *client.Client, started *contract.DeviceLogin,
) (*contract.DeviceToken, error) {
	tooLate := errors.New("the log-in was not confirmed in time: run sibyl login again")
	ctx, cancel := context.WithTimeoutCause(ctx, seconds(started.ExpiresIn), tooLate)
	defer cancel()
	wait, trouble := started.Interval, ""
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(seconds(wait)):
		}
		session, err := api.EndLogin(ctx, started.Handle)
		refused, ok := errors.AsType[*client.RefusedError](err)
		switch {
		case ctx.Err() != nil:
		case ok && refused.Status != http.StatusServiceUnavailable:
			return nil, err
		case err != nil:
			if trouble != err.Error() {
				trouble = err.Error()
				fmt.Fprintf(p.err, "sibyl: still waiting: %s\n", terminal.Printable(trouble))
			}
			wait = started.Interval
		case session.Token != "":
			return session, nil
		default:
			wait = session.Interval
		}
	}
}

// seconds returns n seconds, but at least 10 ms, so that a wrong value from the service doesn't cause a flood of
// requests.
func seconds(n float64) time.Duration {
	const least = 10 * time.Millisecond
	return max(time.Duration(n*float64(time.Second)), least)
}

func logoutCommand(p *process) *cobra.Command {
	var server string
	c := &cobra.Command{
		Use:   "logout",
		Short: "Remove the session of sibyl login",
		Long: `Logout removes the session that sibyl login has saved on this machine for a service. A copy that somebody else
has made stays valid until the session's end.`,
		Example: "  sibyl logout --server https://sibyl.example.com",
		Args:    cli.Arguments(0, 0),
	}
	p.addServerFlag(c, &server)
	c.RunE = func(*cobra.Command, []string) error {
		api, err := client.New(server, "")
		if err != nil {
			return cli.UsageError{Err: err}
		}
		saved, err := readLogins()
		if err != nil {
			return err
		}
		if saved[api.Server()].Token == "" {
			_, err = fmt.Fprintf(p.out, "You are not logged in at %s.\n", api.Server())
			return err
		}
		if err = changeLogins(func(all map[string]savedLogin) { delete(all, api.Server()) }); err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "You are logged out at %s.\n", api.Server())
		return err
	}
	return c
}

// savedLogin is the session of a person at a service.
type savedLogin struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// loginsFile returns the name of the file with the sessions.
func loginsFile() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the configuration directory: %w", err)
	}
	return filepath.Join(dir, "sibyl", "login.json"), nil
}

// readLogins returns the sessions by the URL of the service. It returns nil if there is no file.
func readLogins() (map[string]savedLogin, error) {
	path, err := loginsFile()
	if err != nil {
		return nil, nil //nolint:nilerr // an account without a home, such as a service's, has no sessions
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the sessions of sibyl login: %w", err)
	}
	var all map[string]savedLogin
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("%s is damaged: remove it, and run sibyl login again: %w", path, err)
	}
	return all, nil
}

// changeLogins drops expired sessions, applies change to the others, and saves the result.
func changeLogins(change func(map[string]savedLogin)) error {
	path, err := loginsFile()
	if err != nil {
		return err
	}
	saved, err := readLogins()
	if err != nil {
		return err
	}
	all := make(map[string]savedLogin)
	maps.Copy(all, saved)
	maps.DeleteFunc(all, func(_ string, x savedLogin) bool { return time.Now().After(x.Expires) })
	change(all)
	data, err := json.Marshal(all)
	if err == nil {
		err = durable.MkdirAll(filepath.Dir(path))
	}
	if err == nil {
		err = durable.Replace(path, data)
	}
	if err != nil {
		return fmt.Errorf("save the session: %w", err)
	}
	return nil
}
