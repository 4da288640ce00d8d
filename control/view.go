package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/agents/tracepoint/protocol"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
)

// State is the state of an agent relative to the current plan.
type State string

// The states of an agent.
const (
	Current State = "current" // it applied the current plan
	Behind  State = "behind"  // it has not applied the current plan yet, or cannot
	Lost    State = "lost"    // its lease ended, so that it returned to its baseline
)

// Agent describes an agent for display. The caller owns it.
type Agent struct {
	ID, Service, Transport string
	State                  State
	Resource               map[string]string
	Capabilities           []protocol.Capability
	Since, Seen            time.Time
	Tracepoints            int    // number of tracepoints in its catalogue
	Incomplete             bool   // pages of the catalogue are missing
	Version                int64  // version of the plan that it last applied; 0 if it is at its baseline
	Problem                string // why it applied only part of the last plan or none of it; may be empty
	Applied, Failed        int    // number of tracepoints of its plan that it applied, or could not enable
	Conflicts              int    // number of messages of other sessions with its ID
	Hits, Drops            uint64 // totals over all tracepoints, since it started
	Usage                  search.Usage
}

// Agents returns all agents, ascending by service and ID.
func (p *Plane) Agents() []Agent {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, version := p.options.Clock(), p.published.Load().plan.Version
	all := make([]Agent, 0, len(p.agents.byID))
	for _, a := range p.agents.byID {
		x := Agent{
			ID:           a.id,
			Service:      a.resource["service.name"],
			Transport:    a.transport,
			State:        a.state(version, now, p.options.Lease),
			Resource:     maps.Clone(a.resource),
			Capabilities: slices.Clone(a.capabilities),
			Since:        a.since,
			Seen:         a.seen,
			Tracepoints:  a.catalogue.Size,
			Incomplete:   !a.catalogue.complete(),
			Version:      a.version,
			Problem:      a.problem,
			Applied:      a.on,
			Failed:       a.failed,
			Conflicts:    a.conflicts,
			Usage:        a.usage,
		}
		for i := range a.outcomes {
			o := &a.outcomes[i]
			x.Hits += o.hits
			x.Drops += o.drops
		}
		all = append(all, x)
	}
	sorting.SliceStable(all, func(a, b Agent) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.ID, b.ID))
	})
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

// Summary holds totals over all agents.
type Summary struct {
	Agents, Lost, Behind, Current int
	Catalogues, Tracepoints       int // number of distinct ones
	Polls                         int // number of requests that wait for a plan
	Measured                      search.Measured
}

// Summary returns the current totals and the last reported measurement.
func (p *Plane) Summary() Summary {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Summary{
		Agents:      len(p.agents.byID),
		Catalogues:  len(p.catalogues.byHash),
		Tracepoints: p.catalogues.tracepoints,
		Measured:    p.lastReported.measured,
	}
	now, version := p.options.Clock(), p.published.Load().plan.Version
	for _, a := range p.agents.byID {
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
