package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/replay"
)

// replayFlags holds the options of the replay command.
type replayFlags struct {
	to      string
	token   string
	speed   float64
	past    cli.NonNegative
	example bool
	loop    bool
	newIDs  bool
	strict  bool
	output  *cli.Choice
}

func replayCommand(p *process) *cobra.Command {
	f := &replayFlags{output: cli.NewChoice("text", "json")}
	c := &cobra.Command{
		Use:   "replay [FILE…]",
		Short: "Send recorded traces to an OTLP endpoint as if they happened now",
		Long: `Replay sends traces, with every recorded field, to an OTLP endpoint. The first trace starts now. Each
trace is shifted as a whole, so that durations within it do not change; intervals between traces are divided by
--speed. A trace is sent when it ends.

FILE is a file or directory with OTLP (JSON, JSON lines, protobuf), Jaeger JSON or Zipkin JSON, plain, gzip or zstd; -
is standard input. Replay reads all input into a temporary file before it sends anything. It retries requests that the
endpoint cannot take yet, for a minute; if nothing listens there, or it speaks another protocol, replay fails at once.

With --past, the first part of the recording has happened already: it is sent at once, with times before now. Incidents
need such a past. --example replays a recording of a shop that comes with Sibyl, with a past of 22 minutes: two and a
half minutes before its end, one instance of the service payment gets a new version, which is slow.

Sibyl remembers traces for 10 minutes and counts each once: to replay a recording again within that time, use
--new-ids. To see the example again, start sibyl serve with an empty data directory instead: the past of a second
replay says that payment was fast while it was slow in the first.`,
		Example: `  sibyl replay --example                                an incident within a minute
  sibyl replay traces.jsonl.gz                          to sibyl serve on this machine, at the original speed
  sibyl replay --past 1h incident.jsonl.gz              the first hour at once, the rest from now on
  sibyl replay --speed 60 jaeger-export.json            an hour in a minute
  sibyl replay --to http://localhost:4318 --loop traces/`,
		Args: func(c *cobra.Command, files []string) error {
			switch {
			case !f.example:
				return cli.RequireFiles(c, files)
			case len(files) > 0:
				return errors.New(
					"--example replays the recording that comes with Sibyl: name no FILE, or omit --example")
			}
			return nil
		},
		RunE: func(c *cobra.Command, files []string) error { return p.replay(c, f, files) },
	}
	c.Flags().StringVar(&f.to, "to", "127.0.0.1:4317",
		"endpoint: host:port or grpc://… (gRPC), grpcs://… (with TLS), http://… or https://…")
	c.Flags().StringVar(&f.token, "token", "", "bearer token; prefer SIBYL_TOKEN, which the process list does not show")
	c.Flags().Float64Var(&f.speed, "speed", 1,
		"replay this many times as fast as recorded: divides the intervals between traces, not durations")
	c.Flags().Var(&f.past, "past", "first part of the recording to send at once, with times before now")
	c.Flags().BoolVar(&f.example, "example", false, "replay the recording that comes with Sibyl")
	c.Flags().BoolVar(&f.loop, "loop", false, "repeat with new trace IDs until interrupted")
	c.Flags().BoolVar(&f.newIDs, "new-ids", false, "replace the recorded trace IDs")
	c.Flags().BoolVar(&f.strict, "strict", false, "stop at the first broken record instead of skipping it")
	f.output.Flag(c, "output", "o", "format of the summary")
	return c
}

func (p *process) replay(c *cobra.Command, f *replayFlags, files []string) error {
	if !(f.speed > 0) || math.IsInf(f.speed, 1) {
		return cli.Usagef("--speed must be a number above 0")
	}
	if f.loop && (f.past > 0 || f.example) {
		return cli.Usagef("--loop repeats a recording from now on: omit it, or --past and --example")
	}
	if f.token == "" {
		f.token = p.getenv("SIBYL_TOKEN")
	}
	to, err := replay.ParseEndpoint(f.to, f.token)
	if err != nil {
		return cli.Usagef("--to: %w", err)
	}
	n := cli.NewNotices("sibyl", p.err)
	options := replay.Options{
		Files: files, Speed: f.speed, Past: time.Duration(f.past), Loop: f.loop, NewIDs: f.newIDs,
		Input: file.Options{Strict: f.strict, Stdin: p.in, Report: n.Broken, Progress: n.Progress()},
	}
	if f.example {
		options.Files, options.Input.Stdin = []string{"-"}, bytes.NewReader(replay.Example)
		if !c.Flags().Changed("past") {
			options.Past = replay.ExamplePast
		}
	}
	var bar *terminal.Progress
	var all int64 // traces
	announced := false
	options.Started = func(traces int64, length time.Duration) {
		if !announced {
			announced = true
			n.Close()
			repeat := ""
			if f.loop {
				repeat = ", repeatedly until interrupted"
			}
			fmt.Fprintf(p.err, "sibyl: sending %s to %s in %s%s\n",
				units.Plural(int(traces), "trace"), terminal.Printable(f.to), units.Span(length), repeat)
			if !f.newIDs && !f.loop {
				again := "--new-ids makes them new ones"
				if f.example {
					again = "to see the example again, start sibyl serve with an empty data directory"
				}
				fmt.Fprintln(p.err, "sibyl: the traces keep their IDs: Sibyl ignores those that it received within "+
					"the last 10 minutes; "+again)
			}
		}
		if terminal.Is(p.err) {
			count := func(n int64) string { return units.Count(int(n)) }
			bar, all = terminal.NewProgress(p.err, "sending", count), traces
		}
	}
	options.Sent = func(traces int64) {
		if bar != nil {
			bar.Set(traces, all)
		}
	}
	watch := p.watchDuplicates(c.Context(), f)
	s, err := replay.Replay(c.Context(), to, options)
	s.Duplicates = watch.count(c.Context(), s.Spans)
	if bar != nil {
		bar.Clear()
	}
	if err != nil && s.Requests == 0 {
		return err
	}
	if err := errors.Join(err, p.printSummary(&s, f, n.Cut())); err != nil {
		return err
	}
	return n.Complete()
}

// accepted returns the number of spans that the endpoint accepted and, if known, the number of duplicates among them,
// as text.
func accepted(s *replay.Summary) string {
	text := units.Plural(int(s.Spans), "span")
	switch n := s.Duplicates; {
	case n == nil || *n == 0:
		return text + " accepted"
	case *n == s.Spans:
		return text + ", all ignored as duplicates"
	default:
		return text + " accepted, " + units.Count(int(*n)) + " of them ignored as duplicates"
	}
}

// printSummary writes s, and the warnings in cut. It returns an error if nothing was sent.
func (p *process) printSummary(s *replay.Summary, f *replayFlags, cut []string) error {
	if s.Requests == 0 {
		return cli.ErrNoTrace
	}
	if f.output.Value == "json" {
		return json.NewEncoder(p.out).Encode(s)
	}
	_, err := fmt.Fprintf(p.out, "%s sent: %s, %d rejected; %s, %d retries\n", units.Plural(int(s.Traces), "trace"),
		accepted(s), s.Rejected, units.Plural(int(s.Requests), "export request"), s.Retries)
	if err == nil && s.Why != "" {
		_, err = fmt.Fprintf(p.out, "first reason: %s\n", terminal.Printable(s.Why))
	}
	for _, text := range cut {
		if err == nil {
			_, err = fmt.Fprintln(p.out, terminal.Printable(text))
		}
	}
	return err
}
