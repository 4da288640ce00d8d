package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/scores"
	"github.com/sibyl-trace/sibyl/cmd/sibyl/terminal"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/internal/localize"
	"github.com/sibyl-trace/sibyl/internal/localize/recorded"
	"github.com/sibyl-trace/sibyl/internal/simapp"
	"github.com/sibyl-trace/sibyl/search"
)

// localizeFlags are the options of bench localize.
type localizeFlags struct {
	output   *choice
	recorded string
	input    *inputFlags
	path     *pathFlags

	choose   bool
	baseline *choice
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

func (p *process) benchLocalizeCommand() *cobra.Command {
	f := &localizeFlags{output: newChoice("table", "json", "csv", "svg"), baseline: newChoice(recorded.Baselines()...)}
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
		Example: `  sibyl bench localize --seeds 10 --faults lock,disk
  sibyl bench localize --recorded cases/ -o json
  sibyl bench localize --recorded cases/ --choose --strategies adaptive,random`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case f.recorded == "" && f.choose:
				return usageError{errors.New("--choose hides spans of recorded traces: it needs --recorded DIR")}
			case f.recorded == "":
			case c.Flags().Changed("sim") && f.sim:
				return usageError{errors.New("either --sim or --recorded DIR")}
			default:
				return p.localizeRecorded(c, f)
			}
			return p.localizeSimulated(c, f)
		},
	}
	f.output.flag(c, "output", "o", "format")
	flags := c.Flags()
	flags.StringVar(&f.recorded, "recorded", "", "directory with recorded traces and labelled faults")
	flags.BoolVar(&f.choose, "choose", false, "with --recorded: spans are hidden until the engine enables their tracepoint")
	f.baseline.flag(c, "baseline", "", "with --choose: spans that are always visible")
	flags.IntVar(&f.slices, "slices", 72, "with --choose: most epochs of a case until there must be an answer")
	flags.BoolVar(&f.sim, "sim", true, "simulated applications")
	flags.Uint64Var(&f.seeds, "seeds", 3, "simulated applications for each fault")
	flags.Uint64Var(&f.firstSeed, "first-seed", 10_000, "seed of the first; those below 1 000 are for tuning; with --choose, of what is drawn")
	flags.IntVar(&f.tracepoints, "tracepoints", 1000, "of each simulated application")
	flags.StringSliceVar(&f.faults, "faults", faultNames(), "what is simulated")
	flags.StringSliceVar(&f.strategies, "strategies", []string{allStrategies}, "of the search, or "+allStrategies+": "+strings.Join(search.Strategies(), ", "))
	flags.Float64Var(&f.explore, "explore", 0, "share of the requests that have everything switched on, at most 0.1")
	flags.IntVar(&f.players, "players", runtime.GOMAXPROCS(0), "simulations at the same time")
	f.input = addInputFlags(c)
	f.path = addPathFlags(c)
	return c
}

func faultNames() []string {
	var names []string
	for _, f := range simapp.Faults() {
		names = append(names, string(f))
	}
	return names
}

func (p *process) localizeRecorded(c *cobra.Command, f *localizeFlags) error {
	how, err := f.choice()
	if err != nil {
		return usageError{err}
	}
	keys, err := ingest.NewKeys(compare.PeerKeys()...)
	if err != nil {
		return err
	}
	n := &notices{out: p.err}
	options := f.input.options(p, n)
	options.Keys = keys
	set, err := recorded.Read(c.Context(), f.recorded, recorded.Options{Input: options, Path: f.path.options(), Keep: f.choose})
	n.close()
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
	case f.output.value == "json":
		return scores.JSON(p.out, report)
	case f.output.value == "csv" && f.choose:
		return scores.ChoiceCSV(p.out, report.Choice)
	case f.output.value == "csv":
		return scores.RecordedCSV(p.out, &report)
	case f.output.value == "svg" && f.choose:
		return scores.ChoiceSVG(p.out, report.Choice)
	case f.output.value == "svg":
		return scores.RecordedSVG(p.out, &report)
	case f.choose:
		return errors.Join(scores.RecordedTable(p.out, &report), scores.ChoiceTable(p.out, report.Choice))
	}
	return scores.RecordedTable(p.out, &report)
}

func (p *process) localizeSimulated(c *cobra.Command, f *localizeFlags) error {
	s, err := f.simulation()
	if err != nil {
		return usageError{err}
	}
	runs, err := localize.Play(c.Context(), s, time.Now, p.played())
	if err != nil {
		return err
	}
	report := localize.Summarize(runs)
	switch f.output.value {
	case "json":
		return scores.JSON(p.out, report)
	case "csv":
		return scores.SimulatedCSV(p.out, &report)
	case "svg":
		return scores.SimulatedSVG(p.out, &report)
	}
	return scores.SimulatedTable(p.out, &report)
}

// simulation returns what is to be played.
func (f *localizeFlags) simulation() (localize.Simulation, error) {
	s := localize.Simulation{
		App: simapp.Config{Tracepoints: f.tracepoints}, Engine: engine.DefaultOptions(), Workers: f.players,
	}
	s.Engine.Explore = f.explore
	if !f.sim {
		return s, errors.New("nothing to do: neither --sim nor --recorded DIR")
	}
	for i := range f.seeds {
		s.Seeds = append(s.Seeds, f.firstSeed+i)
	}
	known := simapp.Faults()
	for _, name := range f.faults {
		if !slices.Contains(known, simapp.Fault(name)) {
			return s, fmt.Errorf("--faults: no fault is called %q; there are %s", name, strings.Join(faultNames(), ", "))
		}
		s.Faults = append(s.Faults, simapp.Fault(name))
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
		return search.Strategies(), nil
	}
	for _, name := range f.strategies {
		if !slices.Contains(search.Strategies(), name) {
			return nil, fmt.Errorf("--strategies: no strategy is called %q; there are %s", name, strings.Join(search.Strategies(), ", "))
		}
	}
	return f.strategies, nil
}

// recordedSamples is how many requests a group is learned and judged from where recorded windows are short.
const recordedSamples = 10

// choice returns how recorded traces are to be played as a choice of instrumentation.
func (f *localizeFlags) choice() (recorded.Choice, error) {
	options := engine.DefaultOptions()
	options.Path = f.path.options()
	options.Explore, options.Watch.MinSamples, options.Seed = f.explore, recordedSamples, f.firstSeed
	strategies, err := f.chosenStrategies()
	return recorded.Choice{
		Baseline: recorded.Baseline(f.baseline.value), Strategies: strategies, Engine: options, Slices: f.slices,
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
