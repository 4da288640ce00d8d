package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/report/waterfall"
	"github.com/sibyl-trace/sibyl/trace"
)

// traceFlags holds the options of the trace command.
type traceFlags struct {
	output  *cli.Choice
	id      string
	most    int
	against []string
	path    *cli.PathFlags
	input   *cli.InputFlags
}

func traceCommand(p *process) *cobra.Command {
	f := &traceFlags{output: cli.NewChoice("waterfall", "json")}
	c := &cobra.Command{
		Use:   "trace FILE…",
		Short: "Show traces with their critical paths, or explain them against normal ones",
		Long: `Trace shows each trace as a waterfall and marks its critical path: the chain of intervals that
determined its duration.

With --against, it explains each trace by its difference from normal ones: the calls that took longer than such calls
usually do, failed, are missing or new, ranked by their evidence. A normal file may hold some unusual traces, too. With
--trace-id the waterfall follows, with the suspects marked.

FILE is a file or directory with OTLP (JSON, JSON lines, protobuf), Jaeger JSON or Zipkin JSON, plain, gzip or zstd; -
is standard input. JSON output is one object per line: trace_id, flags, and for each root its sections, in nanoseconds
since the root's start, and exclusive times. With --against, they are trace_id, excess_ns, duration_ns, usual_ns, and
suspects.`,
		Example: `  sibyl trace traces.jsonl
  sibyl trace traces/ --trace-id 5b8aa5a2d2c872e8321cf37308d69df2
  sibyl trace --against yesterday.jsonl.gz slow.jsonl
  sibyl trace --against yesterday/ -o json slow.jsonl | jq '.suspects[0]'
  cat traces.json | sibyl trace -o json - | jq '.roots[0].exclusive_ns'`,
		Args: cli.RequireFiles,
		RunE: func(c *cobra.Command, files []string) error { return p.trace(c, f, files) },
	}
	f.output.Flag(c, "output", "o", "format")
	c.Flags().StringVar(&f.id, "trace-id", "", "show only this trace (32 or 16 hex digits)")
	c.Flags().IntVar(&f.most, "max-spans", 200,
		"largest number of spans to show per request, those on the path first; 0: all")
	c.Flags().StringArrayVar(&f.against, "against", nil,
		"file or directory with normal traces to compare with; repeatable")
	f.path = cli.AddPathFlags(c)
	f.input = cli.AddInputFlags(c)
	return c
}

func (p *process) trace(c *cobra.Command, f *traceFlags, files []string) (err error) {
	var wanted trace.ID
	if f.id != "" {
		if wanted, err = trace.ParseID(f.id); err != nil {
			return cli.Usagef("--trace-id: %w", err)
		}
	}
	if f.most < 0 {
		return cli.Usagef("--max-spans must not be negative")
	}
	show, err := p.traceView(c.Context(), f, files)
	if err != nil {
		return err
	}
	n := cli.NewNotices("sibyl", p.err)
	input := f.input.Options(p.in, n)
	input.Keys = ingest.FailureKeys()
	in, err := file.Read(c.Context(), files, input)
	n.Close()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out := bufio.NewWriter(p.out)
	shown, err := showTraces(c.Context(), out, in, critpath.NewExtractor(f.path.Options()), wanted, show)
	if err != nil {
		return err
	}
	switch {
	case shown == 0 && f.id != "":
		return fmt.Errorf("no trace %s in the input", wanted)
	case shown == 0:
		return cli.ErrNoTrace
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return n.Complete()
}

// traceView writes the trace in path to out. table contains the trace's names. first is true for the first trace.
type traceView func(out io.Writer, path *critpath.Path, table *trace.Table, first bool) error

// traceView returns the view that f selects.
func (p *process) traceView(ctx context.Context, f *traceFlags, files []string) (traceView, error) {
	drawing := waterfall.Options{Style: terminal.Of(p.out, p.getenv), Most: f.most}
	switch {
	case len(f.against) > 0:
		return p.explanation(ctx, f, files, drawing)
	case f.output.Value == "json":
		return func(out io.Writer, path *critpath.Path, _ *trace.Table, _ bool) error {
			return waterfall.JSON(out, path)
		}, nil
	}
	return func(out io.Writer, path *critpath.Path, table *trace.Table, first bool) error {
		return showWaterfall(out, path, table, drawing, first)
	}, nil
}

// showTraces calls show for the wanted trace, or for all traces if wanted is zero, and returns their number.
func showTraces(
	ctx context.Context, out io.Writer, in *file.Input, x *critpath.Extractor, wanted trace.ID, show traceView,
) (shown int, err error) {
	for t, err := range in.All() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return shown, err
		}
		if !wanted.IsZero() && t.ID != wanted {
			continue
		}
		if err := show(out, x.Extract(t), in.Table, shown == 0); err != nil {
			return shown, err
		}
		shown++
	}
	return shown, nil
}

func showWaterfall(out io.Writer, path *critpath.Path, table *trace.Table, o waterfall.Options, first bool) error {
	head := "\n"
	if first {
		head = o.Style.Paint(terminal.Dim, waterfall.Legend) + "\n\n"
	}
	if _, err := io.WriteString(out, head); err != nil {
		return err
	}
	return waterfall.Text(out, path, table, o)
}
