package eval

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/bench/eval/yardstick"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/testkit/sim"
	"github.com/sibyl-trace/sibyl/internal/testkit/simplan"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Simulation configures the runs. Every combination of seed, fault and strategy is one run.
type Simulation struct {
	Seeds      []uint64
	Faults     []sim.Fault
	Strategies []string
	App        sim.Config     // Seed and Fault are set by the run
	Engine     engine.Options // Strategy and Seed are set by the run
	Healthy    time.Duration  // after the learning period, before the fault; default one minute
	Epochs     int            // maximum epochs until a problem is raised, and again from then on; default 36
	Workers    int            // runs at the same time; default 1
}

// Run is the result of one simulated fault.
type Run struct {
	Seed        uint64    `json:"seed"`
	Fault       sim.Fault `json:"fault"`
	Strategy    string    `json:"strategy"`
	Target      string    `json:"target"`      // location of the fault, for people
	Locatable   bool      `json:"locatable"`   // determined before the run from the full traces, see minEffect
	Significant bool      `json:"significant"` // a weaker claim: any effect of three standard errors over the whole run

	Raised      bool    `json:"raised"`       // a problem or an incident was raised after the fault started
	Status      string  `json:"status"`       // of the investigation with the answer; empty without an investigation
	Rank        int     `json:"rank"`         // of the first correct suspect, from 1; 0 if no suspect is correct
	Answer      string  `json:"answer"`       // the first suspect
	Detected    int     `json:"detected"`     // epochs from the fault to the first problem, or to the end of the run
	Epochs      int     `json:"epochs"`       // from the first problem to the answer, or to the end of the run
	Executed    int     `json:"executed"`     // tracepoints that requests executed, enabled or not
	Enabled     int     `json:"enabled"`      // of these, ever enabled
	Peak        int     `json:"peak"`         // of these, enabled at the same time
	SpanHits    int     `json:"span_hits"`    // spans of enabled tracepoints
	Requests    int     `json:"requests"`     // since the fault started
	FalseAlarms int     `json:"false_alarms"` // problems raised without a fault
	GroupHours  float64 `json:"group_hours"`  // during which false alarms were counted
	// FalseIncidents is the number of incidents without a fault, and Watched the time in which they could have opened.
	FalseIncidents int           `json:"false_incidents"`
	Watched        float64       `json:"watched_hours"`
	Decide         time.Duration `json:"decide_ns"` // longest time to end an epoch
}

// Simulate executes all runs and returns the results in the order of faults, seeds and strategies. It calls progress
// after each run, unless that is nil. If ctx ends, it returns an error, and only some of the results are set.
func Simulate(ctx context.Context, s Simulation, clock func() time.Time, progress func(done, all int)) ([]Run, error) {
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

// start is the start of every simulation. It is fixed so that runs repeat.
const start = trace.Nanos(1_700_000_000_000_000_000)

// simulatedRun is a run in progress.
type simulatedRun struct {
	Run
	app      *sim.App
	core     *engine.Core
	clock    func() time.Time
	epoch    time.Duration
	injected bool
	ever     map[trace.Symbol]bool
	raised   map[string]bool // problems, by identity
	opened   map[uint64]bool // incidents
}

func (s *Simulation) run(seed uint64, fault sim.Fault, strategy string, clock func() time.Time) Run {
	config := s.App
	config.Seed, config.Fault = seed, fault
	app := sim.New(config)
	options := s.Engine
	options.Strategy, options.Strategies, options.Seed = strategy, yardstick.Strategies(), seed
	r := &simulatedRun{
		Run: Run{Seed: seed, Fault: fault, Strategy: strategy},
		app: app, core: engine.NewCore(app.Table(), options), clock: clock, epoch: options.Epoch,
		ever: make(map[trace.Symbol]bool), raised: make(map[string]bool), opened: make(map[uint64]bool),
	}
	r.core.Announce(start, app.Catalogue())
	now := r.advance(start, start.Add(options.Learning))
	r.Decide = 0 // the end of learning is not a decision
	healthy := now.Add(s.Healthy)
	now = r.advance(now, healthy)
	r.inject(now, s.Epochs)
	if r.injected && !r.Locatable && !r.Significant {
		return r.Run // the fault cannot be found, so no rate counts it
	}
	for epoch := 1; epoch <= s.Epochs && !r.Raised; epoch++ {
		now = r.advance(now, now.Add(r.epoch))
		r.Detected = epoch
	}
	for r.Raised && r.Epochs < s.Epochs && !r.answered() {
		now = r.advance(now, now.Add(r.epoch))
		r.Epochs++
	}
	r.score()
	return r.Run
}

// A fault is locatable if it lies on the critical path of some request type and increases its mean duration noticeably:
// by at least minEffect, a fraction of the healthy mean, and by more than three standard errors of the mean over
// effectPeriod. Smaller effects are lost in the usual variation of latencies from minute to minute.
const (
	effectPeriod = 2 * time.Minute
	minEffect    = 0.1
)

func locatable(e sim.Effect) bool {
	return e.Locatable && slices.ContainsFunc(e.Types, func(t sim.TypeEffect) bool {
		return t.OnPath > 0 && t.Mean > 3*t.Sigma && float64(t.Mean) >= minEffect*float64(t.Healthy)
	})
}

// inject determines whether the fault can be located, and injects it.
func (r *simulatedRun) inject(now trace.Nanos, epochs int) {
	r.Target = r.app.Target().Text
	r.Significant = r.app.Fork().Effect(now, now.Add(time.Duration(epochs)*r.epoch)).Locatable
	r.Locatable = locatable(r.app.Fork().Effect(now, now.Add(effectPeriod)))
	r.injected = r.Fault != sim.None
	if r.injected {
		r.app.Inject(now)
	}
}

// advance executes the epochs between from and to, and returns to.
func (r *simulatedRun) advance(from, to trace.Nanos) trace.Nanos {
	for ; from < to; from = from.Add(r.epoch) {
		plan := r.plan()
		for t := range r.app.Requests(from, from.Add(r.epoch), plan) {
			r.core.Ingest(t)
			r.count(t)
		}
		began := r.clock()
		r.core.Epoch(from.Add(r.epoch))
		r.Decide = max(r.Decide, r.clock().Sub(began))
		r.alarms()
	}
	return to
}

// plan returns the engine's plan for the application.
func (r *simulatedRun) plan() *sim.Plan {
	p := r.core.View().Searches.Plan()
	enabled := make(map[trace.Symbol]bool)
	for _, l := range p.Leases {
		enabled[l.Tracepoint], r.ever[l.Tracepoint] = true, true
	}
	r.Peak = max(r.Peak, len(enabled))
	return simplan.Of(p)
}

func (r *simulatedRun) count(t *trace.Trace) {
	if !r.injected && r.Fault != sim.None {
		return
	}
	r.Requests++
	hits := 0
	for i := range t.Spans {
		if t.Spans[i].Tracepoint != 0 {
			hits++
		}
	}
	r.SpanHits += hits
}

// alarms counts new problems and incidents. They are false before the fault.
func (r *simulatedRun) alarms() {
	view := r.core.View()
	for _, p := range view.Problems.Open() {
		id := p.ID.String()
		if r.raised[id] {
			continue
		}
		r.raised[id] = true
		if r.injected {
			r.Raised = true
		} else {
			r.FalseAlarms++
		}
	}
	for _, x := range view.Incidents.All() {
		if r.opened[x.ID] {
			continue
		}
		r.opened[x.ID] = true
		if r.injected {
			r.Raised = true
		} else {
			r.FalseIncidents++
		}
	}
	if r.injected {
		return
	}
	r.GroupHours += float64(view.Watched()) * r.epoch.Hours()
	if view.Progress.Watching() {
		r.Watched += r.epoch.Hours()
	}
}

// answered reports whether the engine has located a cause or concluded all its investigations.
func (r *simulatedRun) answered() bool {
	v := Answer(r.core)
	return v != nil && v.Status >= search.Located
}

// score compares the answer with the truth.
func (r *simulatedRun) score() {
	executed := r.app.Executed()
	r.Executed = len(executed)
	for tp := range r.ever {
		if executed[tp] {
			r.Enabled++
		}
	}
	v := Answer(r.core)
	if v == nil {
		return
	}
	r.Status = v.Status.String()
	target := r.app.Target()
	for i, s := range v.Suspects {
		if i == 0 {
			r.Answer = r.app.Table().ServiceName(s.Op) + " " + r.app.Table().OpName(s.Op)
		}
		if slices.Contains(target.Operations, s.Op) ||
			s.Tracepoint != 0 && slices.Contains(target.Tracepoints, s.Tracepoint) {
			r.Rank = i + 1
			return
		}
	}
}
