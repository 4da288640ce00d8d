package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/engine/offline"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/report"
)

// analyzeFlags holds the options of the analyze command.
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
	fail       bool
	rank       *cli.Choice
	window     string
	baseline   string
	path       *cli.PathFlags
	input      *cli.InputFlags
}

// allAttributes selects every key if it is the only value of --attributes.
const allAttributes = "all"

func analyzeCommand(p *process) *cobra.Command {
	f := &analyzeFlags{
		output: cli.NewChoice("table", "json", "pprof", "folded", "html"),
		rank:   cli.NewChoice("impact", "cov", "slowness"),
	}
	c := &cobra.Command{
		Use:   "analyze FILE…",
		Short: "Report slow and erratic requests, their causes, and the tracepoints to enable next",
		Long: `Analyze reads traces, groups requests that should perform alike, and ranks the groups that do not. For
each of these problems it reports the edges of the critical path that carry the time or the variance, the variables
that explain it, and the tracepoints to enable next. If the traces span at least nine minutes, it begins with the
incidents that sibyl serve would have reported, as sibyl backtest does.

FILE is a file or directory with OTLP (JSON, JSON lines, protobuf), Jaeger JSON or Zipkin JSON, plain, gzip or zstd; -
is standard input.

Formats:
  table    a summary for the terminal
  html     one page with flame graphs and histograms
  json     the complete report
  pprof    critical paths aggregated by calling context, for go tool pprof
  folded   the same for flame-graph tools

With --window it compares the traces that begin in a window of time with a baseline instead, and ranks the services by
the time, failures and calls that they add beyond the variation of the baseline. FROM and TO are times of day in UTC
(02:41 or 02:41:30), dates with times (RFC 3339), or offsets from the first trace (+10m); FROM.. has no end. The
baseline defaults to all traces before the window; if these are few, those after it count as well.`,
		Example: `  sibyl analyze traces.jsonl.gz
  sibyl analyze -o html traces/ > report.html
  sibyl analyze -o pprof traces/ > paths.pb.gz && go tool pprof -http : paths.pb.gz
  sibyl analyze --config /etc/sibyl/sibyl.yaml traces.jsonl
  sibyl analyze --window 02:41..03:05 traces.jsonl
  sibyl analyze --objective "shop GET /cart=250ms" --fail-on-problem traces.jsonl`,
		Args: cli.RequireFiles,
		RunE: func(c *cobra.Command, files []string) error {
			if c.Flags().Changed("window") || c.Flags().Changed("baseline") {
				return p.compareWindow(c, f, files)
			}
			return p.analyze(c, f, files)
		},
	}
	thresholds := detect.DefaultThresholds()
	f.output.Flag(c, "output", "o", "format")
	c.Flags().StringVar(&f.config, "config", "", "configuration file of sibyl serve; its rules, group-by, "+
		"min-samples, thresholds, budget and strategy apply unless a flag overrides them")
	c.Flags().StringSliceVar(&f.attributes, "attributes", []string{allAttributes},
		"keys of attributes to search for causes; all: every key")
	c.Flags().StringArrayVar(&f.objectives, "objective", nil,
		"latency objective for the mean, \"service operation=250ms\"; may be repeated")
	c.Flags().Uint64Var(&f.minSamples, "min-samples", thresholds.MinSamples,
		"number of requests that a group needs before it is judged")
	c.Flags().Float64Var(&f.cov, "cov-threshold", thresholds.CoV,
		"coefficient of variation above which a group is a problem")
	f.rank.Flag(c, "rank", "", "order of the problems: by time lost per second, coefficient of variation, or mean "+
		"duration")
	c.Flags().IntVar(&f.top, "top", 10, "number of problems and request types in the table; 0: all")
	c.Flags().StringSliceVar(&f.groupBy, "group-by", nil,
		"keys of attributes with few values each; requests with different values form different groups")
	c.Flags().StringVar(&f.size, "size", "",
		"key of the attribute that holds the size of a request in bytes; requests are judged relative to their size")
	c.Flags().DurationVar(&f.timeout, "size-timeout", 0,
		"duration after which requests with a size time out; 0: unknown")
	c.Flags().BoolVar(&f.split, "split", false,
		"split groups by the variable that explains their variance, and judge each value separately")
	c.Flags().StringVar(&f.window, "window", "",
		"compare the traces that begin in this window, FROM..TO, with a baseline")
	c.Flags().StringVar(&f.baseline, "baseline", "", "baseline of --window, FROM..TO; default: all before the window")
	c.Flags().BoolVar(&f.fail, "fail-on-problem", false, "exit with code 4 if there is a problem or an incident")
	f.path = cli.AddPathFlags(c)
	f.input = cli.AddInputFlags(c)
	return c
}

func (p *process) analyze(c *cobra.Command, f *analyzeFlags, files []string) error {
	if f.output.Value == "pprof" && terminal.Is(p.out) {
		return cli.Usagef("pprof output is binary: redirect it to a file")
	}
	n := cli.NewNotices("sibyl", p.err)
	configured, err := f.configured(c.Flags())
	if err != nil {
		return p.printConfigErrors(err)
	}
	options, err := f.options(p, n, configured)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	r, err := offline.Analyze(c.Context(), files, options)
	n.Close()
	switch {
	case err != nil:
		return err
	case r.Traces == 0:
		return fmt.Errorf("%w; there is nothing to report", cli.ErrNoTrace)
	}
	err = f.write(c.Context(), p.out, r, report.Input{Files: files, Cut: n.Cut()}, terminal.Of(p.out, p.getenv))
	if err != nil {
		return err
	}
	if err := n.Complete(); err != nil {
		return err
	}
	if f.fail && (len(r.Problems) > 0 || r.Incidents != nil && len(r.Incidents.Incidents) > 0) {
		return exitProblems
	}
	return nil
}

// write writes r unless ctx is cancelled. If ctx is cancelled, the output is empty or, if the format is JSON, invalid
// JSON. The output is never part of a report in another format, because that could be mistaken for a complete one.
func (f *analyzeFlags) write(
	ctx context.Context, w io.Writer, r *offline.Report, in report.Input, style terminal.Style,
) error {
	stopped := func() error { return context.Cause(ctx) }
	if f.output.Value == "json" { // may be too large to buffer
		out := bufio.NewWriter(stopping{stopped, w})
		if err := report.JSON(out, r, in); err != nil {
			return err
		}
		return out.Flush()
	}
	var whole bytes.Buffer
	if err := f.render(stopping{stopped, &whole}, r, in, style); err != nil {
		return err
	}
	_, err := whole.WriteTo(w)
	return err
}

// stopping is a writer that fails once stopped returns an error.
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

func (f *analyzeFlags) render(w io.Writer, r *offline.Report, in report.Input, style terminal.Style) error {
	switch f.output.Value {
	case "pprof":
		return report.Pprof(w, r)
	case "folded":
		return report.Folded(w, r)
	case "html":
		return report.HTML(w, r, in)
	}
	return report.Table(w, r, in, style, f.top)
}

// configured returns the configuration in the file --config, overridden by flags, or nil if --config is not given.
func (f *analyzeFlags) configured(flags *pflag.FlagSet) (*config.Config, error) {
	if f.config == "" {
		return nil, nil
	}
	e, err := config.Load(config.Sources{File: f.config})
	if err != nil {
		return nil, err
	}
	c := e.Config
	for name, override := range map[string]func(){
		"group-by":      func() { c.GroupBy = f.groupBy },
		"min-samples":   func() { c.MinSamples = f.minSamples },
		"cov-threshold": func() { c.Thresholds.CoV = f.cov },
	} {
		if flags.Changed(name) {
			override()
		}
	}
	return &c, nil
}

// options returns the options of the analysis. configured is the result of [analyzeFlags.configured]. The analysis
// reports problems with the input to n.
func (f *analyzeFlags) options(p *process, n *cli.Notices, configured *config.Config) (offline.Options, error) {
	o := offline.DefaultOptions()
	if !(f.cov >= 0) || f.top < 0 {
		return o, errors.New("--cov-threshold and --top must not be negative")
	}
	if f.timeout < 0 || f.timeout > 0 && f.size == "" {
		return o, errors.New("--size-timeout must not be negative, and requires --size")
	}
	c := configured
	if c == nil {
		c = &config.Config{GroupBy: f.groupBy, MinSamples: f.minSamples}
		c.Thresholds.CoV, c.Failures = f.cov, ingest.FailureRuleNames()
	} else {
		o.Budget, o.Strategy = c.Budget.Search(), c.Strategy
	}
	o.Input = f.input.Options(p.in, n)
	o.Path = f.path.Options()
	o.Split, o.Rules = f.split, c.AnalysisRules()
	o.Rules.Size, o.Rules.Timeout = f.size, f.timeout
	o.Thresholds.CoV, o.Thresholds.MinSamples = c.Thresholds.CoV, c.MinSamples
	var err error
	if o.Input.Keys, err = f.keys(c); err != nil {
		return o, fmt.Errorf("--attributes: %w", err)
	}
	if o.Incidents, err = f.incidents(configured); err != nil {
		return o, err
	}
	o.Order = orders[f.rank.Value]
	o.Objectives, err = parseObjectives(f.objectives)
	return o, err
}

// orders maps the values of --rank to orders of problems.
var orders = map[string]detect.Order{"impact": detect.ByImpact, "cov": detect.ByCoV, "slowness": detect.BySlowness}

// incidents returns the options for finding the incidents that a service with the configuration c would find. It
// returns nil if the output can't contain incidents. If c is nil, the default configuration applies.
func (f *analyzeFlags) incidents(c *config.Config) (*backtest.Options, error) {
	if f.output.Value == "pprof" || f.output.Value == "folded" {
		return nil, nil
	}
	if c == nil {
		e, err := config.Load(config.Sources{})
		if err != nil {
			return nil, err
		}
		c = &e.Config
	}
	return &backtest.Options{Core: c.Engine(), Assembly: c.OpenTraces()}, nil
}

// keys returns the attribute keys to search for causes, and the keys that c needs.
func (f *analyzeFlags) keys(c *config.Config) (*ingest.Keys, error) {
	with := *c
	if len(f.attributes) == 1 && f.attributes[0] == allAttributes {
		rules, err := ingest.NewFailureRules(c.Failures...)
		return ingest.AllKeys().FailingBy(rules), err
	}
	with.Keys = append(slices.Clone(f.attributes), f.size)
	return with.DecodedKeys()
}

// parseObjectives parses args like "shop GET /cart=250ms" and returns the durations by operation.
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
