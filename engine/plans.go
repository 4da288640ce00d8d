package engine

import (
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// plan holds the arms of one version of the plan.
type plan struct {
	version int64
	since   trace.Nanos
	arms    []arm
	shares  *protocol.Plan // contains only the shares of the arms; nil if no arm has probes
}

// arm is the set of tracepoints of one arm. Arms with equal sets share their statistics, even across plans.
type arm struct {
	name   trace.Symbol
	on     []trace.Symbol // ascending
	set    uint64         // hash of on; 0 for the empty set
	share  float64        // share of all requests
	probes []trace.Symbol // the probes among on, ascending
}

// plans holds the latest versions of the plan, the current one last.
type plans struct {
	offers *Offers
	all    []plan // not empty
}

// keptPlans is the maximum number of plans kept. Earlier plans are kept for requests that started under them.
const keptPlans = 16

// adopt makes p the current plan at time now, unless it already is.
func (r *plans) adopt(p *search.Plan, now trace.Nanos) {
	if p.Version == r.all[len(r.all)-1].version {
		return
	}
	next := plan{version: p.Version, since: now}
	for i, a := range p.Arms {
		x := arm{name: a.Name, share: a.Share}
		for _, l := range p.Leases {
			if int(l.Arm) == i {
				x.on = append(x.on, l.Tracepoint)
			}
		}
		slices.Sort(x.on)
		x.set = setOf(x.on)
		x.probes = slices.DeleteFunc(slices.Clone(x.on), func(tp trace.Symbol) bool {
			return r.offers.catalogue.Find(tp).Kind != cct.ProbePoint
		})
		next.arms = append(next.arms, x)
	}
	next.share()
	r.all = append(r.all, next)
	r.all = r.all[max(0, len(r.all)-keptPlans):]
}

// setOf returns the hash of `on`, which must be ascending.
func setOf(on []trace.Symbol) (set uint64) {
	for _, tp := range on {
		set = trace.Mix(set, uint64(tp))
	}
	return set
}

// arm returns the arm of o, without the tracepoints of services that had not applied o's plan yet. It returns an empty
// arm if the plan is unknown.
func (r *plans) arm(o *observation.Observation) *arm {
	a := r.planned(o)
	if len(o.Behind) == 0 {
		return a
	}
	on := slices.DeleteFunc(slices.Clone(a.on),
		func(tp trace.Symbol) bool { return slices.Contains(o.Behind, r.offers.owner(tp)) })
	if len(on) == len(a.on) {
		return a
	}
	return a.part(on)
}

// part returns arm a restricted to the tracepoints `on`, with another name because its requests are a separate sample.
func (a *arm) part(on []trace.Symbol) *arm {
	set := setOf(on)
	return &arm{name: a.name ^ trace.Symbol(trace.Mix(a.set, set)), on: on, set: set}
}

// planned returns the arm that o's plan assigned to o, or an empty arm if the plan or the arm is unknown.
func (r *plans) planned(o *observation.Observation) *arm {
	switch {
	case o.Plan < 0:
		return r.probed(o)
	case o.Plan > 0:
		for i := range slices.Backward(r.all) {
			if r.all[i].version != o.Plan {
				continue
			}
			for k := range r.all[i].arms {
				if a := &r.all[i].arms[k]; a.name == o.Arm {
					return a
				}
			}
		}
	}
	return &arm{}
}

// settling is the age at which a plan is assumed to apply everywhere. It allows for the delay of agents and for clock
// skew.
const settling = 2 * time.Second

// probed returns the arm of o, a request without a plan because the service that it started in has no agent. Kernel
// agents select requests by trace ID and don't need the plan in the trace, so their probes were on for the arm that the
// plan of that time assigns to the trace ID. probed returns an empty arm if no probes were on or the plan was still
// settling.
func (r *plans) probed(o *observation.Observation) *arm {
	for i := range slices.Backward(r.all) {
		p := &r.all[i]
		if o.Start < p.since {
			continue
		}
		if p.shares == nil || p.since == 0 || o.Start < p.since.Add(settling) {
			break
		}
		if at := protocol.RandomnessOf(o.Trace).Arm(p.shares); at >= 0 {
			return p.arms[at].ofProbes()
		}
		break
	}
	return &arm{}
}

// share sets p.shares if any arm has probes.
func (p *plan) share() {
	if !slices.ContainsFunc(p.arms, func(a arm) bool { return len(a.probes) > 0 }) {
		return
	}
	p.shares = &protocol.Plan{Arms: make([]protocol.Arm, len(p.arms))}
	for i := range p.arms {
		p.shares.Arms[i].Share = p.arms[i].share
	}
}

// ofProbes returns arm a restricted to its probes.
func (a *arm) ofProbes() *arm {
	if len(a.probes) == len(a.on) {
		return a
	}
	return &arm{name: a.name ^ markProbes, on: a.probes, set: setOf(a.probes)}
}

// markProbes is XORed into the name of an arm that is restricted to its probes, because its requests are a separate
// sample.
const markProbes = 0x70726f626573

// current returns the arms of the current plan.
func (r *plans) current() []arm { return r.all[len(r.all)-1].arms }

// currentSets returns the arms of the current plan and, for requests without a plan, the arms restricted to their
// probes.
func (r *plans) currentSets() []arm {
	var all []arm
	for i := range r.current() {
		a := &r.current()[i]
		all = append(all, *a)
		if x := a.ofProbes(); x.set != a.set && x.set != 0 {
			all = append(all, *x)
		}
	}
	return all
}

// savedPlan is the saved form of a plan.
type savedPlan struct {
	Version int64
	Since   trace.Nanos `cbor:",omitempty"`
	Arms    []savedArm
}

type savedArm struct {
	Name   trace.Symbol
	On     []trace.Symbol
	Set    uint64
	Share  float64        `cbor:",omitempty"`
	Probes []trace.Symbol `cbor:",omitempty"`
}

// save implements section.
func (r *plans) save(s *savedCore) {
	for _, p := range r.all {
		saved := savedPlan{Version: p.version, Since: p.since}
		for _, a := range p.arms {
			saved.Arms = append(saved.Arms, savedArm{a.name, a.on, a.set, a.share, a.probes})
		}
		s.Plans = append(s.Plans, saved)
	}
}

// restore implements section.
func (r *plans) restore(s *savedCore) error {
	r.all = nil
	for _, p := range s.Plans {
		restored := plan{version: p.Version, since: p.Since}
		for _, a := range p.Arms {
			restored.arms = append(restored.arms, arm{a.Name, a.On, a.Set, a.Share, a.Probes})
		}
		restored.share()
		r.all = append(r.all, restored)
	}
	return nil
}
