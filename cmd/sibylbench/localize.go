package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/cmd/internal/cli"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
	"github.com/sibyl-trace/sibyl/bench/benchreport"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/bench/eval/recorded"
	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// localizeFlags are the flags of the localize command.
type localizeFlags struct {
	output   *cli.Choice
	recorded string
	input    *cli.InputFlags
	path     *cli.PathFlags

	choose   bool
	baseline *cli.Choice
	slices   int

	sim         bool
	seeds       uint64
	firstSeed   uint64
	tracepoints int
	faults      []string
	strategies  []string
	players     int
	explore     float64
}

func (p *process) localizeCommand() *cobra.Command {
	f := &localizeFlags{output: cli.NewChoice("table", "json", "csv", "svg"), baseline: cli.NewChoice(recorded.Baselines()...)}
	c := &cobra.Command{
		Use:   "localize",
		Short: "How well causes are found, in simulated applications or in recorded traces",
		Long: `Measures how well causes are found.

--sim, the default, plays seeded simulated applications with one fault each against the engine, epoch by epoch: only spans of
enabled tracepoints are emitted, and the engine's plan takes effect for the next epoch's requests.

--recorded DIR reads traces with labelled faults: DIR/` + recorded.TracesName + ` (also .gz, .zst) and DIR/` + recorded.CasesName + `, one fault
a line: {"name", "fault", "start_unix_nano", "end_unix_nano", "target": {"service", "operation"?, "detail"?}}. For each, all
services are ranked by what changed between that window and the traces outside of all windows; then the labels are looked up.

--recorded DIR --choose also makes instrumentation a choice: it hides all spans but the baseline, lets the engine learn from the
traces outside of all windows, and plays each window against it, epoch by epoch, showing only spans of enabled tracepoints. A case
counts when what is labelled is ranked first by what is visible then. The strategy "none" tells what the baseline alone shows.`,
		Example: `  sibylbench localize --seeds 10 --faults lock,disk
  sibylbench localize --recorded cases/ -o json
  sibylbench localize --recorded cases/ --choose --strategies adaptive,random`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case f.recorded == "" && f.choose:
				return cli.UsageError{Err: errors.New("--choose hides spans of recorded traces: it needs --recorded DIR")}
			case f.recorded == "":
			case c.Flags().Changed("sim") && f.sim:
				return cli.UsageError{Err: errors.New("either --sim or --recorded DIR")}
			default:
				return p.localizeRecorded(c, f)
			}
			return p.localizeSimulated(c, f)
		},
	}
	f.output.Flag(c, "output", "o", "format")
	flags := c.Flags()
	flags.StringVar(&f.recorded, "recorded", "", "directory with recorded traces and labelled faults")
	flags.BoolVar(&f.choose, "choose", false, "with --recorded: spans are hidden until the engine enables their tracepoint")
	f.baseline.Flag(c, "baseline", "", "with --choose: spans that are always visible")
	flags.IntVar(&f.slices, "slices", 72, "with --choose: most epochs of a case until there must be an answer")
	flags.BoolVar(&f.sim, "sim", true, "simulated applications")
	flags.Uint64Var(&f.seeds, "seeds", 3, "simulated applications for each fault")
	flags.Uint64Var(&f.firstSeed, "first-seed", 10_000, "seed of the first; those below 1 000 are for tuning; with --choose, of what is drawn")
	flags.IntVar(&f.tracepoints, "tracepoints", 1000, "of each simulated application")
	flags.StringSliceVar(&f.faults, "faults", faultNames(), "what is simulated")
	flags.StringSliceVar(&f.strategies, "strategies", []string{allStrategies}, "of the search, or "+allStrategies+": "+strings.Join(eval.StrategyNames(), ", "))
	flags.Float64Var(&f.explore, "explore", 0, "share of the requests that have everything switched on, at most 0.1")
	flags.IntVar(&f.players, "players", runtime.GOMAXPROCS(0), "simulations at the same time")
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
	how, err := f.choice()
	if err != nil {
		return cli.UsageError{Err: err}
	}
	keys, err := ingest.NewKeys(baselinediff.PeerKeys()...)
	if err != nil {
		return err
	}
	n := cli.NewNotices("sibylbench", p.err)
	options := f.input.Options(p.in, n)
	options.Keys = keys
	set, err := recorded.Read(c.Context(), f.recorded, recorded.Options{Input: options, Path: f.path.Options(), Keep: f.choose})
	n.Close()
	if err != nil {
		return err
	}
	report := set.Localize()
	if f.choose {
		if report.Choice, err = set.Choose(c.Context(), how, p.played()); err != nil {
			return err
		}
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

func (p *process) localizeSimulated(c *cobra.Command, f *localizeFlags) error {
	s, err := f.simulation()
	if err != nil {
		return cli.UsageError{Err: err}
	}
	runs, err := eval.Play(c.Context(), s, time.Now, p.played())
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

// simulation returns what is to be played.
func (f *localizeFlags) simulation() (eval.Simulation, error) {
	s := eval.Simulation{
		App: sim.Config{Tracepoints: f.tracepoints}, Engine: engine.DefaultOptions(), Workers: f.players,
	}
	s.Engine.Explore = f.explore
	if !f.sim {
		return s, errors.New("nothing to do: neither --sim nor --recorded DIR")
	}
	for i := range f.seeds {
		s.Seeds = append(s.Seeds, f.firstSeed+i)
	}
	known := sim.Faults()
	for _, name := range f.faults {
		if !slices.Contains(known, sim.Fault(name)) {
			return s, fmt.Errorf("--faults: no fault is called %q; there are %s", name, strings.Join(faultNames(), ", "))
		}
		s.Faults = append(s.Faults, sim.Fault(name))
	}
	var err error
	s.Strategies, err = f.chosenStrategies()
	return s, err
}

// allStrategies stands for every strategy in --strategies.
const allStrategies = "all"

// chosenStrategies returns the strategies that are asked for.
func (f *localizeFlags) chosenStrategies() ([]string, error) {
	if slices.Equal(f.strategies, []string{allStrategies}) {
		return eval.StrategyNames(), nil
	}
	for _, name := range f.strategies {
		if !slices.Contains(eval.StrategyNames(), name) {
			return nil, fmt.Errorf("--strategies: no strategy is called %q; there are %s", name, strings.Join(eval.StrategyNames(), ", "))
		}
	}
	return f.strategies, nil
}

// recordedSamples is how many requests a group is learned and judged from where recorded windows are short.
const recordedSamples = 10

// choice returns how recorded traces are to be played as a choice of instrumentation.
func (f *localizeFlags) choice() (recorded.Choice, error) {
	options := engine.DefaultOptions()
	options.Path = f.path.Options()
	options.Explore, options.Watch.MinSamples, options.Seed = f.explore, recordedSamples, f.firstSeed
	strategies, err := f.chosenStrategies()
	return recorded.Choice{
		Baseline: recorded.Baseline(f.baseline.Value), Strategies: strategies, Engine: options, Slices: f.slices,
	}, err
}

// played returns what shows on a terminal how many runs were played; nil if standard error is none.
func (p *process) played() func(done, all int) {
	if !terminal.Is(p.err) {
		return nil
	}
	var bar *progressbar.ProgressBar
	return func(done, all int) {
		if bar == nil {
			bar = progressbar.NewOptions(all, progressbar.OptionSetWriter(p.err), progressbar.OptionSetDescription("playing"),
				progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(30))
		}
		_ = bar.Set(done) // a bar that cannot be drawn is no reason to stop
	}
}
