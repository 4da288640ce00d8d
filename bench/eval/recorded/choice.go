package recorded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/bench/eval/yardstick"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Choice configures a run of recorded traces against the engine, which chooses the instrumentation.
type Choice struct {
	Baseline   Baseline
	Strategies []string
	Engine     engine.Options // Learning and Strategy are set for each case
	Slices     int            // maximum epochs of a window without an answer
}

// Rules of a run of one case with one strategy:
//
//  1. The catalogue lists every operation of the recording. Operations outside the baseline are disabled, and their
//     spans are hidden.
//  2. We leave out times without traces: slices of an epoch follow each other without gaps.
//  3. The history consists of all traces outside of all windows. The engine first learns from the part after the
//     window, then from the part before.
//  4. Then the traces of the window follow, repeatedly if necessary, with new trace IDs, as requests that happen to
//     take the same time. A repetition adds requests for tracepoints to appear in, not evidence, but the engine cannot
//     know that. Problems raised before any repetition are counted separately.
//  5. The plan of an epoch determines the visible spans of the next. A request's arm is drawn from its identity and the
//     engine's seed.
//  6. The answer is the investigation of the incident that opened in the window and has the highest score. The run ends
//     when that investigation has located a suspect, or when no candidate is left. Without an incident the answer is
//     the investigation of a problem at the end of the run, as in simulations.
//
// A control for each case has no window. It learns from all but the last tenth of the history (1/controlFraction), and
// runs that tenth once as if it were a window. A problem raised there is a false alarm.
const controlFraction = 10

// NoStrategy is the name of a run with the baseline alone, without tracepoints to choose from.
const NoStrategy = "none"

// ErrNoHistory means that every trace lies in the window of some case.
var ErrNoHistory = errors.New("no trace begins outside of all windows: nothing to learn from")

// Choose runs each case against the engine, once with each strategy. The set must have been read with Keep. It calls
// progress after each run, unless that is nil.
func (s *Set) Choose(ctx context.Context, c Choice, progress func(done, all int)) (*ChoiceReport, error) {
	slices.SortStableFunc(s.traces, byStart)
	r := &runner{Choice: c, table: s.Table, catalogue: newCatalogue(s.traces, c.Baseline, s.Table)}
	normal := s.normal()
	if len(normal) == 0 {
		return nil, ErrNoHistory
	}
	report := &ChoiceReport{
		Baseline: c.Baseline, Tracepoints: r.catalogue.switchable(), History: len(normal),
		Strategies: make(map[string]*ChoiceScore),
	}
	for i := range s.Cases {
		n, alarms := r.control(&s.Cases[i], normal)
		report.ControlSlices += n
		report.FalseAlarms += alarms
	}
	done := 0
	for _, strategy := range append([]string{NoStrategy}, c.Strategies...) {
		score := &ChoiceScore{}
		for i := range s.Cases {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("stopped after %d runs: %w", done, context.Cause(ctx))
			}
			score.Cases = append(score.Cases, r.run(&s.Cases[i], strategy, normal, s.within(s.Cases[i].Window)))
			if done++; progress != nil {
				progress(done, (1+len(c.Strategies))*len(s.Cases))
			}
		}
		score.summarize()
		report.Strategies[strategy] = score
	}
	return report, nil
}

// normal returns the traces that start outside of all windows, in order.
func (s *Set) normal() []*recordedTrace {
	windows := s.Windows()
	var traces []*recordedTrace
	for _, t := range s.traces {
		if !slices.ContainsFunc(windows, func(w history.Interval) bool { return w.Contains(t.start) }) {
			traces = append(traces, t)
		}
	}
	return traces
}

// within returns the traces that start in w, in order.
func (s *Set) within(w history.Interval) []*recordedTrace {
	var traces []*recordedTrace
	for _, t := range s.traces {
		if w.Contains(t.start) {
			traces = append(traces, t)
		}
	}
	return traces
}

// runner runs cases. Its runs share the configuration, the names and the catalogue.
type runner struct {
	Choice
	table     *trace.Table
	catalogue *catalogue
}

// caseRun is a run of one case with one strategy, in progress.
type caseRun struct {
	*runner
	ChoiceResult
	core *engine.Core
	now  trace.Nanos
	// window is the start of the window.
	window trace.Nanos
	ever   map[trace.Symbol]bool // tracepoints that were enabled
	out    trace.Trace           // scratch
}

// began is the start of every run. It is fixed so that runs repeat.
const began = trace.Nanos(1_700_000_000_000_000_000)

// newRun returns a run of c after the engine has learned from history.
func (r *runner) newRun(c *Case, strategy string, history []slice) *caseRun {
	options := r.Engine
	options.Strategy, options.Strategies = strategy, yardstick.Strategies()
	options.Learning = time.Duration(len(history)) * options.Epoch
	if strategy == NoStrategy {
		options.Strategy = "" // it has nothing to choose from
	}
	table := &trace.Table{} // runs must not share names
	table.Merge(r.table)
	p := &caseRun{
		runner: r, ChoiceResult: ChoiceResult{
			Name:     c.Name,
			Fault:    c.Fault,
			Target:   c.Target,
			Suspects: []string{},
			Ranking:  []ChoiceEntry{},
		},
		core: engine.NewCore(table, options), now: began, ever: make(map[trace.Symbol]bool),
	}
	announced := r.catalogue.announce()
	if strategy == NoStrategy {
		announced = slices.DeleteFunc(announced, func(tp cct.Tracepoint) bool { return !tp.Baseline })
	}
	p.core.Announce(began, announced)
	for _, s := range history {
		p.epoch(s, 0)
	}
	p.Requests, p.SpanHits, p.window = 0, 0, p.now
	return p
}

func (r *runner) run(c *Case, strategy string, normal, window []*recordedTrace) ChoiceResult {
	p := r.newRun(c, strategy, r.history(normal, c.Window))
	feed := divide(window, c.Window.From, r.Engine.Epoch)
	p.Recorded = len(feed)
	for len(feed) > 0 && p.Slices < r.Slices && !p.answered() {
		p.epoch(feed[p.Slices%len(feed)], p.Slices/len(feed))
		p.Slices++
		if p.Raised == nil && p.raised() {
			p.Raised, p.Repeated = new(p.Slices), p.Slices > len(feed)
		}
	}
	p.score(window)
	return p.ChoiceResult
}

// control runs the end of a case's history. It returns the numbers of slices and of raised problems.
func (r *runner) control(c *Case, normal []*recordedTrace) (n, alarms int) {
	history := r.history(normal, c.Window)
	split := len(history) - len(history)/controlFraction
	p := r.newRun(c, NoStrategy, history[:split])
	raised := make(map[analysis.Hash]bool)
	for _, s := range history[split:] {
		p.epoch(s, 0)
		for _, x := range p.core.View().Problems.Open() {
			raised[x.ID] = true
		}
	}
	return len(history) - split, len(raised)
}

// history returns the slices of the learning period: those recorded after the window, then those recorded before it.
func (r *runner) history(normal []*recordedTrace, window history.Interval) []slice {
	split, _ := slices.BinarySearchFunc(normal, window.From, func(t *recordedTrace, at trace.Nanos) int {
		return cmp.Compare(t.start, at)
	})
	var history []slice
	for _, part := range [][]*recordedTrace{normal[split:], normal[:split]} {
		if len(part) > 0 {
			history = append(history, divide(part, part[0].start, r.Engine.Epoch)...)
		}
	}
	return history
}

// epoch executes a slice that was executed again times before.
func (g *caseRun) epoch(s slice, again int) {
	arms := g.arms()
	for _, t := range s.traces {
		id := t.whole.ID
		if again > 0 {
			id = another(id, uint64(again))
		}
		t.instrument(g.catalogue, arms.of(id, g.Engine.Seed), id, g.now.Sub(s.start), &g.out)
		g.core.Ingest(&g.out)
		g.count()
	}
	g.now = g.now.Add(g.Engine.Epoch)
	g.core.Epoch(g.now)
}

// another returns the trace ID of a repetition of request id.
func another(id trace.ID, again uint64) trace.ID {
	for i, h := range [2]uint64{trace.Mix(id.Hash(), again), trace.Mix(again, id.Hash())} {
		for k := range 8 {
			id[8*i+k] = byte(h >> (8 * k))
		}
	}
	return id
}

// count counts the spans that the plan added to a request.
func (g *caseRun) count() {
	g.Requests++
	for i := range g.out.Spans {
		if g.out.Spans[i].Tracepoint != 0 {
			g.SpanHits++
		}
	}
}

// raised reports whether there is a problem, or an incident that opened since the start of the window.
func (g *caseRun) raised() bool { return len(g.core.View().Problems.Open()) > 0 || g.incident() != nil }

// settling is the time after which the suspects of an incident hardly change.
const settling = incident.Window / 2

// answered reports whether the suspects of the incident have settled and its search has ended.
func (g *caseRun) answered() bool {
	x := g.incident()
	if x == nil || g.now.Sub(x.LastOpened()) < settling {
		return false
	}
	v := g.core.View().Searches.Investigation(search.OfIncident(x.ID))
	return v != nil && v.Status >= search.Located
}

// incident returns the incident with the highest score that opened, or reopened, since the start of the window. It
// returns nil if there is no such incident.
func (g *caseRun) incident() *engine.Incident {
	var best *engine.Incident
	all := g.core.View().Incidents.All()
	for i := range all {
		x := &all[i]
		if x.LastOpened() > g.window && x.Into() == 0 && (best == nil || x.Suspects[0].Score > best.Suspects[0].Score) {
			best = x
		}
	}
	return best
}

// investigation returns the investigation with the answer, or nil if there is no answer.
func (g *caseRun) investigation() *search.Investigation {
	if x := g.incident(); x != nil {
		return g.core.View().Searches.Investigation(search.OfIncident(x.ID))
	}
	return eval.Answer(g.core)
}

// plan is a plan with an index for selecting arms.
type plan struct {
	version int64
	arms    []enabled
	shares  []float64
}

// arms returns the current plan.
func (g *caseRun) arms() *plan {
	now := g.core.View().Searches.Plan()
	p := &plan{version: now.Version}
	for i, a := range now.Arms {
		arm := enabled{plan: now.Version, arm: a.Name, on: make(map[trace.Symbol]bool)}
		for _, l := range now.Leases {
			if int(l.Arm) == i {
				arm.on[l.Tracepoint], g.ever[l.Tracepoint] = true, true
			}
		}
		p.arms, p.shares = append(p.arms, arm), append(p.shares, a.Share)
	}
	return p
}

// armSalt makes the selection of arms independent of other hashes of trace IDs.
const armSalt = 0x61726d

// of returns the arm of the request with the given ID. If the request has no arm, the result enables no tracepoints.
func (p *plan) of(id trace.ID, seed uint64) enabled {
	u := float64(trace.Mix(id.Hash(), trace.Mix(seed, armSalt))>>11) * 0x1p-53
	for i, share := range p.shares {
		if u -= share; u < 0 {
			return p.arms[i]
		}
	}
	return enabled{plan: p.version}
}

// score looks the label up in the answer.
func (g *caseRun) score(window []*recordedTrace) {
	g.Traces = len(window)
	executed := make(map[trace.Symbol]bool)
	for _, t := range window {
		for i := range t.whole.Spans {
			if p := g.catalogue.points[t.whole.Spans[i].Op]; !p.baseline {
				executed[p.id] = true
			}
		}
	}
	g.Executed = len(executed)
	for tp := range g.ever {
		if executed[tp] {
			g.Enabled++
		}
	}
	for _, op := range g.catalogue.order {
		if p := g.catalogue.points[op]; g.seen(p) && isTarget(&g.Target, op, g.table) &&
			(p.baseline || executed[p.id]) {
			g.Visible = true
		}
	}
	v := g.investigation()
	if v != nil {
		g.Status = v.Status.String()
	}
	if x := g.incident(); x != nil {
		g.scoreSuspects(x)
	} else if v != nil {
		for i, s := range v.Suspects {
			if g.Rank == nil && isTarget(&g.Target, g.catalogue.place(s.Op, g.seen), g.table) {
				g.Rank = new(i + 1)
			}
		}
	}
	if v != nil {
		for _, s := range v.Suspects[:min(len(v.Suspects), listed)] {
			g.Ranking = append(g.Ranking, g.entry(&s))
		}
	}
}

// scoreSuspects looks the labelled service up in the suspects of an incident. If an operation is labelled, it must be
// among the operations of the suspect.
func (g *caseRun) scoreSuspects(x *engine.Incident) {
	for i, s := range x.Suspects {
		g.Suspects = append(g.Suspects, g.table.Text(s.Service))
		hit := g.table.Text(s.Service) == g.Target.Service && (g.Target.Operation == "" ||
			slices.ContainsFunc(s.Operations,
				func(o compare.SuspectOperation) bool { return isTarget(&g.Target, o.Op, g.table) }))
		if hit && g.Rank == nil {
			g.Rank = new(i + 1)
		}
	}
	g.Suspects = g.Suspects[:min(len(g.Suspects), listed)]
}

// listed is the number of suspects reported for a case.
const listed = 5

// seen reports whether spans of p were ever visible.
func (g *caseRun) seen(p *point) bool { return p.baseline || g.ever[p.id] }

func (g *caseRun) entry(s *search.Suspect) ChoiceEntry {
	o := g.table.Operation(s.Op)
	e := ChoiceEntry{
		Service:   g.table.Text(o.Service),
		Operation: g.table.Text(o.Name),
		Kind:      o.Kind.String(),
		Baseline:  s.Tracepoint == 0,
		Share:     s.Share,
	}
	if at := g.catalogue.place(s.Op, g.seen); at != s.Op {
		e.Callee = g.table.ServiceName(at)
	}
	return e
}

// isTarget reports whether op has the service of t and, if t has one, the operation.
func isTarget(t *Target, op trace.Op, table *trace.Table) bool {
	if table.ServiceName(op) != t.Service {
		return false
	}
	return t.Operation == "" || table.OpName(op) == string(trace.NormalName([]byte(t.Operation), nil))
}
