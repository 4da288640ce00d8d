// Package engine contains the core of the running service. A [Core] takes requests and ends epochs: it groups requests,
// detects and explains problems, learns calling-context trees, and decides which tracepoints to enable. Its state can
// be saved and restored. Its decisions depend on the requests, times and changes that it was given, and on nothing
// else.
package engine

import (
	"math"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/compare"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/engine/spool"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure a [Core]. Start from [DefaultOptions].
type Options struct {
	Path     critpath.Options
	Groups   group.Options
	Watch    detect.WatchOptions
	Learning time.Duration // from the first request; requests in this time count as healthy
	Epoch    time.Duration // between two decisions
	Budget   search.Budget
	Strategy string // the name of a published strategy or one of Strategies; empty: the default
	Seed     uint64
	Rules    group.Rules
	// Retention is the time after its last request after which a group is deleted, and the time after which a closed
	// incident is deleted, if it is longer than a day; 0: only when there is no room.
	Retention time.Duration
	Explore   float64 // share of the requests that have all tracepoints enabled, see search.Input; 0: none
	// IncidentsOnly leaves out everything that incidents do not depend on: the percentiles of spans, calling-context
	// trees, explanations of problems, and the search. There are no decisions.
	IncidentsOnly bool

	Objectives []incident.Objective
	Gates      incident.Gates // zero: [incident.DefaultGates]

	// NamesAge is the time after which names that nothing mentions are deleted although there is room for more; 0: a
	// day.
	NamesAge time.Duration

	// Strategies are further strategies that Strategy may name, for evaluation.
	Strategies []search.Strategy
}

// DefaultOptions returns options that learn for five minutes and decide every ten seconds.
func DefaultOptions() Options {
	return Options{
		Path: critpath.DefaultOptions(), Watch: detect.DefaultWatchOptions(),
		Learning: 5 * time.Minute, Epoch: 10 * time.Second, Gates: incident.DefaultGates(),
	}
}

// SeeThrough adds services to [critpath.Options.SeeThrough].
func (o *Options) SeeThrough(services ...string) {
	for _, service := range services {
		o.Path.SeeThrough = append(o.Path.SeeThrough, trace.SymbolOf([]byte(service)))
	}
}

// Core is the loop from closed traces to decisions. It has no clock or I/O: time is an argument, and its goroutines end
// with the call that starts them. Equal requests and times give equal decisions, whatever the order of the requests of
// an epoch. It is not safe for concurrent use.
type Core struct {
	options   Options
	table     *trace.Table
	extractor *critpath.Extractor
	learning  learning
	observer  observation.Observer
	scratch   observation.Observation
	simulated critpath.Simulation // scratch

	types       *group.RequestTypes
	detector    *detect.Detector
	trees       Trees
	offers      offers
	log         actionLog
	versions    versions
	spans       observation.RecentSpans
	coverage    trace.Coverage // of the traces ingested
	tally       *history.Tally // of the traces ingested in this epoch
	sites       *compare.Comparer
	cases       cases
	objectives  *incident.Objectives
	request     incident.Request // scratch
	strategy    search.Strategy  // named by options.Strategy
	state       search.State
	problems    []detect.Problem
	refinements map[analysis.Hash]*refinements // by group, or request type, of an open problem
	searches    searches
	causes      *causes
	kept        *kept
	series      seriesSet
	plans       plans

	onLearned func(requestType, group *group.Group, o *observation.Observation) // nil: none
	encoded   int                                                               // bytes of the last encoding
	forgotten trace.Nanos                                                       // time of the last deletion of names since the start of the process; 0: none
}

// NewCore returns a Core that takes names from table and adds contexts and edges to it. It panics if no strategy has
// the name in options; see [Options.CheckStrategy].
func NewCore(table *trace.Table, options Options) *Core {
	strategy, err := StrategyNamed(options.Strategy, options.Strategies)
	if err != nil {
		panic("engine: " + err.Error())
	}
	types := &group.RequestTypes{Rules: group.NewRuleSet(options.Rules, table)}
	c := &Core{
		options:     options,
		table:       table,
		extractor:   critpath.NewExtractor(options.Path),
		types:       types,
		detector:    detect.New(group.NewGrouper(types, table, options.Groups)),
		offers:      newOffers(table),
		refinements: make(map[analysis.Hash]*refinements),
		tally:       history.NewTally(),
		sites:       compare.NewComparer(history.NewSites(table)),
		objectives:  incident.NewObjectives(table),
		causes:      newCauses(),
		kept:        newKept(),
		versions:    newVersions(),
		strategy:    strategy,
		learning: learning{
			epoch:    options.Epoch,
			requests: spool.New("", math.MaxInt), // never to disk
			preview:  detect.New(group.NewGrouper(types, table, options.Groups)),
		},
	}
	c.trees = Trees{table: table, offers: &c.offers, byType: make(map[analysis.Hash]*tree)}
	c.plans = plans{offers: &c.offers, all: []plan{{}}}
	c.searches = searches{table: table, trees: &c.trees, plans: &c.plans}
	c.cases = cases{table: table, objectives: c.objectives, tracker: incident.NewTracker()}
	c.watchObjectives()
	return c
}

// Coverage returns what became of the spans of the traces ingested. It belongs to c.
func (c *Core) Coverage() *trace.Coverage { return &c.coverage }

// Ingest takes a closed trace and returns the number of requests in it. Unusable roots change the history of sites
// only.
func (c *Core) Ingest(t *trace.Trace) (requests int) {
	p := c.extractor.Extract(t)
	p.Cover(&c.coverage)
	c.tally.Observe(p)
	if !c.options.IncidentsOnly {
		c.spans.Observe(p, 0)
	}
	for i := range p.Roots {
		if p.Unusable(i) == "" {
			c.observer.Observe(p, i, &c.scratch)
			c.simulated.Capture(p, i)
			c.Observe(&c.scratch, &c.simulated)
			requests++
		}
	}
	return requests
}

// ObserveSpans takes the durations of the spans of closed traces. The requests of these are passed to Observe. It keeps
// nothing of t.
func (c *Core) ObserveSpans(t *observation.SpanTally) { c.spans.Merge(t) }

// ObserveSites takes the calls of closed traces, also of incomplete ones. It keeps nothing of t.
func (c *Core) ObserveSites(t *history.Tally) { c.sites.Merge(t) }

// Observe takes one request, with its simulation or nil, and returns its request type and group. Either is nil if there
// is no room for it, or if the request enters no statistics. Observe keeps nothing of its arguments.
func (c *Core) Observe(o *observation.Observation, simulation *critpath.Simulation) (requestType, group *group.Group) {
	c.observeObjectives(o)
	if !c.learning.over {
		return c.learning.observe(o)
	}
	if c.plans.arm(o).everything {
		if len(o.Behind) == 0 {
			c.detector.Groups.Aliases.Apply(o, c.table)
			c.observeExplored(o)
		}
		return nil, nil
	}
	requestType, group = c.detector.Groups.Observe(o)
	if requestType == nil {
		return nil, nil // the grouper counts it
	}
	if !c.options.IncidentsOnly {
		c.investigate(requestType, group, o, simulation)
	}
	return requestType, group
}

// investigate takes a request for the explanation of problems and the search. Group may be nil.
func (c *Core) investigate(requestType, group *group.Group, o *observation.Observation, simulation *critpath.Simulation) {
	c.observeTree(requestType.ID, o)
	c.kept.observe(requestType, group, o)
	c.causes.arrive(requestType.ID, o)
	c.refine(requestType.ID, o, simulation, true)
	c.searches.observe(requestType.ID, o)
	if group != nil {
		c.refine(group.ID, o, simulation, false)
	}
}

// observeTree adds the contexts of a request to the tree of its type.
func (c *Core) observeTree(requestType analysis.Hash, o *observation.Observation) {
	a := c.plans.arm(o)
	x := cct.Observation{Seen: o.Start, On: a.on, Explore: a.everything, Contexts: ContextCounts(o)}
	if a.everything {
		x.Unhealthy = c.hasProblem(requestType)
		setPathTimes(o, x.Contexts)
	}
	c.trees.observe(requestType, x)
}

// ContextCounts returns the contexts of a request as package cct takes them.
func ContextCounts(o *observation.Observation) []cct.ContextCount {
	s := make([]cct.ContextCount, len(o.Contexts))
	for i := range o.Contexts {
		x := &o.Contexts[i]
		s[i] = cct.ContextCount{
			Context: x.Context, Parent: x.Parent, Op: x.Step(), Tracepoint: x.Tracepoint,
			Count: x.Count, Errors: x.Errors, Unanswered: x.Unanswered, Nanos: x.Total,
		}
	}
	return s
}

// Epoch ends an epoch at time now: it detects and explains problems and decides the next plan. It returns the
// decisions, each with its evidence.
func (c *Core) Epoch(now trace.Nanos) []search.Decision {
	c.spans.Rotate(now, c.healthySpans)
	c.versions.trim()
	unhealthy := c.cases.unhealthy()
	tracked := c.trackIncidents(now)
	if !c.learning.over {
		tracked.Wait()
		c.learning.endEpoch(now)
		if c.learning.elapsed(now, c.sites.Sites) < c.options.Learning {
			return c.decide(now, 0) // there are no problems yet, but overrides apply
		}
		c.learn(now)
	}
	if !c.options.IncidentsOnly {
		c.series.observe(c.detector.Groups)
	}
	c.detector.Unhealthy = unhealthy
	c.problems = c.detector.Watch(now, c.options.Watch)
	tracked.Wait()
	c.cases.follow(now, c.detector.Groups, c.problems)
	c.settle(now)
	if age := c.options.Retention; age > 0 {
		c.detector.Groups.Forget(now.Add(-age))
	}
	c.detector.Learn(now.Add(-c.options.Learning), c.options.Watch)
	if !c.options.IncidentsOnly {
		c.explainProblems(now)
	}
	return c.decide(now, c.options.Explore)
}

// healthySpans reports whether the spans of an operation in [from, to) belong to the history: no incident affects its
// service.
func (c *Core) healthySpans(op trace.Op, from, to trace.Nanos) bool {
	return !c.sites.Skips(c.table.Operation(op).Service, history.Interval{From: from, To: to})
}

// explainProblems ends an epoch of the trees and of the explanations of problems.
func (c *Core) explainProblems(now trace.Nanos) {
	known := func(id analysis.Hash) bool { return c.detector.Groups.Group(id) != nil }
	c.trees.age(now, known)
	c.kept.endEpoch(now, known)
	c.attachRefinements()
	c.causes.endEpoch()
	c.searches.follow(now, c.cases.tracker.Incidents(), c.detector.Groups)
	c.series.compare(len(c.problems) > 0)
	c.causes.explain(c.problems, &c.state, c.table, c.options.Seed)
}

// trackIncidents begins to end an epoch of the history of sites and of the incidents. Its work runs beside that on the
// groups of requests: they share the table only, which neither changes.
func (c *Core) trackIncidents(now trace.Nanos) *sync.WaitGroup {
	burns, arrives, tracked := c.burns(now), c.learning.arrives(now), &sync.WaitGroup{}
	c.mergeTally() // this and the next may add names to the table
	c.sites.JoinMessages(now)
	tracked.Go(func() {
		c.sites.Age(now)
		if arrives {
			return
		}
		c.cases.tracker.Step(now, c.sites, burns...)
		c.cases.forget(now, c.options.Retention)
	})
	return tracked
}

func (c *Core) mergeTally() {
	c.sites.Merge(c.tally)
	c.tally = history.NewTally()
}

// decide makes the next plan, in which a share of the requests explores: it has all tracepoints enabled. It returns the
// decisions.
func (c *Core) decide(now trace.Nanos, explore float64) []search.Decision {
	if c.options.IncidentsOnly {
		return nil
	}
	problems, taken := c.searchedProblems()
	unavailable, unproven, returning := c.offers.withdrawn(now)
	var decisions []search.Decision
	c.state, decisions = search.Next(search.Input{
		Now: now, Problems: problems, Taken: taken, Trees: c.builtTrees(), Joined: c.searches.joined(), Rates: c.rates(), State: c.state,
		Table: c.table, Budget: c.options.Budget, Strategy: c.strategy, Seed: c.options.Seed, Epoch: c.options.Epoch,
		Explore: explore, Arms: c.armTimes(), Pairs: c.pairShares(),
		Measured: c.offers.usage(c.state.Plan.Version, now, measuredEpochs*c.options.Epoch), Unavailable: unavailable, Unproven: unproven, Returning: returning,
	})
	decisions = append(decisions, c.logged(now)...)
	c.recordHistory(decisions)
	c.rememberPlaces(now)
	c.causes.restartSamples(decisions)
	c.plans.adopt(&c.state.Plan, now)
	return decisions
}

// Announce replaces the catalogues of all services.
func (c *Core) Announce(now trace.Nanos, catalogue []cct.Tracepoint) {
	c.offers.replace(now, catalogue)
	c.offered()
}

// offered takes a new catalogue.
func (c *Core) offered() {
	c.trees.outdate()
	c.causes.announce(c.offers.catalogue)
}

// Problems returns the open problems as of the last epoch, ranked.
func (c *Core) Problems() []detect.Problem { return c.problems }

// Plan returns the current plan.
func (c *Core) Plan() *search.Plan { return &c.state.Plan }

// State returns the state of the search.
func (c *Core) State() *search.State { return &c.state }

// builtTrees returns the trees of the request types with a problem or an incident. With a budget it returns the trees
// of all request types, since a tracepoint costs every type that runs it. Trees of types without a problem may be
// stale.
func (c *Core) builtTrees() map[analysis.Hash]*cct.Tree {
	trees := make(map[analysis.Hash]*cct.Tree)
	if c.options.Budget != (search.Budget{}) {
		for id, t := range c.trees.byType {
			if t.built == nil {
				c.trees.Of(id)
			}
			trees[id] = t.built
		}
	}
	add := func(id analysis.Hash) {
		if t := c.trees.Of(id); t != nil {
			trees[id] = t
		}
	}
	for i := range c.problems {
		add(c.problems[i].RequestType)
	}
	for _, s := range c.searches.list {
		for _, id := range s.types() {
			add(id)
		}
	}
	return trees
}

// rates returns the requests per second, in the judged windows, of the types in builtTrees.
func (c *Core) rates() map[analysis.Hash]float64 {
	rates := make(map[analysis.Hash]float64)
	for id := range c.builtTrees() {
		if c.detector.Groups.Group(id) != nil {
			rates[id] = c.Rate(id)
		}
	}
	return rates
}

// Watched returns the number of groups and request types with an expectation.
func (c *Core) Watched() int { return c.detector.Watched() }
