package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/search"
)

// State is how an agent is doing.
type State string

// The states of an agent.
const (
	Current State = "current" // it applied the plan that is published
	Behind  State = "behind"  // it did not apply it yet, or says that it cannot
	Lost    State = "lost"    // its lease ended: it is back at its baseline
)

// Agent is what is known of one agent. It is the caller's.
type Agent struct {
	ID, Service, Transport string
	State                  State
	Resource               map[string]string
	Capabilities           []protocol.Capability
	Since, Seen            time.Time
	Tracepoints            int    // of its catalogue
	Incomplete             bool   // pages of it are missing
	Version                int64  // of the plan that it applied last; 0: none, it is at its baseline
	Problem                string // why it did not apply the last one, or not all of it
	Applied, Failed        int    // tracepoints of its plan that are on, and that it could not switch on
	Conflicts              int    // messages of others that use its id
	Hits, Drops            uint64 // of all tracepoints, since it started
	Usage                  search.Usage
}

// Agents returns all agents, ascending by service and id.
func (p *Plane) Agents() []Agent {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, version := p.options.Clock(), p.published.Load().plan.Version
	all := make([]Agent, 0, len(p.agents))
	for _, a := range p.agents {
		x := Agent{
			ID: a.id, Service: a.resource["service.name"], Transport: a.transport, State: a.state(version, now, p.options.Lease),
			Resource: maps.Clone(a.resource), Capabilities: slices.Clone(a.capabilities), Since: a.since, Seen: a.seen,
			Tracepoints: a.catalogue.Size, Incomplete: !a.catalogue.complete(), Version: a.version, Problem: a.problem, Conflicts: a.conflicts, Usage: a.usage,
			Applied: a.on, Failed: a.failed,
		}
		for i := range a.outcomes {
			o := &a.outcomes[i]
			x.Hits += o.Hits
			x.Drops += o.Drops
		}
		all = append(all, x)
	}
	slices.SortFunc(all, func(a, b Agent) int { return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.ID, b.ID)) })
	return all
}

func (a *agent) state(version int64, now time.Time, lease time.Duration) State {
	switch {
	case a.polls == 0 && now.Sub(a.seen) > lease:
		return Lost
	case a.version == version:
		return Current
	}
	return Behind
}

// Summary says what there is, all together.
type Summary struct {
	Agents, Lost, Behind, Current int
	Catalogues, Tracepoints       int // different ones
	Polls                         int // agents that wait for a plan now
	Measured                      search.Measured
}

// Summary returns how many agents and catalogues there are, and what was measured last.
func (p *Plane) Summary() Summary {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Summary{Agents: len(p.agents), Catalogues: len(p.catalogues), Tracepoints: p.tracepoints, Measured: p.lastReported.measured}
	now, version := p.options.Clock(), p.published.Load().plan.Version
	for _, a := range p.agents {
		s.Polls += a.polls
		switch a.state(version, now, p.options.Lease) {
		case Lost:
			s.Lost++
		case Behind:
			s.Behind++
		case Current:
			s.Current++
		}
	}
	return s
}
