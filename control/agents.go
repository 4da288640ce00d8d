package control

import (
	"time"

	"github.com/sibyl-trace/sibyl/search"
)

// agents are the registered agents. The mutex of the plane guards them.
type agents struct {
	byID         map[string]*agent
	perPrincipal map[string]int // number of agents by token
	outcomes     int            // number of outcomes of all agents
}

func (s *agents) add(a *agent) {
	s.byID[a.id] = a
	s.perPrincipal[a.principal]++
}

// remove removes a, after ending its poll.
func (s *agents) remove(a *agent, now time.Time) {
	if a.cancelPoll != nil {
		a.cancelPoll()
	}
	a.leaveCatalogue(now)
	s.setOutcomes(a, nil)
	delete(s.byID, a.id)
	if s.perPrincipal[a.principal]--; s.perPrincipal[a.principal] == 0 {
		delete(s.perPrincipal, a.principal)
	}
}

// dispensable returns the agent to remove to make room for a new agent whose token is principal. Among the agents with
// the most common token, it is the one that has been silent for longest, so that the agents with one token can't keep
// others out. dispensable returns nil if principal itself would then have the most agents.
func (s *agents) dispensable(principal string) *agent {
	most := 0
	for _, n := range s.perPrincipal {
		most = max(most, n)
	}
	if s.perPrincipal[principal]+1 >= most {
		return nil
	}
	var silent *agent
	for _, a := range s.byID {
		if s.perPrincipal[a.principal] == most && (silent == nil || a.seen.Before(silent.seen)) {
			silent = a
		}
	}
	return silent
}

// setOutcomes replaces the outcomes of a.
func (s *agents) setOutcomes(a *agent, outcomes []report) {
	s.outcomes += len(outcomes) - len(a.outcomes)
	a.outcomes = outcomes
}

// outcome sums up the reports of all agents about one tracepoint.
type outcome struct {
	costed          float64 // number of hits with known costs
	nanos, bytes    float64 // totals of these hits
	applied, failed int     // number of agents
	incomplete      int     // number of agents that missed many records of the tracepoint
}

// sums sums up the outcomes of all agents by tracepoint ID, and the usage of the agents that applied the plan with the
// given version.
func (s *agents) sums(version int64, now time.Time) (all map[string]*outcome, measured search.Measured) {
	all, measured.Plan = make(map[string]*outcome), version
	here := s.present(now)
	for _, a := range s.byID {
		silent := a.silent(now) && !here[a.place()]
		if a.version == version {
			measured.Hits += a.usage.Hits
			measured.Bytes += a.usage.Bytes
			measured.CPU += a.usage.CPU
		}
		for i := range a.outcomes {
			o := &a.outcomes[i]
			x := all[o.id]
			if x == nil {
				x = &outcome{}
				all[o.id] = x
			}
			switch {
			case o.incomplete || silent && a.observesOthers(o.id):
				x.incomplete++
			case o.applied:
				x.applied++
			default:
				x.failed++
			}
			if o.nanos > 0 {
				x.costed += float64(o.hits)
				x.nanos += float64(o.hits) * o.nanos
				x.bytes += float64(o.hits) * o.bytes
			}
		}
	}
	return all, measured
}

// unavailable returns how long the tracepoint shouldn't be enabled, or 0 if it may be. One incomplete agent is enough,
// because the slow requests may be on its machine.
func (o *outcome) unavailable() time.Duration {
	switch {
	case o.incomplete > 0:
		return incompleteFor
	case o.failed > o.applied:
		return unavailableFor
	}
	return 0
}

// place is the service and the host of an agent. It identifies an agent that observes other processes.
type place struct{ service, host string }

func (a *agent) place() place { return place{a.resource["service.name"], a.resource["host.name"]} }

// present returns the places of the agents that aren't silent. A silent agent in one of these places has been replaced.
func (s *agents) present(now time.Time) map[place]bool {
	all := make(map[place]bool)
	for _, a := range s.byID {
		if at := a.place(); at.host != "" && !a.silent(now) {
			all[at] = true
		}
	}
	return all
}
