// Package engine contains the core of the running service. A [Core] takes requests and ends epochs: it groups requests,
// detects and explains problems, learns calling-context trees, and decides which tracepoints to enable. Its state can
// be saved and restored. Its decisions depend only on the requests, times and changes passed to it.
package engine

import (
	"math"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
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
	Path   critpath.Options
	Groups group.Options
	Watch  detect.WatchOptions
	// Learning is the length of the learning period, which starts at the first request. Requests in this period count
	// as healthy.
	Learning time.Duration
	// Sites is the maximum number of call sites watched for incidents; see [history.Sites].
	Sites int
	// Tracepoints is the maximum number of tracepoints in the catalogues of all agents; 0 means no limit. Further
	// tracepoints of an agent are ignored.
	Tracepoints int
	// Contexts is the maximum number of calling contexts in all trees together and, separately, of nodes in their
	// cached builds; 0 means no limit.
	Contexts int
	// Operations is the maximum number of operations with span percentiles, at most [observation.MaxSpanOps]. 0 means
	// [observation.MaxSpanOps].
	Operations int
	// Kept is the approximate number of requests that are kept for comparisons.
	Kept int
	// EarlyBytes limits the memory for requests of the learning period, in bytes. A request takes about 200 bytes.
	EarlyBytes int
	Epoch      time.Duration // length of an epoch, the time between two decisions
	Budget     search.Budget
	Strategy   string // name of a published strategy or of one in Strategies; empty for the default
	Seed       uint64
	Rules      group.Rules
	// Retention is the maximum age of groups without requests. Closed incidents are kept just as long, but at least a
	// day. If Retention is 0, groups and incidents are deleted only to make room.
	Retention time.Duration
	// IncidentsOnly switches off everything that incidents don't depend on: span percentiles, calling-context trees,
	// explanations of problems, and the search. No decisions are made.
	IncidentsOnly bool

	Objectives []incident.Objective
	Gates      incident.Gates // the zero value means [incident.DefaultGates]

	// NamesAge is the interval at which unused names are deleted even if there is room for more. 0 means a day.
	NamesAge time.Duration

	// Strategies are additional strategies that Strategy may name. Only evaluations set this field.
	Strategies []search.Strategy
}

// DefaultOptions returns options with a learning period of five minutes and epochs of ten seconds.
func DefaultOptions() Options {
	return Options{
		Path:       critpath.DefaultOptions(),
		Watch:      detect.DefaultWatchOptions(),
		Learning:   5 * time.Minute,
		Kept:       8192,
		EarlyBytes: 256 << 20,
		Epoch:      10 * time.Second,
		Gates:      incident.DefaultGates(),
	}
}

// SeeThrough adds services to [critpath.Options.SeeThrough].
func (o *Options) SeeThrough(services ...string) {
	for _, service := range services {
		o.Path.SeeThrough = append(o.Path.SeeThrough, trace.SymbolOf([]byte(service)))
	}
}

// Core turns closed traces into decisions: it takes traces and changes, ends epochs, and saves and restores its state.
// Each part of a Core owns its state and its section of the saved state. [Core.View] returns the parts that can be
// read.
//
// A Core has no clock and does no I/O. Time is an argument, and goroutines don't outlive the call that starts them.
// Equal requests and times give equal decisions, whatever the order of requests within an epoch. A Core is not safe for
// concurrent use.
type Core struct {
	options   Options
	table     *trace.Table
	extractor *critpath.Extractor
	observer  observation.Observer
	scratch   observation.Observation
	simulated critpath.Simulation // scratch

	coverage    trace.Coverage // of the traces ingested
	learning    learning
	types       *group.RequestTypes
	detector    *detect.Detector
	spans       observation.RecentSpans
	calls       calls
	objectives  objectives
	incidents   *Incidents
	problems    *Problems
	trees       *Trees
	series      seriesSet
	kept        *Kept
	searches    *Searches
	plans       *plans
	offers      *Offers
	versions    versions
	annotations *annotations
	log         actionLog

	onLearned func(requestType, group *group.Group, o *observation.Observation) // may be nil
	encoded   int                                                               // size of the last encoding in bytes
	// time when names were last deleted or, if they never were, of the first call to RenewNames; 0 before that
	forgotten trace.Nanos
}

// NewCore returns a Core that looks up names in table and adds contexts and edges to it. It panics if options.Strategy
// is unknown; see [Options.CheckStrategy].
func NewCore(table *trace.Table, options Options) *Core {
	strategy, err := StrategyNamed(options.Strategy, options.Strategies)
	if err != nil {
		panic("engine: " + err.Error())
	}
	types := &group.RequestTypes{Rules: group.NewRuleSet(options.Rules, table), Limit: options.Groups.Groups}
	c := &Core{
		options:    options,
		table:      table,
		extractor:  critpath.NewExtractor(options.Path),
		types:      types,
		detector:   detect.New(group.NewGrouper(types, table, options.Groups)),
		calls:      newCalls(history.NewSites(table)),
		objectives: objectives{Objectives: incident.NewObjectives(table), table: table},
		offers:     newOffers(table, options.Tracepoints),
		learning: learning{
			epoch:    options.Epoch,
			limit:    options.EarlyBytes,
			requests: spool.New("", math.MaxInt), // in memory only
			preview:  detect.New(group.NewGrouper(types, table, options.Groups)),
		},
	}
	c.annotations = &annotations{table: table}
	c.versions = newVersions(c.annotations)
	c.calls.Limit = options.Sites
	c.spans.Limit = options.Operations
	c.trees = newTrees(table, c.offers, options.Contexts)
	c.plans = &plans{offers: c.offers, all: []plan{{}}}
	c.problems = newProblems(c.plans)
	c.kept = newKept(table, c.problems, options.Kept)
	c.incidents = &Incidents{table: table, objectives: c.objectives.Objectives, tracker: incident.NewTracker()}
	c.incidents.watch(options.Objectives, options.Gates)
	c.searches = &Searches{
		table:     table,
		trees:     c.trees,
		plans:     c.plans,
		problems:  c.problems,
		incidents: c.incidents,
		strategy:  strategy,
	}
	return c
}

// groups returns the groups, or the provisional groups during the learning period.
func (c *Core) groups() *group.Grouper {
	if !c.learning.over {
		return c.learning.preview.Groups
	}
	return c.detector.Groups
}

// OnLearned registers f to be called for each request of the learning period when that period ends. f receives the
// final request type and group, either of which may be nil; Observe returned provisional ones. f must not retain its
// arguments.
func (c *Core) OnLearned(f func(requestType, group *group.Group, o *observation.Observation)) {
	c.onLearned = f
}

// Ingest adds a closed trace to the statistics and returns the number of requests in it. Unusable roots don't count as
// requests, but their spans and calls are added to the history.
func (c *Core) Ingest(t *trace.Trace) (requests int) {
	p := c.extractor.Extract(t)
	p.Cover(&c.coverage)
	c.calls.tally.Observe(p)
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

// ObserveSpans adds the span durations of closed traces. Pass the requests in these traces to Observe separately. It
// doesn't retain t.
func (c *Core) ObserveSpans(t *observation.SpanTally) { c.spans.Merge(t) }

// ObserveSites adds the calls in closed traces, including incomplete traces. It doesn't retain t.
func (c *Core) ObserveSites(t *history.Tally) { c.calls.Merge(t) }

// ObserveVersions adds the versions of services seen since the last call. seen must not contain duplicates but may have
// any order; ObserveVersions sorts it. A new version counts as a deploy if it appears after the learning period or, in
// a recorded past, at least that long after the first known version of any service. The first known version of a
// service never counts.
func (c *Core) ObserveVersions(seen []VersionSeen) {
	c.versions.observe(seen, c.learning.over, c.options.Learning)
}

// Observe adds one request and returns its request type and group. simulation may be nil. Either result is nil if there
// is no room for a new type or group, or if the request is excluded from the statistics. Observe doesn't retain its
// arguments.
func (c *Core) Observe(o *observation.Observation, simulation *critpath.Simulation) (requestType, group *group.Group) {
	c.objectives.observe(o)
	if !c.learning.over {
		return c.learning.observe(o)
	}
	requestType, group = c.detector.Groups.Observe(o)
	if requestType == nil {
		return nil, nil // the grouper counts it
	}
	if !c.options.IncidentsOnly {
		c.observeTree(requestType.ID, o)
		c.kept.observe(requestType, group, o)
		c.problems.observe(requestType, group, o, simulation)
		c.searches.observe(requestType.ID, o)
	}
	return requestType, group
}

// observeTree adds the contexts of o to the tree of its request type.
func (c *Core) observeTree(requestType analysis.Hash, o *observation.Observation) {
	on := c.plans.arm(o).on
	c.trees.observe(requestType, cct.Observation{Seen: o.Start, On: on, Contexts: ContextCounts(o)})
}

// ContextCounts converts the contexts of o to the form used by package cct, in the same order.
func ContextCounts(o *observation.Observation) []cct.ContextCount {
	s := make([]cct.ContextCount, len(o.Contexts))
	for i := range o.Contexts {
		x := &o.Contexts[i]
		s[i] = cct.ContextCount{
			Context:    x.Context,
			Parent:     x.Parent,
			Op:         x.Step(),
			Tracepoint: x.Tracepoint,
			Count:      x.Count,
			Errors:     x.Errors,
			Unanswered: x.Unanswered,
		}
	}
	return s
}

// Epoch ends an epoch at time now: it detects and explains problems and decides the next plan. It returns the
// decisions, each with its evidence.
func (c *Core) Epoch(now trace.Nanos) []search.Decision {
	c.spans.Rotate(now, c.calls.healthy)
	c.versions.trim()
	unhealthy := c.incidents.unhealthy()
	tracked := c.trackIncidents(now)
	if !c.learning.over {
		tracked.Wait()
		c.learning.endEpoch(now)
		if c.learning.elapsed(now, c.calls.Sites) < c.options.Learning {
			return c.decide(now) // no problems yet, but overrides apply
		}
		c.learn(now)
	}
	groups := c.detector.Groups
	if !c.options.IncidentsOnly {
		c.series.observe(groups)
	}
	c.detector.Unhealthy = unhealthy
	c.problems.open = c.detector.Watch(now, c.options.Watch)
	tracked.Wait()
	c.incidents.follow(now, groups, c.problems.open, c.calls.Requests.Long)
	c.log = append(c.log, c.problems.settle(c.detector, now, c.incidents.problems())...)
	if age := c.options.Retention; age > 0 {
		groups.Forget(now.Add(-age))
	}
	c.detector.Learn(now.Add(-c.options.Learning), c.options.Watch)
	if !c.options.IncidentsOnly {
		c.explainProblems(now)
	}
	return c.decide(now)
}

// trackIncidents ages the history of sites and advances the incidents by an epoch, in a new goroutine that runs in
// parallel with the work on request groups: both only read the table. The caller must wait on the result before it uses
// the incidents.
func (c *Core) trackIncidents(now trace.Nanos) *sync.WaitGroup {
	burns, arrives, tracked := c.objectives.burns(now, c.detector.Groups), c.learning.arrives(now), &sync.WaitGroup{}
	c.calls.flush() // not in the goroutine, because this call and the next may add names to the table
	c.calls.JoinMessages(now)
	tracked.Go(func() {
		c.calls.Age(now)
		if arrives {
			return
		}
		c.incidents.tracker.Step(now, c.calls.Comparer, burns...)
		c.incidents.forget(now, c.options.Retention)
	})
	return tracked
}

// explainProblems ends the epoch for the trees, the kept requests and the searches, and explains the open problems.
func (c *Core) explainProblems(now trace.Nanos) {
	known := func(id analysis.Hash) bool { return c.detector.Groups.Group(id) != nil }
	c.trees.age(now, known)
	c.kept.endEpoch(now, known)
	c.problems.attachRefinements(c.searches.strategy.UsesPairs)
	c.problems.causes.endEpoch()
	c.searches.follow(now, c.incidents.tracker.Incidents(), c.detector.Groups)
	c.series.compare(len(c.problems.open) > 0)
	c.problems.causes.explain(c.problems.open, &c.searches.state, c.table, c.options.Seed)
}

// decide makes the next plan and returns the decisions. It does nothing and returns nil if IncidentsOnly is set.
func (c *Core) decide(now trace.Nanos) []search.Decision {
	if c.options.IncidentsOnly {
		return nil
	}
	s := c.searches
	problems, taken := s.subjects()
	unavailable, unproven, returning := c.offers.withdrawn(now)
	trees := s.builtTrees(c.options.Budget)
	rates := make(map[analysis.Hash]float64, len(trees)) // in the judged windows
	for id := range trees {
		if g := c.detector.Groups.Group(id); g != nil {
			rates[id] = g.Rate()
		}
	}
	var decisions []search.Decision
	s.state, decisions = search.Next(search.Input{
		Now:         now,
		Problems:    problems,
		Taken:       taken,
		Trees:       trees,
		Rates:       rates,
		Table:       c.table,
		State:       s.state,
		Budget:      c.options.Budget,
		Measured:    c.offers.usage(s.state.Plan.Version, now, measuredEpochs*c.options.Epoch),
		Arms:        s.armTimes(),
		Unavailable: unavailable,
		Unproven:    unproven,
		Returning:   returning,
		Samples:     c.offers.samples,
		Strategy:    s.strategy,
		Seed:        c.options.Seed,
		Epoch:       c.options.Epoch,
	})
	decisions = append(decisions, c.log.decisions(now, s.state.Plan.Version, &c.options)...)
	s.recordHistory(decisions)
	s.rememberPlaces(now, c.calls.Comparer)
	c.problems.causes.restartSamples(decisions)
	c.plans.adopt(&s.state.Plan, now)
	return decisions
}

// Announce replaces the catalogues of all services with catalogue.
func (c *Core) Announce(now trace.Nanos, catalogue []cct.Tracepoint) {
	c.offers.replace(now, catalogue)
	c.offered()
}

// offered passes the new catalogue to the trees and the explanations.
func (c *Core) offered() {
	c.trees.outdate()
	c.problems.causes.announce(c.offers.Catalogue())
}

// NewlyKept returns the traces of the requests that have been added to [Kept] since the last call and whose journal
// records are known. The caller should store these traces with all their attributes, because an
// [observation.Observation] lacks them.
func (c *Core) NewlyKept() []Recorded { return c.kept.take() }
