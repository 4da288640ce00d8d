package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// finding is the result of one check.
type finding struct {
	Check string   `json:"check"`
	State severity `json:"state"`
	Saw   string   `json:"saw"`
	Do    string   `json:"do,omitempty"` // remedy, if one is needed
}

// severity is the outcome of a check.
type severity string

// The outcomes. A failed check means that Sibyl does not work, and a warning means that it sees less than it could.
const (
	fine    severity = "ok"
	warning severity = "warning"
	failed  severity = "failed"
	skipped severity = "skipped" // the check could not be made
)

// doctorReport holds the results of all checks.
type doctorReport struct {
	Failed   int       `json:"failed"`
	Warnings int       `json:"warnings"`
	Checks   []finding `json:"checks"`
}

// machineKeys lists the configuration keys that the checks of the machine depend on.
var machineKeys = []string{
	"data-dir", "http", "api.base-path", "api.tls.cert", "api.tls.key", "sampling-http", "sampling-grpc", "opamp",
	"otlp.grpc", "otlp.http", "journal.max-bytes", "retention.bytes",
}

func doctorCommand(p *process) *cobra.Command {
	output := cli.NewChoice("table", "json")
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the machine, the running service and the traces it receives",
		Long: `Doctor checks what Sibyl needs and receives, and reports for each check what it saw and what to do. It
changes nothing.

On the machine, with the settings that sibyl serve would have with the same file, environment and flags: addresses,
data directory, disk, clock, and open files. It skips these if --server names a service with another address. Of the
running service: whether traces arrive, whether their spans have parents and services have names, and which limits and
settings miss something of this traffic.

Exit codes: 0 no check failed, 1 a check failed, 2 wrong usage. Warnings do not change the exit code.`,
		Example: `  sibyl doctor
  sibyl doctor --config /etc/sibyl/sibyl.yaml
  sibyl doctor --server https://sibyl.example.com -o json | jq '.checks[] | select(.state != "ok")'`,
		Args: cli.Arguments(0, 0),
	}
	output.Flag(c, "output", "o", "format")
	server := p.addServerFlags(c)
	flags := config.AddFlags(c.Flags(), cli.FlagGroup, machineKeys...)
	c.RunE = func(c *cobra.Command, _ []string) error {
		e, err := config.Load(config.Sources{Getenv: p.getenv, Flags: flags})
		if err != nil {
			return p.printConfigErrors(err)
		}
		if !c.Flags().Changed("server") && p.getenv(serverVariable) == "" {
			server.server = ownServer(&e.Config)
		}
		api, err := server.client(p)
		if err != nil {
			return err
		}
		r := examine(c.Context(), &e.Config, api, server.server)
		if output.Value == "json" {
			err = writeJSON(p.out, r)
		} else {
			err = r.write(p.out, terminal.Of(p.out, p.getenv))
		}
		if err == nil && r.Failed > 0 {
			err = cli.ExitCode(cli.ExitError)
		}
		return err
	}
	return c
}

// ownServer returns the URL of a service with the configuration c, as seen from its own machine.
func ownServer(c *config.Config) string {
	host, port, err := net.SplitHostPort(c.HTTP)
	if err != nil || port == "0" {
		return client.DefaultServer
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http"
	if c.API.TLS.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port) + c.API.BasePath
}

// isLocal reports whether the host of the URL server is localhost or a loopback address.
func isLocal(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// isOwn reports whether the URL server is an address of the service with the configuration c on this machine, that is,
// a local host with the port in c.
func isOwn(c *config.Config, server string) bool {
	named, err := url.Parse(server)
	own, err2 := url.Parse(ownServer(c))
	return err == nil && err2 == nil && isLocal(server) && named.Port() == own.Port()
}

// examine runs all checks and returns their results. It checks this machine only if the service at server runs on it.
func examine(ctx context.Context, c *config.Config, api *client.Client, server string) *doctorReport {
	r := &doctorReport{}
	status, at, err := api.Status(ctx)
	_, refused := errors.AsType[*client.RefusedError](err)
	own := isOwn(c, server)
	if own {
		r.add(checkAddresses(ctx, c, err == nil || refused)...)
		r.add(checkData(c)...)
		r.add(checkClock(), checkFiles())
	} else {
		r.add(finding{
			Check: "machine",
			State: skipped,
			Saw: "The service at " + terminal.Printable(server) +
				" is not the one with these settings on this machine.",
			Do: "Run sibyl doctor on its machine, without --server, with the environment, the file and the addresses " +
				"of the service.",
		})
	}
	if err != nil {
		r.add(unreachable(ctx, err, server, own))
		return r
	}
	r.add(checkService(status, at)...)
	r.add(checkAccess(server, isOpen(ctx, server)))
	r.add(checkInstances(status, recentIncidents(ctx, api, at)))
	r.add(checkTraffic(ctx, api, status)...)
	if webhooks, err := api.Webhooks(ctx); err == nil {
		r.add(checkWebhooks(webhooks)...)
	}
	return r
}

// unreachable returns the finding about a service whose status couldn't be read because of err. If own is true, the
// service belongs to this machine, and needn't be running yet.
func unreachable(ctx context.Context, err error, server string, own bool) finding {
	if own && errors.Is(dial(ctx, server), syscall.ECONNREFUSED) {
		return finding{
			Check: "service",
			State: skipped,
			Saw:   "No service runs here.",
			Do:    "Start sibyl serve, send traces to it, and run sibyl doctor again.",
		}
	}
	if refused, ok := errors.AsType[*client.RefusedError](err); ok && refused.Status == http.StatusUnauthorized {
		return finding{
			Check: "service",
			State: failed,
			Saw:   err.Error(),
			Do:    "sibyl token create --role viewer creates one; --data-dir names the data directory of the service.",
		}
	}
	return finding{
		Check: "service",
		State: failed,
		Saw:   err.Error(),
		Do:    "Start sibyl serve, or name the service with --server and a token with SIBYL_TOKEN.",
	}
}

// dial connects to the host in the URL server and returns the error, if any.
func dial(ctx context.Context, server string) error {
	u, err := url.Parse(server)
	if err != nil {
		return err
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	return c.Close()
}

func (r *doctorReport) add(all ...finding) {
	for _, f := range all {
		switch f.State {
		case failed:
			r.Failed++
		case warning:
			r.Warnings++
		case fine, skipped:
		}
	}
	r.Checks = append(r.Checks, all...)
}

// Widths of the columns of a doctorReport.
const (
	stateWidth = 9
	checkWidth = 12
)

// write writes r as text for people.
func (r *doctorReport) write(w io.Writer, style terminal.Style) error {
	var text strings.Builder
	colours := map[severity]string{failed: terminal.Red, warning: terminal.Yellow, skipped: terminal.Dim}
	for _, f := range r.Checks {
		state := terminal.PadRight(string(f.State), stateWidth)
		if colour, ok := colours[f.State]; ok {
			state = style.Paint(colour, state)
		}
		paragraph := style.Wrap(terminal.Printable(f.Saw), stateWidth+checkWidth)
		text.WriteString(state + terminal.PadRight(f.Check, checkWidth) + paragraph[stateWidth+checkWidth:])
		if f.Do != "" {
			text.WriteString(style.Wrap("→ "+terminal.Printable(f.Do), stateWidth+checkWidth))
		}
	}
	_, err := fmt.Fprint(w, text.String())
	return err
}
