// Package offline analyses recorded traces. [Analyze] reads files in several passes and returns a [Report]: the
// incidents, the groups of requests, their problems in order of rank, and the causes of the first problems with the
// tracepoints to enable for them. [CompareWindow] and [CompareFiles] compare traces with a baseline and rank the
// services by their additional cost. Critical paths, groups, detection, explanations and search are the same as in the
// online core, package engine.
package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/explain"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/backtest"
	"github.com/sibyl-trace/sibyl/engine/spool"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure an analysis. Start from [DefaultOptions].
type Options struct {
	Input      file.Options
	Path       critpath.Options
	Thresholds detect.Thresholds        // Analyze sets Thresholds.Objectives from Objectives
	Objectives map[string]time.Duration // by entry, as "service operation"
	Budget     search.Budget
	Strategy   string // name of a published strategy; empty for the default
	Rules      group.Rules
	Split      bool              // split groups by variables that explain their variance
	Explained  int               // number of problems to explain, in order of rank
	Order      detect.Order      // order of the problems
	Incidents  *backtest.Options // options of the service to look for incidents with; nil means not to look for any
}

// DefaultOptions returns the options that `sibyl analyze` uses without flags.
func DefaultOptions() Options {
	return Options{Path: critpath.DefaultOptions(), Thresholds: detect.DefaultThresholds(), Explained: 20}
}

// Limits on the statistics. The first three are never reached in practice, so that the statistics don't depend on the
// order of the input.
const (
	mostEdges   = 1 << 20
	mostGroups  = 1 << 20
	mostTargets = 1 << 20
	sampleSize  = 256 // sampled requests of a group, for intervals and explanations
)

var errOverlap = errors.New(
	"with an overlap tolerance, shares of the critical path do not add up: analyse without one")

// spoolShare is the ratio of the memory for open traces to the memory for packed observations.
const spoolShare = 4

// analyzer holds the state of one call of [Analyze].
type analyzer struct {
	options   Options
	input     *file.Input
	report    *Report
	requests  *spool.Spool
	recording *backtest.Recording // nil if we don't look for incidents
	types     *group.RequestTypes
	aliases   group.Aliases // learned from all requests
	grouper   *group.Grouper
	trees     map[analysis.Hash]*cct.Builder // by request type

	from, to trace.Nanos       // recorded time, except for traces with wrong clocks
	misdated map[trace.ID]bool // traces of the requests outside the recorded time
}

// Analyze reads traces from the files and directories in paths and reports problems with their requests. The report
// depends only on the set of spans, not on their order or their distribution over files.
func Analyze(ctx context.Context, paths []string, options Options) (report *Report, err error) {
	if options.Path.OverlapTolerance > 0 {
		return nil, errOverlap
	}
	if err := options.Rules.Check(); err != nil {
		return nil, err
	}
	memory := cmp.Or(options.Input.Memory, assemble.DefaultMemory)
	var recording *backtest.Recording
	if options.Incidents != nil {
		options.Input.Memory = memory / 2 // traces by ID and traces by time are in memory together
		recording = backtest.NewRecording(memory/2, options.Input.TempDir)
		options.Input.Decoded = recording.Decoded
		defer func() { err = errors.Join(err, recording.Close()) }()
	}
	in, err := file.Read(ctx, paths, options.Input)
	if err != nil {
		return nil, err
	}
	a := &analyzer{
		options:   options,
		input:     in,
		recording: recording,
		report:    &Report{Table: in.Table, Rejected: make(map[trace.Reason]int)},
		requests:  spool.New(options.Input.TempDir, int(memory/spoolShare)),
		types:     &group.RequestTypes{Rules: group.NewRuleSet(options.Rules, in.Table)},
		trees:     make(map[analysis.Hash]*cct.Builder),
		misdated:  make(map[trace.ID]bool),
	}
	defer func() { err = errors.Join(err, in.Close(), a.requests.Close()) }()
	for _, pass := range []func(context.Context) error{a.extract, a.learnTypes, a.group, a.judge, a.play} {
		if err := pass(ctx); err != nil {
			return nil, err
		}
	}
	a.report.Families = a.report.Table.Families()
	return a.report, nil
}

// extract reduces every trace to observations, and learns the targets of calls. It also determines the recorded time,
// so that later passes leave out traces with wrong clocks. Otherwise, the time between these traces and the others
// would count when rates are computed.
func (a *analyzer) extract(ctx context.Context) error {
	r := a.report
	for reason, n := range a.input.Summary.Rejected {
		r.Rejected[reason] += int(n.Records + n.Spans)
	}
	a.input.Summary.Cover(&r.Coverage)
	extractor := critpath.NewExtractor(a.options.Path)
	var observer observation.Observer
	var o observation.Observation
	calendar, days := make(assemble.Calendar), make(map[trace.Nanos]*dayAccounts)
	for t, err := range a.input.All() {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.Traces++
		r.Spans += len(t.Spans)
		if a.recording != nil {
			if err := a.recording.Add(t); err != nil {
				return err
			}
		}
		p := extractor.Extract(t)
		d := dayOf(days, p)
		p.Cover(&d.coverage)
		usable := false
		for i := range p.Roots {
			if reason := p.Unusable(i); reason != "" {
				r.Rejected[reason]++
				continue
			}
			usable = true
			observer.Observe(p, i, &o)
			calendar.Add(o.Start, end(&o))
			a.aliases.Learn(&o, r.Table)
			if err := a.requests.Add(&o); err != nil {
				return err
			}
		}
		if usable {
			d.judged++
			if p.Complete() {
				d.complete++
			}
		}
	}
	a.aliases.EndEpoch(0)
	a.from, a.to = calendar.Recorded()
	a.addUp(days)
	return nil
}

// dayAccounts counts the traces that start on one day. We count by day because only at the end do we know which days
// are due to wrong clocks.
type dayAccounts struct {
	coverage         trace.Coverage
	judged, complete int // number of traces
}

const dayLength = trace.Nanos(24 * time.Hour)

// dayOf returns the accounts of the day on which the first root of p starts, adding them to days if necessary.
func dayOf(days map[trace.Nanos]*dayAccounts, p *critpath.Path) *dayAccounts {
	var start trace.Nanos
	if len(p.Roots) > 0 {
		start = p.Nodes[p.Roots[0].Node].Start
	}
	d := days[start/dayLength]
	if d == nil {
		d = &dayAccounts{}
		days[start/dayLength] = d
	}
	return d
}

// addUp adds the days to the report. It counts the judged spans of days outside the recorded time as misdated, because
// their clocks are wrong.
func (a *analyzer) addUp(days map[trace.Nanos]*dayAccounts) {
	for number, d := range days {
		if number*dayLength > a.to || (number+1)*dayLength < a.from {
			d.coverage.LeaveJudged(trace.Misdated)
		} else {
			a.report.Judged += d.judged
			a.report.Complete += d.complete
		}
		a.report.Coverage.Merge(&d.coverage)
	}
}

func end(o *observation.Observation) trace.Nanos { return o.Start + trace.Nanos(o.Duration) }

// learnTypes learns the request types, and counts the misdated traces, which all later passes leave out.
func (a *analyzer) learnTypes(ctx context.Context) error {
	for o, err := range a.each(ctx) {
		if err != nil {
			return err
		}
		a.types.Learn(o)
	}
	a.types.Freeze()
	if n := len(a.misdated); n > 0 {
		a.report.Rejected[trace.Misdated] = n
	}
	return nil
}

// group assigns the observations to groups, and adds their contexts to the trees of their request types.
func (a *analyzer) group(ctx context.Context) error {
	a.grouper = group.NewGrouper(a.types, a.report.Table, group.Options{
		Edges: mostEdges, Sample: sampleSize, Groups: mostGroups, Targets: mostTargets,
	})
	if a.options.Split {
		splits, err := explain.LearnSplits(a.each(ctx), a.grouper, a.options.Thresholds.CoV)
		if err != nil {
			return err
		}
		a.grouper.Keys.Splits = splits
	}
	for o, err := range a.each(ctx) {
		if err != nil {
			return err
		}
		requestType, _ := a.grouper.Observe(o)
		if requestType == nil {
			continue // counted by the grouper
		}
		t := a.trees[requestType.ID]
		if t == nil {
			t = &cct.Builder{}
			a.trees[requestType.ID] = t
		}
		t.Observe(cct.Observation{Seen: o.Start, Contexts: engine.ContextCounts(o)})
	}
	a.grouper.EndEpoch(0)
	a.report.Refused = a.grouper.Refused
	for _, group := range a.grouper.Groups() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		a.report.Groups = append(a.report.Groups, a.grouper.Summarize(group))
	}
	return nil
}

// each yields the observations within the recorded time, after filling in the targets of calls that lost their callee.
// An observation is valid until the next one is yielded. If ctx is done or the spool fails, the sequence ends with an
// error.
func (a *analyzer) each(ctx context.Context) iter.Seq2[*observation.Observation, error] {
	return func(yield func(*observation.Observation, error) bool) {
		for o, err := range a.requests.All() {
			if err == nil && (end(o) < a.from || end(o) > a.to) {
				a.misdated[o.Trace] = true
				continue
			}
			if err == nil {
				a.aliases.Apply(o, a.report.Table)
				err = context.Cause(ctx)
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// judge ranks the problems, explains the first Options.Explained ones and proposes tracepoints for them.
func (a *analyzer) judge(ctx context.Context) error {
	thresholds := a.options.Thresholds
	objectives, err := a.objectives()
	if err != nil {
		return err
	}
	thresholds.Objectives = objectives
	problems := detect.New(a.grouper).Chronic(thresholds, a.options.Order)
	if a.report.Problems, err = a.explain(ctx, problems); err != nil {
		return err
	}
	proposals, err := a.propose(ctx, problems[:min(len(problems), a.options.Explained)])
	if err != nil {
		return err
	}
	for i := range a.report.Problems {
		p := &a.report.Problems[i]
		if d, ok := proposals[p.ID]; ok {
			p.Proposed, p.Missing = d.Picks, d.Missing
		}
	}
	return nil
}

// objectives returns the objectives by entry operation. It returns an error if the name of an objective matches no
// entry.
func (a *analyzer) objectives() (map[trace.Op]time.Duration, error) {
	if len(a.options.Objectives) == 0 {
		return nil, nil
	}
	table := a.report.Table
	byOp := make(map[trace.Op]time.Duration)
	known := make(map[string]bool)
	for i := range a.report.Groups {
		entry := a.report.Groups[i].Entry
		name := table.ServiceName(entry) + " " + table.OpName(entry)
		if d, ok := a.options.Objectives[name]; ok {
			byOp[entry], known[name] = d, true
		}
	}
	for name := range a.options.Objectives {
		if !known[name] {
			return nil, fmt.Errorf("objective for %q: no request enters there (write it as \"service operation\", "+
				"as the report does)", name)
		}
	}
	return byOp, nil
}

// propose returns the first decision that the search would make about each problem, by the problem's ID.
func (a *analyzer) propose(ctx context.Context, problems []detect.Problem) (map[analysis.Hash]search.Decision, error) {
	strategy, err := engine.StrategyNamed(a.options.Strategy, nil)
	if err != nil {
		return nil, err
	}
	trees := make(map[analysis.Hash]*cct.Tree)
	rates := make(map[analysis.Hash]float64)
	for i := range problems {
		id := problems[i].RequestType
		if trees[id] == nil {
			trees[id] = a.trees[id].Build(nil, a.report.Table)
			rates[id] = a.grouper.Group(id).Current.Rate()
		}
	}
	proposals := make(map[analysis.Hash]search.Decision)
	for i := range problems { // one at a time, because the problems in a report don't share a budget
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		_, decisions := search.Next(search.Input{
			Now:      problemsAt,
			Problems: []search.Problem{search.ProblemOf(&problems[i])},
			Trees:    trees,
			Rates:    rates,
			Table:    a.report.Table,
			Budget:   a.options.Budget,
			Strategy: strategy,
			Epoch:    engine.DefaultOptions().Epoch,
		})
		for _, d := range decisions {
			if d.Subject == search.OfProblem(problems[i].ID) {
				proposals[problems[i].ID] = d
			}
		}
	}
	return proposals, nil
}

// leastRecorded is the minimum length of a recording that we search for incidents. Detecting them takes that much
// history.
const leastRecorded = 9 * time.Minute

// play plays the recording and reports the incidents. It must be the last step, because the engine adds its own
// contexts and edges to the table.
func (a *analyzer) play(ctx context.Context) (err error) {
	if a.recording == nil || a.recording.Recorded() < leastRecorded {
		return nil
	}
	options := *a.options.Incidents
	options.Table = a.report.Table
	a.report.Incidents, err = a.recording.Play(ctx, nil, options)
	return err
}

// problemsAt is the time at which the search makes its decisions. No result depends on it.
const problemsAt = trace.Nanos(1)
