package backtest

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/incident"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/assemble"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// Options configure a [Player]. They correspond to the configuration of the service.
type Options struct {
	Table    *trace.Table // names used in the traces; the engine adds contexts and edges
	Core     engine.Options
	Assembly assemble.OnlineOptions
}

// core is the part of [engine.Core] and its view that a Player uses, so that tests can replace it.
type core interface {
	Ingest(t *trace.Trace) (requests int)
	ObserveVersions(seen []engine.VersionSeen)
	Epoch(now trace.Nanos) []search.Decision
	Watching() bool
	Incidents() []engine.Incident
	AffectedTypes() []group.Summary
	Coverage() *trace.Coverage
}

// engineCore adapts a core of package engine.
type engineCore struct{ *engine.Core }

// Watching implements core.
func (c engineCore) Watching() bool { return c.View().Progress.Watching() }

// Incidents implements core.
func (c engineCore) Incidents() []engine.Incident { return c.View().Incidents.All() }

// AffectedTypes implements core.
func (c engineCore) AffectedTypes() []group.Summary { return c.View().AffectedTypes() }

// Coverage implements core.
func (c engineCore) Coverage() *trace.Coverage { return c.View().Coverage }

// longestGap is the maximum time without traces during which epochs still end. The rest of a longer gap is skipped, as
// if the service had been stopped.
const longestGap = 24 * time.Hour

// Player plays traces. Call [Player.Play] for each trace, then [Player.Finish]. It is not safe for concurrent use.
type Player struct {
	core      core
	open      *assemble.Online
	options   Options
	result    Result
	scorer    *scorer // nil if there are no labels
	incidents map[uint64]engine.Incident

	now      trace.Nanos // end of the latest trace
	epoch    trace.Nanos // end of the current epoch; 0 before the first
	played   uint64
	batch    ingest.Batch
	runs     [][]assemble.Run
	closed   assemble.Closed
	versions map[ingest.ServiceVersion]engine.VersionSeen // since the end of the last epoch
	version  trace.Symbol                                 // attribute key
}

// NewPlayer returns a Player that looks only for incidents. If labels is nil, the result has no score.
func NewPlayer(labels []Label, options Options) *Player {
	options.Core.IncidentsOnly = true
	// We don't look for chronic problems, because they are older than any incident and the search would take a sixth of
	// the time.
	options.Core.Watch.Chronic.CoV, options.Core.Watch.Chronic.Delayed = 0, 0
	return newPlayer(engineCore{engine.NewCore(options.Table, options.Core)}, labels, options)
}

func newPlayer(c core, labels []Label, options Options) *Player {
	p := &Player{
		core:      c,
		open:      assemble.NewOnline(options.Assembly),
		options:   options,
		result:    Result{Table: options.Table},
		incidents: make(map[uint64]engine.Incident),
		runs:      make([][]assemble.Run, 1),
		versions:  make(map[ingest.ServiceVersion]engine.VersionSeen),
		version:   trace.SymbolOf([]byte(versionKey)),
	}
	if labels != nil {
		p.scorer = newScorer(labels, options.Table)
	}
	return p
}

// versionKey is the key of the attribute that holds a service's version. The default configuration keeps this
// attribute.
const versionKey = "service.version"

// Play advances the time to the end of t and then adds t. The traces must be played in the order they end. Play doesn't
// retain t.
func (p *Player) Play(t *trace.Trace) {
	from, to := Extent(t)
	p.play(t, from, to)
}

// play is like Play, but with `from` and `to` as the start of the first span and the end of the last.
func (p *Player) play(t *trace.Trace, from, to trace.Nanos) {
	if len(t.Spans) == 0 {
		return
	}
	if p.played == 0 {
		p.result.From = from
		p.epoch = p.endOfEpoch(to)
	}
	p.played++
	p.result.Traces++
	p.result.From, p.result.To = min(p.result.From, from), max(p.result.To, to)
	p.pass(max(p.now, to))
	p.add(t)
	p.ingest(p.now)
}

// endOfEpoch returns the end of the epoch that contains `at`. Epochs end at multiples of their length, as in the
// service.
func (p *Player) endOfEpoch(at trace.Nanos) trace.Nanos {
	length := trace.Nanos(p.options.Core.Epoch)
	return at/length*length + length
}

// pass advances the time to `to` and ends the epochs that are over by then.
func (p *Player) pass(to trace.Nanos) {
	last := min(to, p.now.Add(longestGap))
	if p.now == 0 {
		last = to
	}
	for p.epoch <= last {
		p.endEpoch(p.epoch)
		p.epoch = p.epoch.Add(p.options.Core.Epoch)
	}
	if p.epoch <= to { // skip the rest of the gap
		p.epoch = p.endOfEpoch(to)
		p.endEpoch(p.epoch.Add(-p.options.Core.Epoch))
	}
	p.now = to
	p.ingest(to)
}

// endEpoch ends the current epoch at time `at`.
func (p *Player) endEpoch(at trace.Nanos) {
	p.ingest(at)
	p.core.ObserveVersions(slices.Collect(maps.Values(p.versions)))
	clear(p.versions)
	p.core.Epoch(at)
	if p.result.Learned == 0 && p.core.Watching() {
		p.result.Learned = at
	}
	p.follow(at, p.core.Incidents())
	if p.scorer != nil {
		p.scorer.epoch(at, p.incidents)
	}
}

// follow records the current incidents as of `at`, the end of an epoch. An open incident that is no longer in current
// was merged into another, so follow marks it as merged.
func (p *Player) follow(at trace.Nanos, current []engine.Incident) {
	listed := make(map[uint64]bool, len(current))
	for _, x := range current {
		x.Suspects, x.Types, x.Problems = slices.Clone(x.Suspects), slices.Clone(x.Types), slices.Clone(x.Problems)
		p.incidents[x.ID] = x
		listed[x.ID] = true
	}
	for id, x := range p.incidents {
		if x.IsOpen() && !listed[id] {
			x.Enter(incident.Transition{At: at, State: incident.Merged, Why: incident.SameCause})
			p.incidents[id] = x
		}
	}
}

// Incidents returns the incidents so far, in any order, as of the end of the latest epoch. The result is the player's
// own map, which the next call to [Player.Play] changes.
func (p *Player) Incidents() map[uint64]engine.Incident { return p.incidents }

// add adds the spans of t to the open traces.
func (p *Player) add(t *trace.Trace) {
	p.batch.Reset()
	p.batch.Spans = append(p.batch.Spans, t.Spans...)
	p.batch.Attrs = append(p.batch.Attrs, t.Attrs...)
	p.batch.Joins = append(p.batch.Joins, t.Joins...)
	for range t.Spans {
		p.batch.Traces = append(p.batch.Traces, t.ID)
	}
	for i := range t.Attrs {
		if a := &t.Attrs[i]; a.Key == p.version && !a.Numeric && a.Text != 0 {
			p.seeVersion(ingest.ServiceVersion{Service: t.Spans[a.Span].Service, Version: a.Text})
		}
	}
	p.runs[0] = p.runs[0][:0]
	assemble.Runs(&p.batch, p.runs)
	for _, r := range p.runs[0] {
		p.open.Add(p.now, p.played, &p.batch, r)
		p.ingest(p.now)
	}
}

// seeVersion records that v arrived now.
func (p *Player) seeVersion(v ingest.ServiceVersion) {
	seen, known := p.versions[v]
	if !known {
		seen = engine.VersionSeen{ServiceVersion: v, First: p.now}
	}
	seen.Last = p.now
	p.versions[v] = seen
}

// Now returns the time that p has reached.
func (p *Player) Now() trace.Nanos { return p.now }

// ingest passes to the core the settled traces that are due, as the service does. It only counts the spans of other
// traces that are due.
func (p *Player) ingest(now trace.Nanos) {
	for p.open.Next(now, &p.closed) {
		if p.closed.Reason.Settled() {
			p.core.Ingest(&p.closed.Trace)
			continue
		}
		p.closed.Leave(&p.result.Coverage)
	}
}

// Finish closes the open traces, ends the last epoch, and returns the result.
func (p *Player) Finish() *Result {
	if p.played > 0 {
		p.pass(p.endOfEpoch(p.now.Add(p.options.Assembly.Idle)))
	}
	r := &p.result
	r.Coverage.Merge(p.core.Coverage())
	p.open.Account(&r.Coverage)
	r.Incidents = make([]engine.Incident, 0, len(p.incidents))
	for _, x := range p.incidents {
		r.Incidents = append(r.Incidents, x)
	}
	sorting.Slice(r.Incidents, byOpening)
	r.Types = p.core.AffectedTypes()
	if p.scorer != nil {
		r.Score = p.scorer.score(r)
	}
	return r
}

func byOpening(a, b engine.Incident) int {
	return cmp.Or(cmp.Compare(a.Opened(), b.Opened()), cmp.Compare(a.ID, b.ID))
}
