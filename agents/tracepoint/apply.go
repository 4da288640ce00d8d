package tracepoint

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
)

// state is what applies. It is immutable.
type state struct {
	now    *plan // nil: none, all that is on is the baseline
	before *plan // for the requests that began under it
}

// plan is a plan as requests look at it. It is immutable.
type plan struct {
	source  *protocol.Plan
	version int64
	arms    []*arm // as source.Arms
}

// arm is an arm of one plan. Those of different plans are different, whatever they are called.
type arm struct {
	name       string
	mark       string // of a request that fits no filter
	everything bool
	enabled    map[string]*protocol.Enabled // by ID
}

// of returns the plan of the given version, nil if it is not known (any more).
func (s *state) of(version int64) *plan {
	for _, p := range []*plan{s.now, s.before} {
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

// Apply makes p the plan, or goes back to the baseline if p is nil. It takes effect at once for requests that begin; those that
// run go on as they began, if that was under the plan before. Of what p switches on the registry ignores what it does not
// know; [Registry.Outcomes] tells. It returns an error, and changes nothing, if p is not valid. It keeps p, which must not be changed any more.
func (r *Registry) Apply(p *protocol.Plan) error {
	var next state
	if p != nil {
		if err := p.Validate(); err != nil {
			return err
		}
		next.now = compile(p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.state.Load(); p != nil && old.now != nil {
		next.before = old.now
		if old.now.version == p.Version {
			next.before = old.before
		}
	}
	// 1. What is on under the next plan or the one before is on: no request has an arm of the next plan yet.
	// 2. Requests that begin get one.
	// So none finds only a part of its tracepoints on. To nothing it is the other way round.
	set := func() {
		for _, point := range r.points {
			point.on.Store(r.settingsOf(point, &next))
		}
	}
	if p == nil {
		r.state.Store(&next)
		set()
		return nil
	}
	set()
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
		mark := protocol.Mark{Version: p.Version, Arm: a.Name}.String()
		c.arms = append(c.arms, &arm{name: a.Name, mark: mark, everything: a.Everything, enabled: enabled})
	}
	return c
}

// settings returns for which requests p is on as things are; nil: for none. The caller holds r.mu.
func (r *Registry) settings(p *Point) *switches { return r.settingsOf(p, r.state.Load()) }

func (r *Registry) settingsOf(p *Point, s *state) *switches {
	if p.about.Baseline {
		return nil
	}
	var list []setting
	for _, plan := range []*plan{s.now, s.before} {
		if plan == nil {
			continue
		}
		for _, a := range plan.arms {
			switch e := a.enabled[p.id]; {
			case a.everything && r.explore:
				list = append(list, setting{arm: a, rate: 1})
			case e != nil:
				list = append(list, setting{arm: a, rate: e.Rate, filters: e.FilterBit()})
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return &switches{settings: list, id: []attribute.KeyValue{attribute.String(protocol.KeyTracepoint, p.id)}}
}

// allowExplore says whether arms may have everything on. It counts for plans that are applied from then on.
func (r *Registry) allowExplore(yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.explore = yes
}

func (r *Registry) explores() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.explore
}

// applied returns version and hash of the plan that applies; nothing for the baseline.
func (r *Registry) applied() (version int64, hash string) {
	if p := r.state.Load().now; p != nil {
		return p.version, p.source.Hash
	}
	return 0, ""
}
