package control

import (
	"cmp"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/search"
)

// Report takes what an agent says became of its plan. What it says of tracepoints that are not in its catalogue is left out: no plan has them on.
// An error is ErrUnknown, ErrConflict or ErrFull.
func (p *Plane) Report(c Caller, s *protocol.Status) error {
	c.Session = s.Session
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.find(c)
	if err != nil {
		return err
	}
	all := a.catalogue.content()
	outcomes := known(s.Tracepoints, all)
	if p.held-len(a.outcomes)+len(outcomes) > maxOutcomes {
		return ErrFull
	}
	plan := p.published.Load()
	a.usage = search.Usage{}
	if a.version == s.Version && s.Version > 0 {
		a.usage = usageBetween(plan, all, a.outcomes, outcomes, a.seen.Sub(a.reported))
	}
	a.version, a.hash, a.problem, a.reported = s.Version, s.Hash, cmp.Or(s.Error, whySome(s.Tracepoints)), a.seen
	p.keep(a, outcomes)
	a.on, a.failed = 0, 0
	if s.Version > 0 {
		a.on, a.failed = became(plan, outcomes)
	}
	p.counts.Statuses.Add(1)
	return nil
}

// became returns how many tracepoints of a plan are on, and how many could not be switched on. Agents tell of what was on before, too.
func became(plan *published, outcomes []protocol.Outcome) (on, failed int) {
	for i := range outcomes {
		o := &outcomes[i]
		switch {
		case !plan.wants(o.ID):
		case o.State == protocol.Applied:
			on++
		default:
			failed++
		}
	}
	return on, failed
}

// known returns the outcomes of tracepoints of a catalogue, each once, ascending by ID, in memory of their own.
func known(outcomes []protocol.Outcome, all []protocol.Tracepoint) []protocol.Outcome {
	var list []protocol.Outcome
	for i := range outcomes {
		if x := find(all, outcomes[i].ID); x != nil {
			o := outcomes[i]
			o.ID, o.Reason = x.ID, "" // the same memory; whySome tells the first reason
			list = append(list, o)
		}
	}
	slices.SortStableFunc(list, func(x, y protocol.Outcome) int { return cmp.Compare(x.ID, y.ID) })
	return slices.CompactFunc(list, func(x, y protocol.Outcome) bool { return x.ID == y.ID })
}

// whySome says of the first tracepoint that could not be switched on why; empty if there is none.
func whySome(outcomes []protocol.Outcome) string {
	for i := range outcomes {
		if o := &outcomes[i]; o.State != protocol.Applied {
			return o.ID + ": " + cmp.Or(o.Reason, string(o.State))
		}
	}
	return ""
}

// keep makes outcomes what is known of an agent. The caller holds mu.
func (p *Plane) keep(a *agent, outcomes []protocol.Outcome) {
	p.held += len(outcomes) - len(a.outcomes)
	a.outcomes = outcomes
}

// ReportOutcomes takes what an agent says became of single tracepoints, where it does not say what they cost. An error is ErrUnknown, ErrConflict
// or ErrFull.
func (p *Plane) ReportOutcomes(c Caller, outcomes []protocol.Outcome) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, err := p.find(c)
	if err != nil {
		return err
	}
	list := known(outcomes, a.catalogue.content())
	if p.held-len(a.outcomes)+len(list) > maxOutcomes {
		return ErrFull
	}
	a.problem = cmp.Or(whySome(outcomes), a.problem)
	p.keep(a, list)
	_, failed := became(p.published.Load(), list)
	a.on, a.failed = a.on+a.failed-failed, failed // it says nothing of others, which are on
	p.counts.Statuses.Add(1)
	return nil
}

// Applied takes what an agent says became of the plan with a hash, where it says no more than that; why is empty if it applied it. An error is
// ErrUnknown or ErrConflict.
func (p *Plane) Applied(c Caller, hash, why string) error {
	p.mu.Lock()
	a, err := p.find(c)
	if err != nil {
		p.mu.Unlock()
		return err
	}
	list := a.catalogue
	p.mu.Unlock()
	b := list.bodyOf(p.published.Load())
	p.mu.Lock()
	defer p.mu.Unlock()
	a.problem, a.reported = why, a.seen
	if why == "" && b.hash == hash {
		_, a.failed = became(b.of, a.outcomes)
		a.version, a.hash, a.on = b.plan.Version, hash, b.distinct()-a.failed
	}
	p.counts.Statuses.Add(1)
	return nil
}

// Has returns the hash of the plan that an agent applied last; empty if it is not known.
func (p *Plane) Has(c Caller) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.agents[c.ID]; a != nil {
		return a.hash
	}
	return ""
}

// usageBetween returns what the tracepoints of a plan cost, per second, in the time between two reports. What is on anyway costs the plan
// nothing, nor does what agents say of others.
func usageBetween(plan *published, all []protocol.Tracepoint, before, after []protocol.Outcome, elapsed time.Duration) search.Usage {
	var u search.Usage
	if elapsed <= 0 {
		return u
	}
	for i := range after {
		o := &after[i]
		x := find(all, o.ID)
		if x == nil || x.Baseline || !plan.wants(o.ID) {
			continue
		}
		k, found := slices.BinarySearchFunc(before, o.ID, func(b protocol.Outcome, id string) int { return cmp.Compare(b.ID, id) })
		if !found {
			continue // its hits may be old
		}
		rate := float64(o.Hits-min(before[k].Hits, o.Hits)) / elapsed.Seconds()
		u.Hits += rate
		u.Bytes += rate * cmp.Or(o.Bytes, float64(x.Bytes))
		u.CPU += rate * cmp.Or(o.Nanos, float64(x.CostNanos)) / 1e9
	}
	return u
}

// How what agents measured becomes what decisions depend on.
const (
	fewestHits     = 100              // that a mean cost is made of
	otherCost      = 1.25             // by which factor it must differ from what was told to be told again
	unavailableFor = 30 * time.Minute // a tracepoint stays off that agents could not switch on
)

// outcome is what all agents together say of a tracepoint.
type outcome struct {
	costed        float64 // hits of which the costs are known
	nanos, bytes  float64 // of these
	works, breaks int     // agents that could switch it on, and that could not
}

// outcomes adds up what agents that have a plan say, and what they measured of it. The caller holds mu.
func (p *Plane) outcomes(version int64) (all map[string]*outcome, measured search.Measured) {
	all, measured.Plan = make(map[string]*outcome), version
	for _, a := range p.agents {
		if a.version == version {
			measured.Hits += a.usage.Hits
			measured.Bytes += a.usage.Bytes
			measured.CPU += a.usage.CPU
		}
		for i := range a.outcomes {
			o := &a.outcomes[i]
			x := all[o.ID]
			if x == nil {
				x = &outcome{}
				all[o.ID] = x
			}
			if o.State == protocol.Applied {
				x.works++
			} else {
				x.breaks++
			}
			if o.Nanos > 0 {
				x.costed += float64(o.Hits)
				x.nanos += float64(o.Hits) * o.Nanos
				x.bytes += float64(o.Hits) * o.Bytes
			}
		}
	}
	return all, measured
}
