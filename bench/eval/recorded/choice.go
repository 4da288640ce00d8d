package recorded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/baselinediff"
	"github.com/sibyl-trace/sibyl/bench/eval"
	"github.com/sibyl-trace/sibyl/bench/eval/yardstick"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Choice says how recorded traces are played as a choice of instrumentation.
type Choice struct {
	Baseline   Baseline
	Strategies []string
	Engine     engine.Options // Learning and Strategy are set for each case
	Slices     int            // most epochs of a window until there is an answer
}

// The rules of a game, which is one case played with one strategy:
//
//  1. The catalogue holds every operation of the recording; what is not of the baseline is off and its spans are hidden.
//  2. Time in which no trace begins is left out: slices of an epoch follow each other without gaps.
//  3. The history is every trace outside of all windows. All of it is learned from: first what lies after the window, then what
//     lies before it.
//  4. Then the window's traces come, again from the first when there are none left, under new identities: as requests that happen
//     to take the same time. A repetition adds requests for tracepoints to be seen in, not evidence, but the engine cannot know
//     that. What was raised before any repetition is counted apart.
//  5. The plan of an epoch decides what is visible in the next. A request's arm is drawn by its identity and the engine's seed.
//  6. The game ends with an answer, as in simulations: a place was located, or nothing is left to try.
//
// Beside, for each case, a control that has no window: the last tenth of the history is played as if it were one, once, after
// learning from the rest. What is raised there is a false alarm.
const controlled = 10

// NoStrategy is the name under which is played what the baseline alone tells: there are no tracepoints to choose from.
const NoStrategy = "none"

// ErrNoHistory is returned where every trace lies in the window of some case.
var ErrNoHistory = errors.New("no trace begins outside of all windows: nothing to learn from")

// Choose plays every case against the engine, once for each strategy. The set must have been read with Keep. Progress, if not nil,
// is called after each game.
func (s *Set) Choose(ctx context.Context, c Choice, progress func(done, all int)) (*ChoiceReport, error) {
	slices.SortStableFunc(s.tapes, byStart)
	games := &games{Choice: c, table: s.Table, catalogue: newCatalogue(s.tapes, c.Baseline, s.Table)}
	normal := s.normal()
	if len(normal) == 0 {
		return nil, ErrNoHistory
	}
	report := &ChoiceReport{
		Baseline: c.Baseline, Tracepoints: games.catalogue.switchable(), History: len(normal), Strategies: make(map[string]*ChoiceScore),
	}
	for i := range s.Cases {
		played, alarms := games.control(&s.Cases[i], normal)
		report.ControlSlices += played
		report.FalseAlarms += alarms
	}
	done := 0
	for _, strategy := range append([]string{NoStrategy}, c.Strategies...) {
		score := &ChoiceScore{}
		for i := range s.Cases {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("stopped after %d games: %w", done, context.Cause(ctx))
			}
			score.Cases = append(score.Cases, games.play(&s.Cases[i], strategy, normal, s.within(s.Cases[i].Window)))
			if done++; progress != nil {
				progress(done, (1+len(c.Strategies))*len(s.Cases))
			}
		}
		score.sumUp()
		report.Strategies[strategy] = score
	}
	return report, nil
}

// normal returns the traces that begin outside of all windows, in order.
func (s *Set) normal() []*tape {
	windows := s.Windows()
	var tapes []*tape
	for _, t := range s.tapes {
		if !slices.ContainsFunc(windows, func(w baselinediff.Interval) bool { return w.Contains(t.start) }) {
			tapes = append(tapes, t)
		}
	}
	return tapes
}

// within returns the traces that begin in w, in order.
func (s *Set) within(w baselinediff.Interval) []*tape {
	var tapes []*tape
	for _, t := range s.tapes {
		if w.Contains(t.start) {
			tapes = append(tapes, t)
		}
	}
	return tapes
}

// games is what all games share.
type games struct {
	Choice
	table     *trace.Table
	catalogue *catalogue
}

// game is one case while it is played with one strategy.
type game struct {
	*games
	ChoiceResult
	core *engine.Core
	now  trace.Nanos
	ever map[trace.Symbol]bool // tracepoints that were on, not to explore only
	out  trace.Trace           // scratch
}

// began is when every game begins: a fixed time.
const began = trace.Nanos(1_700_000_000_000_000_000)

// learned returns a game for c in which the engine has learned from history.
func (g *games) learned(c *Case, strategy string, history []slice) *game {
	options := g.Engine
	options.Strategy, options.Strategies = strategy, yardstick.Strategies()
	options.Learning = time.Duration(len(history)) * options.Epoch
	if strategy == NoStrategy {
		options.Strategy, options.Explore = "", 0 // there is nothing to choose from
	}
	table := &trace.Table{} // what is seen in one game is not known in another
	table.Merge(g.table)
	p := &game{
		games: g, ChoiceResult: ChoiceResult{Name: c.Name, Fault: c.Fault, Target: c.Target, Ranking: []ChoiceEntry{}},
		core: engine.NewCore(table, options), now: began, ever: make(map[trace.Symbol]bool),
	}
	announced := g.catalogue.announce()
	if strategy == NoStrategy {
		announced = slices.DeleteFunc(announced, func(tp cct.Tracepoint) bool { return !tp.Baseline })
	}
	p.core.Announce(began, announced)
	for _, s := range history {
		p.epoch(s, 0)
	}
	p.Requests, p.SpanHits = 0, 0
	return p
}

func (g *games) play(c *Case, strategy string, normal, window []*tape) ChoiceResult {
	p := g.learned(c, strategy, g.history(normal, c.Window))
	feed := cut(window, c.Window.From, g.Engine.Epoch)
	p.Recorded = len(feed)
	for len(feed) > 0 && p.Slices < g.Slices && !p.answered() {
		p.epoch(feed[p.Slices%len(feed)], p.Slices/len(feed))
		p.Slices++
		if p.Raised == nil && len(p.core.Problems()) > 0 {
			p.Raised, p.Repeated = new(p.Slices), p.Slices > len(feed)
		}
	}
	p.score(window)
	return p.ChoiceResult
}

// control plays the end of a case's history and returns how many slices that were, and how many problems were raised.
func (g *games) control(c *Case, normal []*tape) (played, alarms int) {
	history := g.history(normal, c.Window)
	split := len(history) - len(history)/controlled
	p := g.learned(c, NoStrategy, history[:split])
	raised := make(map[analysis.Hash]bool)
	for _, s := range history[split:] {
		p.epoch(s, 0)
		for i := range p.core.Problems() {
			raised[p.core.Problems()[i].ID] = true
		}
	}
	return len(history) - split, len(raised)
}

// history returns the slices that are played before the window: those after it, then those before it.
func (g *games) history(normal []*tape, window baselinediff.Interval) []slice {
	split, _ := slices.BinarySearchFunc(normal, window.From, func(t *tape, at trace.Nanos) int { return cmp.Compare(t.start, at) })
	var history []slice
	for _, part := range [][]*tape{normal[split:], normal[:split]} {
		if len(part) > 0 {
			history = append(history, cut(part, part[0].start, g.Engine.Epoch)...)
		}
	}
	return history
}

// epoch plays one slice, for the given time again.
func (g *game) epoch(s slice, again int) {
	arms := g.arms()
	for _, t := range s.tapes {
		id := t.whole.ID
		if again > 0 {
			id = another(id, uint64(again))
		}
		t.play(g.catalogue, arms.of(id, g.Engine.Seed), id, g.now.Sub(s.start), &g.out)
		g.core.Ingest(&g.out)
		g.count()
	}
	g.now = g.now.Add(g.Engine.Epoch)
	g.core.Epoch(g.now)
}

// another returns the identity of a request that looks like id's, for the given time.
func another(id trace.ID, again uint64) trace.ID {
	for i, h := range [2]uint64{trace.Mix(id.Hash(), again), trace.Mix(again, id.Hash())} {
		for k := range 8 {
			id[8*i+k] = byte(h >> (8 * k))
		}
	}
	return id
}

// count counts the spans that the plan added to a request.
func (g *game) count() {
	g.Requests++
	for i := range g.out.Spans {
		if g.out.Spans[i].Tracepoint != 0 {
			g.SpanHits++
		}
	}
}

// answered reports whether the engine came to a conclusion.
func (g *game) answered() bool {
	v := eval.Answer(g.core)
	return v != nil && v.Status >= search.Located
}

// plan is a plan as requests ask it.
type plan struct {
	version int64
	arms    []switched
	shares  []float64
}

// arms returns the present plan.
func (g *game) arms() *plan {
	now := g.core.Plan()
	p := &plan{version: now.Version}
	for i, a := range now.Arms {
		arm := switched{plan: now.Version, arm: a.Name, all: a.Everything, on: make(map[trace.Symbol]bool)}
		for _, l := range now.Leases {
			if int(l.Arm) == i {
				arm.on[l.Tracepoint], g.ever[l.Tracepoint] = true, true
			}
		}
		p.arms, p.shares = append(p.arms, arm), append(p.shares, a.Share)
	}
	return p
}

// armSalt keeps the draw of arms apart from what else hashes trace identities.
const armSalt = 0x61726d

// of draws what is on for a request.
func (p *plan) of(id trace.ID, seed uint64) switched {
	u := float64(trace.Mix(id.Hash(), trace.Mix(seed, armSalt))>>11) * 0x1p-53
	for i, share := range p.shares {
		if u -= share; u < 0 {
			return p.arms[i]
		}
	}
	return switched{plan: p.version}
}

// score looks the label up in what was answered.
func (g *game) score(window []*tape) {
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
		if p := g.catalogue.points[op]; g.seen(p) && g.Target.is(op, g.table) && (p.baseline || executed[p.id]) {
			g.Visible = true
		}
	}
	v := eval.Answer(g.core)
	if v == nil {
		return
	}
	g.Status = v.Status.String()
	for i, s := range v.Ranking() {
		e := g.entry(&s)
		if g.Rank == nil && g.Target.is(g.catalogue.place(s.Op, g.seen), g.table) {
			g.Rank = new(i + 1)
		}
		if len(g.Ranking) < listed {
			g.Ranking = append(g.Ranking, e)
		}
	}
}

// listed is how many suspects of a case are reported.
const listed = 5

// seen reports whether spans of p were visible at some time.
func (g *game) seen(p *point) bool { return p.baseline || g.ever[p.id] }

func (g *game) entry(s *search.Suspect) ChoiceEntry {
	o := g.table.Operation(s.Op)
	e := ChoiceEntry{
		Service: g.table.Text(o.Service), Operation: g.table.Text(o.Name), Kind: o.Kind.String(), Baseline: s.Tracepoint == 0, Share: s.Share,
	}
	if at := g.catalogue.place(s.Op, g.seen); at != s.Op {
		e.Callee = g.table.ServiceName(at)
	}
	return e
}

// is reports whether op is what is labelled: of the service, and the operation where one is labelled.
func (t *Target) is(op trace.Op, table *trace.Table) bool {
	if table.ServiceName(op) != t.Service {
		return false
	}
	return t.Operation == "" || table.OpName(op) == string(trace.NormalName([]byte(t.Operation), nil))
}
