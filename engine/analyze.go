package engine

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
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/ingest/file"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// AnalyzeOptions choose how files are analysed. Use [DefaultAnalyzeOptions] and change what you need.
type AnalyzeOptions struct {
	Input      file.Options
	Path       critpath.Options
	Thresholds detect.Thresholds        // Objectives are filled in from the next field
	Objectives map[string]time.Duration // by "service operation" of the entry
	Budget     search.Budget
	Strategy   string // the name of a published strategy; empty: the default
	Rules      group.Rules
	Split      bool // groups are split by variables that explain their variance
	Explained  int  // how many of the first problems are explained; 0: none
}

// DefaultAnalyzeOptions returns what `sibyl analyze` does without flags.
func DefaultAnalyzeOptions() AnalyzeOptions {
	return AnalyzeOptions{Path: critpath.DefaultOptions(), Thresholds: detect.DefaultThresholds(), Explained: 20}
}

// Offline these bounds are out of reach, so that the statistics do not depend on the order of the input. What is replayed,
// compared and explained beside them is bounded, see replayedRequests, windowsCompared and their neighbours.
const (
	offlineEdges  = 1 << 20
	offlineGroups = 1 << 20
	offlineSample = 256 // requests of a group that intervals and explanations are drawn from
)

// logShare is the part, one in so much, of the memory for open traces that their observations may take beside them: they are packed.
const logShare = 4

// offline is one analysis while it runs.
type offline struct {
	options AnalyzeOptions
	input   *file.Input
	report  *Report
	log     *log
	types   *group.RequestTypes
	grouper *group.Grouper
	trees   map[analysis.Hash]*cct.Builder
}

// Analyze reads traces from files and directories and reports what is wrong with the requests in them. The report depends on the
// set of spans only: not on their order, nor on how they are spread over files.
func Analyze(ctx context.Context, paths []string, options AnalyzeOptions) (report *Report, err error) {
	if options.Path.OverlapTolerance > 0 {
		return nil, errors.New("critical paths that overlap have no shares that add up: analyse without an overlap tolerance")
	}
	if err := options.Rules.Check(); err != nil {
		return nil, err
	}
	in, err := file.Read(ctx, paths, options.Input)
	if err != nil {
		return nil, err
	}
	a := &offline{
		options: options, input: in,
		report: &Report{Table: in.Table, Rejected: make(map[trace.Reason]int)},
		log:    newLog(options.Input.TempDir, int(cmp.Or(options.Input.Memory, assemble.DefaultMemory)/logShare)),
		types:  &group.RequestTypes{Rules: group.NewRuleSet(options.Rules, in.Table)},
		trees:  make(map[analysis.Hash]*cct.Builder),
	}
	defer func() { err = errors.Join(err, in.Close(), a.log.close()) }()
	for _, pass := range []func(context.Context) error{a.extract, a.group, a.judge} {
		if err := pass(ctx); err != nil {
			return nil, err
		}
	}
	return a.report, nil
}

// extract reduces every trace to observations and learns the request types.
func (a *offline) extract(ctx context.Context) error {
	r := a.report
	for reason, n := range a.input.Summary.Broken {
		r.Rejected[reason] += int(n.Records + n.Spans)
	}
	extractor := critpath.NewExtractor(a.options.Path)
	var observer observation.Observer
	var o observation.Observation
	for t, err := range a.input.All() {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.Traces++
		r.Spans += len(t.Spans)
		p := extractor.Extract(t)
		if !p.Complete() {
			r.Rejected[trace.Incomplete]++
			continue
		}
		usable := false
		for i := range p.Roots {
			if reason := p.Unusable(i); reason != "" {
				r.Rejected[reason]++
				continue
			}
			usable = true
			observer.Observe(p, i, &o)
			a.types.Learn(&o)
			if err := a.log.add(&o); err != nil {
				return err
			}
		}
		if usable {
			r.Complete++
		}
	}
	a.types.Freeze()
	return nil
}

// group puts the observations into groups, and their contexts into the trees of their request types.
func (a *offline) group(ctx context.Context) error {
	a.grouper = group.NewGrouper(a.types, a.report.Table, group.Options{
		Edges: offlineEdges, Sample: offlineSample, Groups: offlineGroups,
	})
	if a.options.Split {
		s := newSplitter()
		if err := s.learnFrom(a.requests(ctx), a.grouper, a.options.Thresholds.CoV); err != nil {
			return err
		}
		a.grouper.Keys.Splits = s.splits
	}
	for o, err := range a.requests(ctx) {
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
		t.Observe(cct.Observation{Seen: o.Start, Contexts: contextCounts(o)})
	}
	a.grouper.Close(0)
	a.report.Refused = a.grouper.Refused
	for _, group := range a.grouper.Groups() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		a.report.Groups = append(a.report.Groups, a.grouper.Summarize(group))
	}
	return nil
}

// requests yields what was observed, each until the next one comes, and an error at last if ctx is done or the log is broken.
func (a *offline) requests(ctx context.Context) iter.Seq2[*observation.Observation, error] {
	return func(yield func(*observation.Observation, error) bool) {
		for o, err := range a.log.all() {
			if err == nil {
				err = context.Cause(ctx)
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// judge ranks the problems, explains the first ones, and asks the search what to switch on for them.
func (a *offline) judge(ctx context.Context) error {
	thresholds := a.options.Thresholds
	objectives, err := a.objectives()
	if err != nil {
		return err
	}
	thresholds.Objectives = objectives
	problems := detect.New(a.grouper).Chronic(thresholds)
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

// objectives resolves the names of entry operations.
func (a *offline) objectives() (map[trace.Op]time.Duration, error) {
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
			return nil, fmt.Errorf("objective for %q: no request enters there (write it as \"service operation\", as the report does)", name)
		}
	}
	return byOp, nil
}

// propose asks the search what it would do first about each problem.
func (a *offline) propose(ctx context.Context, problems []detect.Problem) (map[analysis.Hash]search.Decision, error) {
	strategy, err := strategyNamed(a.options.Strategy, nil)
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
	for i := range problems { // each by itself: a report does not share a budget between problems
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		_, decisions := search.Next(search.Input{
			Now: problemsAt, Problems: problems[i : i+1], Trees: trees, Rates: rates, Table: a.report.Table,
			Budget: a.options.Budget, Strategy: strategy, Epoch: DefaultOptions().Epoch,
		})
		for _, d := range decisions {
			if d.Investigation == problems[i].ID {
				proposals[d.Investigation] = d
			}
		}
	}
	return proposals, nil
}

// problemsAt is the time at which an offline search decides. Nothing it says depends on it.
const problemsAt = trace.Nanos(1)
