package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/internal/cli"

	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/bench/benchreport"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/bench/eval/recorded"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/terminal"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// localizeFlags holds the flags of the localize command.
type localizeFlags struct {
	output   *cli.Choice
	recorded string
	input    *cli.InputFlags
	path     *cli.PathFlags

	learn, between time.Duration
	pairs          int

	choose   bool
	baseline *cli.Choice
	slices   int

	sim         bool
	seeds       uint64
	firstSeed   uint64
	tracepoints int
	services    int
	callers     bool
	faults      []string
	strategies  []string
	workers     int
	healthy     time.Duration
}

func (p *process) localizeCommand() *cobra.Command {
	f := &localizeFlags{
		output:   cli.NewChoice("table", "json", "csv", "svg"),
		baseline: cli.NewChoice(recorded.Baselines()...),
	}
	c := &cobra.Command{
		Use:   "localize",
		Short: "Accuracy on simulated or recorded faults",
		Long: `Measures how accurately Sibyl locates the causes of faults.

--sim, the default, runs seeded simulated applications with one fault each against the engine, epoch by epoch. The
applications emit only spans of enabled tracepoints, and the engine's plan applies to the requests of the next epoch.
Problems and incidents raised before the fault are false; --faults none --healthy 24h has nothing else.

--recorded DIR reads traces with labelled faults: DIR/` + recorded.TracesName + ` (also .gz, .zst)
and DIR/` + recorded.CasesName + `, one fault a line: {"name", "fault", "start_unix_nano", "end_unix_nano",
"target": {"service", "operation"?, "detail"?}}. For each fault it ranks all services by the difference between the
traces of that window and those outside of all windows, and looks up the label: the line "told". The line "noticed" is a
backtest, as by sibyl backtest, which is not told the windows. It plays one stream: healthy traces for --learn, then
each window, followed by healthy traces for --between. Healthy traces are repeated as needed. With --pairs, the line
"two at once" is the same with the traces of two windows laid over each other: random pairs of faults that were noticed
alone.

--recorded DIR --choose also hides all spans except the baseline. The engine learns from the traces outside of all
windows. Then each window runs against it, epoch by epoch, with only the spans of enabled tracepoints. A case counts if
the labelled place is ranked first by the visible spans. The strategy "none" has only the baseline.`,
		Example: `  sibylbench localize --seeds 10 --faults lock,disk
  sibylbench localize --recorded cases/ -o json
  sibylbench localize --recorded cases/ --choose --strategies adaptive,random`,
		Args: cli.Arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case f.recorded == "" && c.Flags().Changed("recorded"):
				return cli.Usagef("--recorded is empty: name the directory")
			case f.recorded == "" && f.choose:
				return cli.Usagef("--choose needs --recorded DIR")
			case f.recorded == "" && f.pairs != 0:
				return cli.Usagef("--pairs needs --recorded DIR")
			case f.recorded == "":
			case c.Flags().Changed("sim") && f.sim:
				return cli.Usagef("either --sim or --recorded DIR")
			default:
				return p.localizeRecorded(c, f)
			}
			return p.localizeSimulated(c, f)
		},
	}
	f.output.Flag(c, "output", "o", "format")
	flags := c.Flags()
	flags.StringVar(&f.recorded, "recorded", "", "directory with recorded traces and labelled faults")
	flags.DurationVar(&f.learn, "learn", 30*time.Minute,
		"with --recorded: healthy traces before the first window of the stream")
	flags.DurationVar(&f.between, "between", 6*time.Minute,
		"with --recorded: healthy traces after each window of the stream")
	flags.IntVar(&f.pairs, "pairs", 0, "with --recorded: number of pairs of faults at once to play")
	flags.BoolVar(&f.choose, "choose", false, "with --recorded: hide spans until the engine enables their tracepoint")
	f.baseline.Flag(c, "baseline", "", "with --choose: spans that are always visible")
	flags.IntVar(&f.slices, "slices", 72, "with --choose: most epochs of a case")
	flags.BoolVar(&f.sim, "sim", true, "run simulated applications")
	flags.Uint64Var(&f.seeds, "seeds", 3, "simulated applications for each fault")
	flags.Uint64Var(&f.firstSeed, "first-seed", 10_000,
		"first seed; seeds below 1 000 are for tuning; with --recorded, the seed of random strategies and pairs")
	flags.IntVar(&f.tracepoints, "tracepoints", 1000, "tracepoints of each simulated application")
	flags.IntVar(&f.services, "services", 0,
		"services of each simulated application; 0: one for 60 tracepoints, at least 5")
	flags.BoolVar(&f.callers, "unknown-callers", false, "agents do not know which functions call which, as in Java")
	flags.StringSliceVar(&f.faults, "faults", faultNames(), "simulated faults")
	flags.StringSliceVar(&f.strategies, "strategies", []string{allStrategies},
		"search strategies, or "+allStrategies+": "+strings.Join(eval.StrategyNames(), ", "))
	flags.DurationVar(&f.healthy, "healthy", time.Minute, "simulated time without a fault, after the learning period")
	flags.IntVar(&f.workers, "players", runtime.GOMAXPROCS(0), "concurrent simulations")
	f.input = cli.AddInputFlags(c)
	f.path = cli.AddPathFlags(c)
	return c
}

func faultNames() []string {
	var names []string
	for _, f := range sim.Faults() {
		names = append(names, string(f))
	}
	return names
}

func (p *process) localizeRecorded(c *cobra.Command, f *localizeFlags) error {
	choice, err := f.choice()
	if err != nil {
		return cli.UsageError{Err: err}
	}
	if f.learn < 0 || f.between < 0 || f.pairs < 0 {
		return cli.Usagef("--learn, --between and --pairs must not be negative")
	}
	defaults, err := config.Load(config.Sources{})
	if err != nil {
		return err
	}
	keys, err := ingest.NewKeys()
	if !f.choose {
		keys, err = defaults.Config.DecodedKeys() // as in the service
	}
	if err != nil {
		return err
	}
	n := cli.NewNotices("sibylbench", p.err)
	options := f.input.Options(p.in, n)
	options.Keys = keys
	set, err := recorded.Read(c.Context(), f.recorded,
		recorded.Options{Input: options, Path: f.path.Options(), Keep: f.choose, KeepAll: !f.choose})
	n.Close()
	if err != nil {
		return err
	}
	report := set.Localize()
	if f.choose {
		report.Choice, err = set.Choose(c.Context(), choice, p.progress())
	} else {
		o := backtest.Options{Core: defaults.Config.Engine(), Assembly: defaults.Config.OpenTraces()}
		o.Core.Path = f.path.Options()
		err = f.notice(c.Context(), set, &report, o)
		if errors.Is(err, recorded.ErrFewHealthy) {
			fmt.Fprintf(p.err, "sibylbench: not noticed: %v\n", err)
			err = nil
		}
	}
	if err != nil {
		return err
	}
	switch {
	case f.output.Value == "json":
		return benchreport.JSON(p.out, report)
	case f.output.Value == "csv" && f.choose:
		return benchreport.ChoiceCSV(p.out, report.Choice)
	case f.output.Value == "csv":
		return benchreport.RecordedCSV(p.out, &report)
	case f.output.Value == "svg" && f.choose:
		return benchreport.ChoiceSVG(p.out, report.Choice)
	case f.output.Value == "svg":
		return benchreport.RecordedSVG(p.out, &report)
	case f.choose:
		return errors.Join(benchreport.RecordedTable(p.out, &report), benchreport.ChoiceTable(p.out, report.Choice))
	}
	return benchreport.RecordedTable(p.out, &report)
}

// notice plays the streams of set, and sets report.Noticed and, with --pairs, report.Pairs.
func (f *localizeFlags) notice(
	ctx context.Context, set *recorded.Set, report *recorded.Report, o backtest.Options,
) (err error) {
	stream := recorded.Stream{Learn: f.learn, Between: f.between}
	if report.Noticed, err = set.Notice(ctx, stream, o); err != nil || f.pairs == 0 {
		return err
	}
	report.Pairs, err = set.NoticePairs(ctx, stream, report.Noticed, f.pairs, f.firstSeed, o)
	return err
}

func (p *process) localizeSimulated(c *cobra.Command, f *localizeFlags) error {
	s, err := f.simulation()
	if err != nil {
		return cli.UsageError{Err: err}
	}
	runs, err := eval.Simulate(c.Context(), s, time.Now, p.progress())
	if err != nil {
		return err
	}
	report := eval.Summarize(runs)
	switch f.output.Value {
	case "json":
		return benchreport.JSON(p.out, report)
	case "csv":
		return benchreport.SimulatedCSV(p.out, &report)
	case "svg":
		return benchreport.SimulatedSVG(p.out, &report)
	}
	return benchreport.SimulatedTable(p.out, &report)
}

// simulation returns the simulation that the flags select.
func (f *localizeFlags) simulation() (eval.Simulation, error) {
	s := eval.Simulation{
		App:     sim.Config{Tracepoints: f.tracepoints, Services: f.services, UnknownCallers: f.callers},
		Engine:  engine.DefaultOptions(),
		Workers: f.workers,
		Healthy: f.healthy,
	}
	if f.healthy <= 0 {
		return s, errors.New("--healthy must be above 0")
	}
	if !f.sim {
		return s, errors.New("nothing to do: neither --sim nor --recorded DIR")
	}
	for i := range f.seeds {
		s.Seeds = append(s.Seeds, f.firstSeed+i)
	}
	known := sim.Faults()
	for _, name := range f.faults {
		if !slices.Contains(known, sim.Fault(name)) {
			return s, fmt.Errorf("--faults: no fault is named %q; the faults are %s",
				name, strings.Join(faultNames(), ", "))
		}
		s.Faults = append(s.Faults, sim.Fault(name))
	}
	var err error
	s.Strategies, err = f.chosenStrategies()
	return s, err
}

// allStrategies selects all strategies in --strategies.
const allStrategies = "all"

// chosenStrategies returns the strategies of --strategies.
func (f *localizeFlags) chosenStrategies() ([]string, error) {
	if slices.Equal(f.strategies, []string{allStrategies}) {
		return eval.StrategyNames(), nil
	}
	for _, name := range f.strategies {
		if !slices.Contains(eval.StrategyNames(), name) {
			return nil, fmt.Errorf("--strategies: no strategy is named %q; the strategies are %s",
				name, strings.Join(eval.StrategyNames(), ", "))
		}
	}
	return f.strategies, nil
}

// choice returns the configuration of --choose.
func (f *localizeFlags) choice() (recorded.Choice, error) {
	options := engine.DefaultOptions()
	options.Path = f.path.Options()
	options.Seed = f.firstSeed
	strategies, err := f.chosenStrategies()
	return recorded.Choice{
		Baseline: recorded.Baseline(f.baseline.Value), Strategies: strategies, Engine: options, Slices: f.slices,
	}, err
}

// progress returns a function that shows a progress bar. It returns nil if standard error is not a terminal.
func (p *process) progress() func(done, all int) {
	if !terminal.Is(p.err) {
		return nil
	}
	bar := terminal.NewProgress(p.err, "running", func(n int64) string { return units.Count(int(n)) })
	return func(done, all int) {
		bar.Set(int64(done), int64(all))
		if done == all {
			bar.Clear()
		}
	}
}
