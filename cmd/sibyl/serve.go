package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/listener"
	"github.com/sibyl-trace/sibyl/server"
)

func serveCommand(p *process) *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Receive traces as OTLP and report problems continuously",
		Long: `Serve receives traces as OTLP over gRPC and HTTP, keeps statistics of their requests, and reports
problems with their location and cause. It stores everything in the data directory. By default it listens on loopback
only.

SIGINT and SIGTERM shut it down cleanly. SIGHUP, or a change of the file, reloads the configuration. Acknowledged
traces survive both, and a kill.`,
		Example: `  sibyl serve                                 on loopback, data in ./sibyl-data
  sibyl serve --config /etc/sibyl/sibyl.yaml
  sibyl config print > sibyl.yaml             a file to start from`,
		Args: noFile,
	}
	flags := config.AddFlags(c.Flags(), cli.FlagGroup)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return p.serve(c.Context(), config.Sources{Getenv: p.getenv, Flags: flags})
	}
	return c
}

// serve runs the service until ctx is done. A replica that stops leading starts again, as a standby, so that it drops
// all connections and all that it has not told the others.
func (p *process) serve(ctx context.Context, sources config.Sources) error {
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP) // from here on SIGHUP doesn't end the process
	defer signal.Stop(reload)
	for {
		err := p.serveOnce(ctx, sources, reload)
		if ctx.Err() != nil || !errors.Is(err, journal.ErrNotLeading) {
			return err
		}
	}
}

// serveOnce runs the service until ctx is done or one of its parts ends. It reloads the configuration whenever reload
// receives a signal.
func (p *process) serveOnce(ctx context.Context, sources config.Sources, reload <-chan os.Signal) (err error) {
	e, err := config.Load(sources)
	if err != nil {
		return p.printConfigErrors(err)
	}
	if err := checkDataDir(e.Config.DataDir); err != nil {
		return err
	}
	tokens, err := access.Open(e.Config.DataDir).List()
	if err != nil {
		return fmt.Errorf("read the tokens in the data directory: %w", err)
	}
	if len(tokens) == 0 {
		if err := e.RequireTokens(); err != nil {
			return p.printConfigErrors(err)
		}
	}
	level := &slog.LevelVar{}
	log := p.logger(&e.Config.Log, level)
	v := buildVersion()
	s, err := server.New(&e.Config, server.Build{Version: v.Version, Go: v.Go}, log, func(err error) {
		log.ErrorContext(ctx, "a database cannot continue: exiting", slog.Any("error", err))
		//nolint:forbidigo // the database calls it from its own goroutine and cannot return an error
		os.Exit(cli.ExitError)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Listen(ctx); err != nil {
		return explainAddress(err, &e.Config)
	}
	at := s.Addresses()
	var addresses []slog.Attr
	if ui := e.Config.UI(); ui != "" {
		addresses = append(addresses, slog.String("ui", ui))
	}
	addresses = append(addresses,
		slog.String("api", addressText(at.API)),
		slog.String("otlp_grpc", addressText(at.GRPC)),
		slog.String("otlp_http", addressText(at.HTTP)),
	)
	for _, optional := range []struct {
		name    string
		address net.Addr
	}{{"opamp", at.OpAMP}, {"sampling_http", at.SamplingHTTP}, {"sampling_grpc", at.SamplingGRPC}} {
		if optional.address != nil {
			addresses = append(addresses, slog.String(optional.name, optional.address.String()))
		}
	}
	log.LogAttrs(ctx, slog.LevelInfo, "listening", addresses...)
	for _, l := range e.Config.Unguarded() {
		log.WarnContext(ctx, "address is open to every client that reaches it: "+
			"require tokens with otlp.require-token, or certificates with tls.client-ca",
			slog.String("key", l.Key), slog.String("address", l.Address))
	}
	reloader := server.Reloader{
		Server: s,
		Load:   func() (*config.Effective, error) { return config.Load(sources) },
		Level:  level,
		Log:    log,
	}
	var reloading sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	reloading.Go(func() { reloader.Run(ctx, e, reload) })
	defer reloading.Wait()
	defer stop()
	if err = s.Serve(ctx); errors.Is(err, journal.ErrNotLeading) {
		log.WarnContext(ctx, "starting again as a standby", slog.Any("cause", err))
	}
	return err
}

// usableDataDir describes the directories that --data-dir accepts, for error messages.
const usableDataDir = "a directory with --data-dir that is empty, does not exist yet, or has data of Sibyl"

// checkDataDir returns an error with a remedy if dir can't be a data directory.
func checkDataDir(dir string) error {
	if err := server.CheckDataDir(dir); err != nil {
		return fmt.Errorf("%w: choose %s", err, usableDataDir)
	}
	return nil
}

// explainAddress adds a remedy to err if err says that the service can't listen on an address in c. The remedy names
// the flag for choosing another address. explainAddress returns other errors unchanged.
func explainAddress(err error, c *config.Config) error {
	failed, ok := errors.AsType[*listener.AddressError](err)
	if !ok {
		return err
	}
	listeners := c.Listeners()
	i := slices.IndexFunc(listeners, func(l config.Listener) bool { return l.Address == failed.Address })
	if i < 0 {
		return err
	}
	other := "choose another address with " + flagOf(listeners[i])
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: stop the program that listens there, or %s", err, other)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w: this machine does not have that address: %s", err, other)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: ports below 1024 need the capability CAP_NET_BIND_SERVICE: %s", err, other)
	}
	return fmt.Errorf("%w: %s", err, other)
}

// flagOf returns the flag that sets the address of l.
func flagOf(l config.Listener) string { return "--" + strings.ReplaceAll(l.Key, ".", "-") }

// addressText returns a as text, or "off" if a is nil, as in the configuration.
func addressText(a net.Addr) string {
	if a == nil {
		return "off"
	}
	return a.String()
}

// logger returns the logger that c configures, and sets level to the configured level. A reload of the configuration
// may change level.
func (p *process) logger(c *config.Log, level *slog.LevelVar) *slog.Logger {
	_ = level.UnmarshalText([]byte(c.Level)) // the configuration holds only valid levels
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(p.err, o))
	}
	return slog.New(slog.NewTextHandler(p.err, o))
}
