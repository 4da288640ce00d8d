package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/report"
)

// diffFlags holds the options of the diff command.
type diffFlags struct {
	output *cli.Choice
	config string
	top    int
	path   *cli.PathFlags
	input  *cli.InputFlags
	before int // number of arguments before --; negative if there is no --
}

func diffCommand(p *process) *cobra.Command {
	f := &diffFlags{output: cli.NewChoice("table", "json")}
	c := &cobra.Command{
		Use:   "diff BEFORE… -- AFTER…",
		Short: "Compare two sets of traces and rank the services by their additional cost",
		Long: `Diff compares the traces in the files AFTER with those in the files BEFORE, such as two versions of an
application or two runs of a benchmark, and ranks the services by the time, failures and calls that they add beyond the
variation among the traces before. It lists the request types that are slower. The times of the two sets do not matter.

BEFORE and AFTER are files or directories with OTLP (JSON, JSON lines, protobuf), Jaeger JSON or Zipkin JSON, plain,
gzip or zstd; - is standard input. To compare a window of time with the time before it, use sibyl analyze --window.`,
		Example: `  sibyl diff v1.jsonl.gz -- v2.jsonl.gz
  sibyl diff -o json monday/ tuesday/ -- wednesday/ | jq '.suspects[0]'`,
		RunE: func(c *cobra.Command, files []string) error { return p.diff(c, f, files) },
	}
	c.Args = func(c *cobra.Command, files []string) error {
		f.before = c.ArgsLenAtDash()
		return checkSides(files, f.before)
	}
	f.output.Flag(c, "output", "o", "format")
	c.Flags().StringVar(&f.config, "config", "", "configuration file of sibyl serve; its rules apply")
	c.Flags().IntVar(&f.top, "top", 10, "number of suspects and request types in the table; 0: all")
	f.path = cli.AddPathFlags(c)
	f.input = cli.AddInputFlags(c)
	return c
}

// checkSides returns an error unless files contains both sides of a comparison. The files before -- are files[:before];
// before is negative if there is no --.
func checkSides(files []string, before int) error {
	switch {
	case before < 0:
		return errors.New("separate the files BEFORE from the files AFTER with --, as in: sibyl diff before.jsonl " +
			"-- after.jsonl")
	case before == 0:
		return errors.New("BEFORE is missing: name files or directories before --")
	case before == len(files):
		return errors.New("AFTER is missing: name files or directories after --")
	case slices.Contains(files[:before], file.Stdin) && slices.Contains(files[before:], file.Stdin):
		return errors.New("standard input, -, can be on one side only")
	}
	for _, f := range files[before:] {
		if strings.HasPrefix(f, "-") && f != file.Stdin {
			return fmt.Errorf("%s comes after --, where only files are allowed: put options before it, as in: "+
				"sibyl diff -o json before.jsonl -- after.jsonl", f)
		}
	}
	return nil
}

func (p *process) diff(c *cobra.Command, f *diffFlags, files []string) error {
	configured := &config.Config{Failures: ingest.FailureRuleNames()}
	if f.config != "" {
		e, err := config.Load(config.Sources{File: f.config})
		if err != nil {
			return p.printConfigErrors(err)
		}
		configured = &e.Config
	}
	x := comparison{output: f.output.Value, top: f.top, config: configured, path: f.path, input: f.input}
	return p.compare(c.Context(), &x, report.Labels{Baseline: "before", Window: "after", Sets: true},
		func(o offline.Options) (*offline.Comparison, error) {
			return offline.CompareFiles(c.Context(), files[:f.before], files[f.before:], o)
		})
}

// problemFlags lists the flags of analyze that cannot be combined with --window.
var problemFlags = []string{
	"attributes", "objective", "min-samples", "cov-threshold", "group-by", "size", "size-timeout", "split",
	"fail-on-problem",
}

// compareWindow executes analyze --window.
func (p *process) compareWindow(c *cobra.Command, f *analyzeFlags, files []string) error {
	window, baseline, err := f.ranges(c.Flags())
	if err != nil {
		return cli.UsageError{Err: err}
	}
	configured, err := f.configured(c.Flags())
	if err != nil {
		return p.printConfigErrors(err)
	}
	if configured == nil {
		configured = &config.Config{Failures: ingest.FailureRuleNames()}
	}
	x := comparison{output: f.output.Value, top: f.top, config: configured, path: f.path, input: f.input}
	return p.compare(c.Context(), &x, report.Labels{Window: "window", Baseline: "baseline"},
		func(o offline.Options) (*offline.Comparison, error) {
			return offline.CompareWindow(c.Context(), files, window, baseline, o)
		})
}

// ranges returns the time ranges in --window and --baseline. baseline is nil if --baseline is not given. ranges returns
// an error if a range is invalid, or if a flag was given that can't be combined with --window.
func (f *analyzeFlags) ranges(flags *pflag.FlagSet) (window offline.TimeRange, baseline *offline.TimeRange, err error) {
	if !flags.Changed("window") {
		return window, nil, errors.New("--baseline needs a window to compare it with: --window FROM..TO")
	}
	if !slices.Contains([]string{"table", "json"}, f.output.Value) {
		return window, nil, fmt.Errorf("-o %s does not apply to --window: want table or json", f.output.Value)
	}
	flags.Visit(func(flag *pflag.Flag) {
		if slices.Contains(problemFlags, flag.Name) {
			err = fmt.Errorf("--%s does not apply to --window: leave it out", flag.Name)
		}
	})
	if err != nil {
		return window, nil, err
	}
	if window, err = offline.ParseTimeRange(f.window); err != nil {
		return window, nil, fmt.Errorf("--window: %w", err)
	}
	if !flags.Changed("baseline") {
		return window, nil, nil
	}
	b, err := offline.ParseTimeRange(f.baseline)
	if err != nil {
		return window, nil, fmt.Errorf("--baseline: %w", err)
	}
	return window, &b, nil
}

// comparison holds the options that diff and analyze --window share.
type comparison struct {
	output string
	top    int
	config *config.Config
	path   *cli.PathFlags
	input  *cli.InputFlags
}

// compare calls run with the options of x and writes its result.
func (p *process) compare(
	ctx context.Context, x *comparison, labels report.Labels, run func(offline.Options) (*offline.Comparison, error),
) error {
	if x.top < 0 {
		return cli.Usagef("--top must not be negative")
	}
	n := cli.NewNotices("sibyl", p.err)
	o := offline.DefaultOptions()
	o.Input, o.Path, o.Rules = x.input.Options(p.in, n), x.path.Options(), x.config.AnalysisRules()
	with := *x.config
	with.Keys = nil // a comparison reads no attributes
	var err error
	if o.Input.Keys, err = with.DecodedKeys(); err != nil {
		return err
	}
	result, err := run(o)
	n.Close()
	switch {
	case errors.Is(err, offline.ErrOrder):
		return cli.UsageError{Err: err}
	case err != nil:
		return err
	case result.Traces == 0:
		return fmt.Errorf("%w; there is nothing to compare", cli.ErrNoTrace)
	}
	var whole bytes.Buffer
	w := stopping{func() error { return context.Cause(ctx) }, &whole}
	if x.output == "json" {
		err = report.ComparisonJSON(w, result, labels)
	} else {
		err = report.ComparisonTable(w, result, labels, terminal.Of(p.out, p.getenv), x.top)
	}
	if err != nil {
		return err
	}
	if _, err = whole.WriteTo(p.out); err != nil {
		return err
	}
	return n.Complete()
}
