package tracepoint

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// state holds the plans of a registry. It is immutable.
type state struct {
	current  *plan // nil if only the baseline is enabled
	previous *plan // for requests that started under it; may be nil
}

// plan is an index of a plan for decisions about requests. It is immutable.
type plan struct {
	source  *protocol.Plan
	version int64
	arms    []*arm // in the order of source.Arms
}

// arm is an arm of one plan. Arms of different plans are distinct, even if they have the same name.
type arm struct {
	name     string
	decision string                       // text form of the decision about requests that match no filter
	enabled  map[string]*protocol.Enabled // by ID
}

// plan returns the plan with the given version, or nil if it is unknown.
func (s *state) plan(version int64) *plan {
	for _, p := range []*plan{s.current, s.previous} {
		if p != nil && p.version == version {
			return p
		}
	}
	return nil
}

func (p *plan) arm(name string) *arm {
	for _, a := range p.arms {
		if a.name == name {
			return a
		}
	}
	return nil
}

// Apply makes p the current plan. If p is nil, only the baseline remains enabled. The plan applies to requests that
// start from now on. Running requests keep the plan they started under for as long as it is the current or the previous
// one. Apply ignores IDs that the registry does not know; [Registry.Outcomes] reports them. It returns an error, and
// changes nothing, if p is not valid. The caller must not modify p afterwards.
func (r *Registry) Apply(p *protocol.Plan) error {
	var next state
	if p != nil {
		if err := p.Validate(); err != nil {
			return err
		}
		next.current = compile(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.state.Load(); p != nil && old.current != nil {
		next.previous = old.current
		if old.current.version == p.Version {
			next.previous = old.previous
		}
	}
	// The order of the two steps ensures that no request sees only some of its tracepoints enabled:
	//
	//  1. Enable the tracepoints of the next and the previous plan. No request has an arm of the next plan yet.
	//  2. Publish the next plan, so that new requests get an arm of it.
	//
	// Returning to the baseline reverses the order.
	setActivations := func() {
		for _, point := range r.points {
			point.active.Store(r.activationIn(&next, point))
		}
	}
	if p == nil {
		r.state.Store(&next)
		setActivations()
		return nil
	}
	setActivations()
	r.state.Store(&next)
	return nil
}

func compile(p *protocol.Plan) *plan {
	c := &plan{source: p, version: p.Version}
	for i := range p.Arms {
		a := &p.Arms[i]
		enabled := make(map[string]*protocol.Enabled, len(a.Tracepoints))
		for k := range a.Tracepoints {
			enabled[a.Tracepoints[k].ID] = &a.Tracepoints[k]
		}
		decision := protocol.Decision{Version: p.Version, Arm: a.Name}.String()
		c.arms = append(c.arms, &arm{name: a.Name, decision: decision, enabled: enabled})
	}
	return c
}

// activation returns the activation of p under the current state, or nil if p is disabled. The caller must hold r.mu.
func (r *Registry) activation(p *Point) *activation { return r.activationIn(r.state.Load(), p) }

// activationIn is like activation, but under state s. While stacks are being sampled, the activation of a point outside
// the baseline is never nil, so that its calls are recorded.
func (r *Registry) activationIn(s *state, p *Point) *activation {
	if p.info.Baseline {
		return nil
	}
	var rules []activationRule
	for _, plan := range []*plan{s.current, s.previous} {
		if plan == nil {
			continue
		}
		for _, a := range plan.arms {
			if e := a.enabled[p.id]; e != nil {
				rules = append(rules, activationRule{arm: a, rate: e.Rate, filters: e.FilterBit()})
			}
		}
	}
	if len(rules) == 0 && !r.stacks.on.Load() {
		return nil
	}
	return &activation{rules: rules, id: []attribute.KeyValue{attribute.String(protocol.KeyTracepoint, p.id)}}
}
