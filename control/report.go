package control

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
)

// Report processes the status s of the agent identified by c. It ignores outcomes of tracepoints that are not in the
// agent's catalogue, because no plan enables them. The error is ErrUnknown, ErrConflict, ErrServices, ErrStarting or
// ErrTracepoints.
func (p *Plane) Report(c Caller, s *protocol.Status) error {
	c.Session = s.Session
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.lookup(c)
	if err != nil {
		return err
	}
	all := a.catalogue.content()
	outcomes := known(s.Tracepoints, all)
	if !p.fit(a, len(outcomes)) {
		return ErrTracepoints
	}
	plan := p.published.Load()
	a.usage = search.Usage{}
	if a.version == s.Version && s.Version > 0 {
		a.usage = usageBetween(plan, all, a.outcomes, outcomes, a.seen.Sub(a.reported))
	}
	a.version, a.hash, a.reported = s.Version, s.Hash, a.seen
	a.problem = cmp.Or(s.Error, firstFailure(s.Tracepoints, all))
	p.agents.setOutcomes(a, outcomes)
	p.addStacks(a, s.Stacks, all)
	a.on, a.failed = 0, 0
	if s.Version > 0 {
		a.on, a.failed = count(plan, outcomes)
	}
	p.counts.Statuses.Add(1)
	return nil
}

// fit reports whether there is room to replace the outcomes of a with n others. If not, it counts a refusal.
func (p *Plane) fit(a *agent, n int) bool {
	fits := p.agents.outcomes-len(a.outcomes)+n <= outcomesPerTracepoint*p.options.MaxTracepoints
	if !fits {
		p.counts.NoRoom.Add(1)
	}
	return fits
}

// count returns the number of tracepoints of plan that are applied according to outcomes, and the number that couldn't
// be enabled. It ignores other tracepoints, because agents also report tracepoints of earlier plans.
func count(plan *published, outcomes []report) (on, failed int) {
	for i := range outcomes {
		o := &outcomes[i]
		switch {
		case !plan.enables(o.id):
		case o.applied:
			on++
		default:
			failed++
		}
	}
	return on, failed
}

// report is an agent's latest report about a tracepoint: the fields of a [protocol.Outcome] that decisions need.
type report struct {
	id                  string
	hits, drops         uint64
	nanos, bytes        float64 // per hit; 0 if unknown
	applied, incomplete bool
}

// known returns the reports in outcomes about tracepoints in all, a catalogue. It contains each tracepoint once, in
// ascending order of ID. The IDs share memory with the catalogue rather than with outcomes.
func known(outcomes []protocol.Outcome, all []tracepoint) []report {
	var list []report
	for i := range outcomes {
		o := &outcomes[i]
		if x := find(all, o.ID); x != nil {
			list = append(list, report{
				id:         x.ID,
				hits:       o.Hits,
				drops:      o.Drops,
				nanos:      o.Nanos,
				bytes:      o.Bytes,
				applied:    o.State == protocol.Applied,
				incomplete: o.Incomplete,
			})
		}
	}
	sorting.SliceStable(list, func(x, y report) int { return cmp.Compare(x.id, y.id) })
	list = slices.CompactFunc(list, func(x, y report) bool { return x.id == y.id })
	return slices.Clone(list) // without spare capacity, because all agents send thousands
}

// firstFailure describes the first outcome of a tracepoint in all that couldn't be enabled or is incomplete, with the
// reason. It returns "" if there is no such outcome.
func firstFailure(outcomes []protocol.Outcome, all []tracepoint) string {
	for i := range outcomes {
		if o := &outcomes[i]; (o.State != protocol.Applied || o.Incomplete) && find(all, o.ID) != nil {
			return o.ID + ": " + cmp.Or(o.Reason, string(o.State))
		}
	}
	return ""
}

// ReportOutcomes processes outcomes from the agent identified by c, which does not measure costs. Tracepoints that are
// not in outcomes count as applied. It returns the same errors as [Plane.Report].
func (p *Plane) ReportOutcomes(c Caller, outcomes []protocol.Outcome) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.lookup(c)
	if err != nil {
		return err
	}
	all := a.catalogue.content()
	list := known(outcomes, all)
	if !p.fit(a, len(list)) {
		return ErrTracepoints
	}
	a.problem = cmp.Or(firstFailure(outcomes, all), a.problem)
	p.agents.setOutcomes(a, list)
	_, failed := count(p.published.Load(), list)
	a.on, a.failed = a.on+a.failed-failed, failed // tracepoints that it doesn't list are on
	p.counts.Statuses.Add(1)
	return nil
}

// ReportApplied records that the agent identified by c applied the plan with the given hash or, if failure is not
// empty, why it didn't. The error is ErrUnknown, ErrConflict, ErrServices or ErrStarting.
func (p *Plane) ReportApplied(c Caller, hash, failure string) error {
	p.mu.Lock()
	a, err := p.lookup(c)
	if err != nil {
		p.mu.Unlock()
		return err
	}
	list := a.catalogue
	p.mu.Unlock()
	e := list.planOf(p.published.Load())
	p.mu.Lock()
	defer p.mu.Unlock()
	a.problem, a.reported = failure, a.seen
	if failure == "" && e.hash == hash {
		_, a.failed = count(e.of, a.outcomes)
		a.version, a.hash, a.on = e.plan.Version, hash, e.distinct()-a.failed
	}
	p.counts.Statuses.Add(1)
	return nil
}

// AppliedHash returns the hash of the plan that the agent identified by c applied last, or "" if it is unknown.
func (p *Plane) AppliedHash(c Caller) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.agents.byID[c.ID]; a != nil {
		return a.hash
	}
	return ""
}

// usageBetween returns the cost per second of the tracepoints of plan between the reports before and `after`. It
// ignores tracepoints of the baseline and of other plans.
func usageBetween(
	plan *published, all []tracepoint, before, after []report, elapsed time.Duration,
) search.Usage {
	var u search.Usage
	if elapsed <= 0 {
		return u
	}
	for i := range after {
		o := &after[i]
		x := find(all, o.id)
		if x == nil || x.Baseline || !plan.enables(o.id) {
			continue
		}
		k, found := slices.BinarySearchFunc(before, o.id, func(b report, id string) int {
			return cmp.Compare(b.id, id)
		})
		if !found {
			continue // its hits may be older than before
		}
		rate := float64(o.hits-min(before[k].hits, o.hits)) / elapsed.Seconds()
		u.Hits += rate
		u.Bytes += rate * cmp.Or(o.bytes, float64(x.Bytes))
		u.CPU += rate * cmp.Or(o.nanos, float64(x.Cost)) / 1e9
	}
	return u
}

// Rules for turning reports of agents into feedback.
const (
	minHits        = 100              // minimum number of hits to report a mean cost
	costFactor     = 1.25             // a cost is reported again if it has changed by more than this factor
	unavailableFor = 30 * time.Minute // how long a tracepoint stays off after most agents could not enable it
	incompleteFor  = 2 * time.Minute  // how long a tracepoint stays off after an agent missed many records of it
	silence        = 35 * time.Second // time since a silent agent's last status; agents send one every ten seconds
)

// silent reports whether a has stopped polling or sending statuses. OpAMP agents are never silent, because they don't
// send statuses at regular intervals.
func (a *agent) silent(now time.Time) bool {
	if a.transport != overHTTP {
		return false
	}
	return a.polls == 0 && now.Sub(a.seen) > idTimeout || !a.reported.IsZero() && now.Sub(a.reported) > silence
}

// observesOthers reports whether a's tracepoint with the given id is in another process, whose requests continue
// without the agent.
func (a *agent) observesOthers(id string) bool {
	x := find(a.catalogue.content(), id)
	return x != nil && x.Kind == cct.ProbePoint && x.service != a.resource["service.name"]
}
