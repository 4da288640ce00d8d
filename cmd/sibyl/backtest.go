package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/report"
)

// backtestFlags holds the options of the backtest command.
type backtestFlags struct {
	output *cli.Choice
	config string
	labels string
	input  *cli.InputFlags
}

func backtestCommand(p *process) *cobra.Command {
	f := &backtestFlags{output: cli.NewChoice("table", "json")}
	c := &cobra.Command{
		Use:   "backtest FILE…",
		Short: "Report the incidents that sibyl serve would have reported for recorded traces",
		Long: `Backtest plays recorded traces through the engine of sibyl serve, with the same settings, on a clock
driven by the traces, and prints the incidents that the service would have reported: when each began, how long it
lasted, and the services suspected. Incidents need nine minutes of history. Several hours of traces give a fair
picture.

FILE is a file or directory with OTLP (JSON, JSON lines, protobuf), Jaeger JSON or Zipkin JSON, plain, gzip or zstd; -
is standard input. Traces may be in any order.

With --incidents it compares the incidents with known faults, one JSON object a line:
{"name", "fault", "start_unix_nano", "end_unix_nano", "target": {"service"}}. A fault counts as raised if an incident
opens between its start and a minute after its end. Its suspects are judged as of that minute, or as of the end of the
incident. Every other incident is false.`,
		Example: `  sibyl backtest monday.jsonl.gz
  sibyl backtest --config /etc/sibyl/sibyl.yaml traces/
  sibyl backtest --incidents faults.jsonl -o json traces.jsonl | jq .score`,
		Args: cli.RequireFiles,
		RunE: func(c *cobra.Command, files []string) error { return p.backtest(c, f, files) },
	}
	f.output.Flag(c, "output", "o", "format")
	c.Flags().StringVar(&f.config, "config", "", "configuration file of sibyl serve; default: its default settings")
	c.Flags().StringVar(&f.labels, "incidents", "",
		"file with known faults to compare with, plain, gzip or zstd; - is standard input")
	f.input = cli.AddInputFlags(c)
	return c
}

func (p *process) backtest(c *cobra.Command, f *backtestFlags, files []string) error {
	e, err := config.Load(config.Sources{File: f.config})
	if err != nil {
		return p.printConfigErrors(err)
	}
	if f.labels == file.Stdin && slices.Contains(files, file.Stdin) {
		return cli.Usagef("standard input, -, can hold either the traces or the faults of --incidents")
	}
	var labels []backtest.Label
	if c.Flags().Changed("incidents") {
		if labels, err = backtest.ReadLabels(c.Context(), f.labels, p.in); err != nil {
			return err
		}
	}
	n := cli.NewNotices("sibyl", p.err)
	input := f.input.Options(p.in, n)
	if input.Keys, err = e.Config.DecodedKeys(); err != nil {
		return err
	}
	r, err := backtest.Files(c.Context(), files, labels, input,
		backtest.Options{Core: e.Config.Engine(), Assembly: e.Config.OpenTraces()})
	n.Close()
	switch {
	case err != nil:
		return err
	case r.Traces == 0:
		return fmt.Errorf("%w; there is nothing to play", cli.ErrNoTrace)
	}
	var whole bytes.Buffer
	w := stopping{func() error { return context.Cause(c.Context()) }, &whole}
	if f.output.Value == "json" {
		err = report.BacktestJSON(w, r)
	} else {
		err = report.BacktestTable(w, r, terminal.Of(p.out, p.getenv))
	}
	if err != nil {
		return err
	}
	if _, err = whole.WriteTo(p.out); err != nil {
		return err
	}
	return n.Complete()
}
