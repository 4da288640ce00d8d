package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/cmd/internal/cli"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/report"
)

// analyzeFlags are the options of the analyze command.
type analyzeFlags struct {
	output     *cli.Choice
	config     string
	attributes []string
	objectives []string
	minSamples uint64
	cov        float64
	top        int
	split      bool
	groupBy    []string
	size       string
	timeout    time.Duration
	delayed    float64
	fail       bool
	path       *cli.PathFlags
	input      *cli.InputFlags
}

// allAttributes stands for all keys.
const allAttributes = "all"

func (p *process) analyzeCommand() *cobra.Command {
	f := &analyzeFlags{output: cli.NewChoice("table", "json", "pprof", "folded", "html")}
	c := &cobra.Command{
		Use:   "analyze FILE…",
		Short: "Report which requests misbehave, where, why, and what to instrument next",
		Long: `Reads traces, groups requests that should perform alike, and ranks those that do not: where on their critical path the
variance or the time is, which variables explain it, and which tracepoints to switch on next.

FILE is a file or directory with OTLP (JSON, JSON lines, protobuf) or Jaeger JSON, plain, gzip or zstd; - is standard input.

Formats: table, to be read here; html, one page with flame graphs and histograms; json, everything; pprof and folded, the
critical paths aggregated by calling context, for go tool pprof and flame-graph tools.`,
		Example: `  sibyl analyze traces.jsonl.gz
  sibyl analyze -o html traces/ > report.html
  sibyl analyze -o pprof traces/ > paths.pb.gz && go tool pprof -http : paths.pb.gz
  sibyl analyze --config /etc/sibyl/sibyl.yaml traces.jsonl
  sibyl analyze --objective "shop GET /cart=250ms" --fail-on-problem traces.jsonl`,
		Args: cli.RequireFiles,
		RunE: func(c *cobra.Command, files []string) error { return p.analyze(c, f, files) },
	}
	thresholds := detect.DefaultThresholds()
	f.output.Flag(c, "output", "o", "format")
	c.Flags().StringVar(&f.config, "config", "", "configuration of sibyl serve whose rules, group-by, size, split, min-samples, thresholds, budget and strategy hold where no flag says otherwise")
	c.Flags().StringSliceVar(&f.attributes, "attributes", []string{allAttributes}, "keys of attributes to look for causes in; all: every key")
	c.Flags().StringArrayVar(&f.objectives, "objective", nil, "a latency objective, \"service operation=250ms\"; may be repeated")
	c.Flags().Uint64Var(&f.minSamples, "min-samples", thresholds.MinSamples, "requests under which nothing is said about a group")
	c.Flags().Float64Var(&f.cov, "cov-threshold", thresholds.CoV, "coefficient of variation above which a group is a problem")
	c.Flags().IntVar(&f.top, "top", 10, "problems and request types shown in the table; 0: all")
	c.Flags().StringSliceVar(&f.groupBy, "group-by", nil, "keys of attributes, of few values each, whose values are expected to perform differently")
	c.Flags().StringVar(&f.size, "size", "", "key of the attribute with the size of a request in bytes: what takes long for its size is judged, not what is large")
	c.Flags().DurationVar(&f.timeout, "size-timeout", 0, "after which a request with a size is given up; 0: not known")
	c.Flags().Float64Var(&f.delayed, "delayed-threshold", thresholds.Delayed, "part of the requests with a size, 0–1, that may be delayed or time out before they are a problem")
	c.Flags().BoolVar(&f.split, "split", false, "split groups by the variable that explains their variance, so that each value is judged by itself")
	c.Flags().BoolVar(&f.fail, "fail-on-problem", false, "exit with code 4 if there is a problem")
	f.path = cli.AddPathFlags(c)
	f.input = cli.AddInputFlags(c)
	return c
}

func (p *process) analyze(c *cobra.Command, f *analyzeFlags, files []string) error {
	if f.output.Value == "pprof" && terminal.Is(p.out) {
		return cli.UsageError{Err: errors.New("a pprof profile is not for terminals: redirect it to a file")}
	}
	n := cli.NewNotices("sibyl", p.err)
	held, err := f.configured(c.Flags())
	if err != nil {
		return p.mistaken(err)
	}
	options, err := f.options(p, n, held)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	r, err := engine.Analyze(c.Context(), files, options)
	n.Close()
	if err != nil {
		return err
	}
	if err := f.write(c.Context(), p.out, r, files, terminal.Of(p.out, p.getenv)); err != nil {
		return err
	}
	if r.Traces == 0 {
		return p.nothing(f)
	}
	if f.fail && len(r.Problems) > 0 {
		return exitProblems
	}
	return nil
}

// nothing says that there was nothing to analyse. Whoever asks to fail on problems must not take that for health.
func (p *process) nothing(f *analyzeFlags) error {
	err := fmt.Errorf("%w; nothing is known about any request", cli.ErrNoTrace)
	if f.fail {
		return err
	}
	fmt.Fprintf(p.err, "sibyl: %v\n", err)
	return nil
}

// write writes the report unless, and until, ctx is done. What is left then is empty or no JSON: of the other formats a part could be
// taken for the whole.
func (f *analyzeFlags) write(ctx context.Context, w io.Writer, r *engine.Report, files []string, style terminal.Style) error {
	stopped := func() error { return context.Cause(ctx) }
	if f.output.Value == "json" { // it may be too large to be kept
		out := bufio.NewWriter(stopping{stopped, w})
		if err := report.JSON(out, r); err != nil {
			return err
		}
		return out.Flush()
	}
	var whole bytes.Buffer
	if err := f.render(stopping{stopped, &whole}, r, files, style); err != nil {
		return err
	}
	_, err := whole.WriteTo(w)
	return err
}

// stopping is a writer that fails once something else says so.
type stopping struct {
	stopped func() error
	to      io.Writer
}

func (w stopping) Write(p []byte) (int, error) {
	if err := w.stopped(); err != nil {
		return 0, err
	}
	return w.to.Write(p)
}

func (f *analyzeFlags) render(w io.Writer, r *engine.Report, files []string, style terminal.Style) error {
	switch f.output.Value {
	case "pprof":
		return report.Pprof(w, r)
	case "folded":
		return report.Folded(w, r)
	case "html":
		return report.HTML(w, r, files)
	}
	return report.Table(w, r, files, style, f.top)
}

// configured returns the configuration that --config names, with what flags say instead; nil if it names none.
func (f *analyzeFlags) configured(flags *pflag.FlagSet) (*config.Config, error) {
	if f.config == "" {
		return nil, nil
	}
	e, err := config.Load(config.Sources{File: f.config})
	if err != nil {
		return nil, err
	}
	c := e.Config
	for name, take := range map[string]func(){
		"group-by":          func() { c.GroupBy = f.groupBy },
		"size":              func() { c.Size = f.size },
		"size-timeout":      func() { c.SizeTimeout = f.timeout },
		"split":             func() { c.Split = f.split },
		"min-samples":       func() { c.MinSamples = f.minSamples },
		"cov-threshold":     func() { c.Thresholds.CoV = f.cov },
		"delayed-threshold": func() { c.Thresholds.Delayed = f.delayed },
	} {
		if flags.Changed(name) {
			take()
		}
	}
	return &c, nil
}

// options returns how to analyse. What held says, which is nil for nothing, includes the flags that it has a key for.
func (f *analyzeFlags) options(p *process, n *cli.Notices, held *config.Config) (engine.AnalyzeOptions, error) {
	o := engine.DefaultAnalyzeOptions()
	if !(f.cov >= 0) || f.top < 0 {
		return o, errors.New("--cov-threshold and --top must not be negative")
	}
	if !(f.delayed >= 0 && f.delayed <= 1) {
		return o, errors.New("--delayed-threshold must be in 0–1")
	}
	if f.timeout < 0 || f.timeout > 0 && f.size == "" && held == nil {
		return o, errors.New("--size-timeout must not be negative, and goes with --size")
	}
	if held == nil {
		held = &config.Config{GroupBy: f.groupBy, Size: f.size, SizeTimeout: f.timeout, Split: f.split, MinSamples: f.minSamples}
		held.Thresholds.CoV, held.Thresholds.Delayed = f.cov, f.delayed
	} else {
		o.Budget, o.Strategy = held.Budget.Search(), held.Strategy
	}
	o.Input = f.input.Options(p.in, n)
	o.Path = f.path.Options()
	o.Split, o.Rules = held.Split, held.AnalysisRules()
	o.Thresholds.CoV, o.Thresholds.Delayed, o.Thresholds.MinSamples = held.Thresholds.CoV, held.Thresholds.Delayed, held.MinSamples
	var err error
	if o.Input.Keys, err = f.keys(held); err != nil {
		return o, fmt.Errorf("--attributes: %w", err)
	}
	o.Objectives, err = parseObjectives(f.objectives)
	return o, err
}

// keys returns the attributes to look for causes in, and those that held needs.
func (f *analyzeFlags) keys(held *config.Config) (*ingest.Keys, error) {
	if len(f.attributes) == 1 && f.attributes[0] == allAttributes {
		return ingest.AllKeys(), nil
	}
	needed := *held
	needed.Keys = f.attributes
	return ingest.NewKeys(needed.AttributeKeys()...)
}

// parseObjectives reads arguments like "shop GET /cart=250ms".
func parseObjectives(args []string) (map[string]time.Duration, error) {
	objectives := make(map[string]time.Duration)
	for _, arg := range args {
		i := strings.LastIndexByte(arg, '=')
		if i <= 0 {
			return nil, fmt.Errorf("--objective %q: want \"service operation=duration\"", arg)
		}
		d, err := time.ParseDuration(arg[i+1:])
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("--objective %q: want a duration above 0, like 250ms, after the last =", arg)
		}
		objectives[arg[:i]] = d
	}
	return objectives, nil
}
