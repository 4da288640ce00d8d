package eval

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/bench/eval/yardstick"
	"github.com/sibyl-trace/sibyl/bench/sim"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Simulation says what is played. Every combination of seed, fault and strategy is a run of its own.
type Simulation struct {
	Seeds      []uint64
	Faults     []sim.Fault
	Strategies []string
	App        sim.Config     // Seed and Fault are set by the run
	Engine     engine.Options // Strategy and Seed are set by the run
	Healthy    time.Duration  // after the learning period, before the fault; default one minute
	Epochs     int            // most epochs until a problem is raised, and from then on; default 36
	Workers    int            // runs at the same time; default 1
}

// Run is how one simulated fault was dealt with.
type Run struct {
	Seed        uint64    `json:"seed"`
	Fault       sim.Fault `json:"fault"`
	Strategy    string    `json:"strategy"`
	Target      string    `json:"target"`      // where the fault is, for people
	Locatable   bool      `json:"locatable"`   // fixed before the run, from the full traces: see locatable
	Significant bool      `json:"significant"` // a weaker claim: three standard errors over the whole run, however small

	Raised      bool          `json:"raised"`       // a problem was raised after the fault began
	Status      string        `json:"status"`       // of the investigation that answered; empty: there was none
	Rank        int           `json:"rank"`         // of the first correct suspect, from 1; 0: not among the suspects
	Answer      string        `json:"answer"`       // the first suspect
	Detected    int           `json:"detected"`     // epochs from the fault to the first problem, or to the end of the run
	Epochs      int           `json:"epochs"`       // from then to the answer, or to the end of the run
	Executed    int           `json:"executed"`     // tracepoints that requests executed, on or off
	Enabled     int           `json:"enabled"`      // of these, ever switched on
	Peak        int           `json:"peak"`         // of these, on at the same time
	SpanHits    int           `json:"span_hits"`    // spans of switched-on tracepoints
	ExploreHits int           `json:"explore_hits"` // of these, of requests that had everything on
	Requests    int           `json:"requests"`     // since the fault began
	FalseAlarms int           `json:"false_alarms"` // problems raised without a fault
	GroupHours  float64       `json:"group_hours"`  // over which they were counted
	Decide      time.Duration `json:"decide_ns"`    // longest time that an epoch's weighing and decision took
}

// Play plays every run and returns the results in the order of faults, seeds and strategies. Progress is called after each.
func Play(ctx context.Context, s Simulation, clock func() time.Time, progress func(done, all int)) ([]Run, error) {
	if s.Healthy == 0 {
		s.Healthy = time.Minute
	}
	if s.Epochs == 0 {
		s.Epochs = 36
	}
	type job struct {
		fault    sim.Fault
		seed     uint64
		strategy string
	}
	var jobs []job
	for _, fault := range s.Faults {
		for _, seed := range s.Seeds {
			for _, strategy := range s.Strategies {
				jobs = append(jobs, job{fault, seed, strategy})
			}
		}
	}
	runs := make([]Run, len(jobs))
	next := make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex // guards done and progress
	done := 0
	for range max(1, s.Workers) {
		wg.Go(func() {
			for i := range next {
				j := jobs[i]
				runs[i] = s.run(j.seed, j.fault, j.strategy, clock)
				mu.Lock()
				done++
				if progress != nil {
					progress(done, len(jobs))
				}
				mu.Unlock()
			}
		})
	}
	var err error
feed:
	for i := range jobs {
		select {
		case next <- i:
		case <-ctx.Done():
			err = fmt.Errorf("stopped after %d of %d runs: %w", i, len(jobs), context.Cause(ctx))
			break feed
		}
	}
	close(next)
	wg.Wait()
	return runs, err
}

// start is when every simulation begins: a fixed time, so that runs repeat.
const start = trace.Nanos(1_700_000_000_000_000_000)

// game is one run while it is played.
type game struct {
	Run
	app      *sim.App
	core     *engine.Core
	clock    func() time.Time
	epoch    time.Duration
	injected bool
	ever     map[trace.Symbol]bool
	raised   map[string]bool // problems seen, by identity

	everything map[trace.Symbol]bool // what can be switched on
}

func (s *Simulation) run(seed uint64, fault sim.Fault, strategy string, clock func() time.Time) Run {
	config := s.App
	config.Seed, config.Fault = seed, fault
	app := sim.New(config)
	options := s.Engine
	options.Strategy, options.Strategies, options.Seed = strategy, yardstick.Strategies(), seed
	g := &game{
		Run: Run{Seed: seed, Fault: fault, Strategy: strategy},
		app: app, core: engine.NewCore(app.Table(), options), clock: clock, epoch: options.Epoch,
		ever: make(map[trace.Symbol]bool), raised: make(map[string]bool),
		everything: make(map[trace.Symbol]bool),
	}
	g.core.Announce(start, app.Catalogue())
	for _, tp := range app.Catalogue() {
		g.everything[tp.ID] = !tp.Baseline
	}
	now := g.play(start, start.Add(options.Learning))
	g.Decide = 0 // what ends the learning is no decision
	healthy := now.Add(s.Healthy)
	now = g.play(now, healthy)
	g.inject(now, s.Epochs)
	if g.injected && !g.Locatable && !g.Significant {
		return g.Run // nothing is to be found, and no rate counts it
	}
	for epoch := 1; epoch <= s.Epochs && !g.Raised; epoch++ {
		now = g.play(now, now.Add(g.epoch))
		g.Detected = epoch
	}
	for g.Raised && g.Epochs < s.Epochs && !g.answered() {
		now = g.play(now, now.Add(g.epoch))
		g.Epochs++
	}
	g.score()
	return g.Run
}

// What makes a fault locatable: on the critical path of some request type, where it adds matters of the healthy mean duration, and
// more than three standard errors of what noticeable of traffic tells. Less is lost in what latencies do from one minute to the next.
const (
	noticeable = 2 * time.Minute
	matters    = 0.1
)

func locatable(e sim.Effect) bool {
	return e.Locatable && slices.ContainsFunc(e.Types, func(t sim.TypeEffect) bool {
		return t.OnPath > 0 && t.Mean > 3*t.Sigma && float64(t.Mean) >= matters*float64(t.Healthy)
	})
}

// inject begins the fault, after fixing whether it can be located at all.
func (g *game) inject(now trace.Nanos, epochs int) {
	g.Target = g.app.Target().Text
	g.Significant = g.app.Fork().Effect(now, now.Add(time.Duration(epochs)*g.epoch)).Locatable
	g.Locatable = locatable(g.app.Fork().Effect(now, now.Add(noticeable)))
	g.injected = g.Fault != sim.None
	if g.injected {
		g.app.Inject(now)
	}
}

// play plays whole epochs from one time to another and returns that time.
func (g *game) play(from, to trace.Nanos) trace.Nanos {
	for ; from < to; from = from.Add(g.epoch) {
		plan := g.plan()
		for t := range g.app.Requests(from, from.Add(g.epoch), plan) {
			g.core.Ingest(t)
			g.count(t)
		}
		began := g.clock()
		g.core.Epoch(from.Add(g.epoch))
		g.Decide = max(g.Decide, g.clock().Sub(began))
		g.alarms()
	}
	return to
}

// plan translates the engine's plan for the simulated agents.
func (g *game) plan() *sim.Plan {
	p := g.core.Plan()
	plan := &sim.Plan{Version: p.Version}
	on := make(map[trace.Symbol]bool)
	for i, a := range p.Arms {
		arm := sim.Arm{Name: a.Name, Share: a.Share, On: make(map[trace.Symbol]bool)}
		if a.Everything {
			arm.On = g.everything
		}
		for _, l := range p.Leases {
			if int(l.Arm) == i {
				arm.On[l.Tracepoint] = true
				on[l.Tracepoint], g.ever[l.Tracepoint] = true, true
			}
		}
		plan.Arms = append(plan.Arms, arm)
	}
	g.Peak = max(g.Peak, len(on))
	return plan
}

func (g *game) count(t *trace.Trace) {
	if !g.injected && g.Fault != sim.None {
		return
	}
	g.Requests++
	hits := 0
	for i := range t.Spans {
		if t.Spans[i].Tracepoint != 0 {
			hits++
		}
	}
	g.SpanHits += hits
	if slices.ContainsFunc(t.Attrs, func(a trace.Attr) bool { return a.Key == keyArm && a.Text == exploring }) {
		g.ExploreHits += hits
	}
}

var keyArm, exploring = trace.SymbolOf([]byte(trace.KeyArm)), trace.SymbolOf([]byte(search.ExploreArm))

// alarms counts the problems that are new, as false where there is no fault yet.
func (g *game) alarms() {
	for i := range g.core.Problems() {
		id := g.core.Problems()[i].ID.String()
		if g.raised[id] {
			continue
		}
		g.raised[id] = true
		if g.injected {
			g.Raised = true
		} else {
			g.FalseAlarms++
		}
	}
	if !g.injected {
		g.GroupHours += float64(g.core.Watched()) * g.epoch.Hours()
	}
}

// answered reports whether the engine has located a cause, or come to a conclusion about everything that it investigates.
func (g *game) answered() bool {
	v := Answer(g.core)
	return v != nil && v.Status >= search.Located
}

// score compares the answer with the truth.
func (g *game) score() {
	executed := g.app.Executed()
	g.Executed = len(executed)
	for tp := range g.ever {
		if executed[tp] {
			g.Enabled++
		}
	}
	v := Answer(g.core)
	if v == nil {
		return
	}
	g.Status = v.Status.String()
	target := g.app.Target()
	for i, s := range v.Ranking() {
		if i == 0 {
			g.Answer = g.app.Table().ServiceName(s.Op) + " " + g.app.Table().OpName(s.Op)
		}
		if slices.Contains(target.Operations, s.Op) || s.Tracepoint != 0 && slices.Contains(target.Tracepoints, s.Tracepoint) {
			g.Rank = i + 1
			return
		}
	}
}
