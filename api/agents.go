package api

import (
	"context"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/control"
)

// ListAgents implements contract.StrictServerInterface.
func (a *API) ListAgents(_ context.Context, r contract.ListAgentsRequestObject) (contract.ListAgentsResponseObject, error) {
	q := &r.Params
	list := contract.ListAgents200JSONResponse{Items: []contract.Agent{}, Total: a.agentCounts()}
	if a.options.Agents == nil {
		return list, nil
	}
	all, order := a.options.Agents.Agents(), named()
	for i := range all {
		order.entries = append(order.entries, entry[string]{0, all[i].Service + "\x00" + all[i].ID, int32(i)})
	}
	order.sort()
	items, next, err := order.cut(pageOf(q.Limit, q.Cursor, "agents"), func(i int32) bool {
		x := &all[i]
		return value(q.Service, x.Service) == x.Service && string(value(q.State, contract.AgentState(x.State))) == string(x.State) &&
			(q.Q == nil || holds(x.Service+" "+x.ID+" "+x.Resource["host.name"]+" "+x.Resource["service.version"], q.Q))
	})
	list.NextCursor, list.Conflicts = next, a.options.Agents.Counts().Conflicts.Load()
	for _, i := range items {
		list.Items = append(list.Items, agentOf(&all[i]))
	}
	return list, err
}

func agentOf(x *control.Agent) contract.Agent {
	capabilities := make([]string, len(x.Capabilities))
	for i, c := range x.Capabilities {
		capabilities[i] = string(c)
	}
	resource := x.Resource
	if resource == nil {
		resource = map[string]string{}
	}
	d := contract.Agent{
		ID: x.ID, Service: x.Service, Transport: x.Transport, State: contract.AgentState(x.State), Resource: resource, Capabilities: capabilities,
		Since: x.Since.UTC(), Seen: x.Seen.UTC(), Catalogue: x.Tracepoints, CatalogueComplete: !x.Incomplete, Plan: x.Version, Applied: x.Applied,
		Failed: x.Failed, Conflicts: x.Conflicts, Hits: int64(x.Hits), Drops: int64(x.Drops), Usage: usage(x.Usage),
	}
	if x.Problem != "" {
		d.Problem = &x.Problem
	}
	return d
}

// agentCounts returns how many agents there are, by state.
func (a *API) agentCounts() contract.AgentCounts {
	if a.options.Agents == nil {
		return contract.AgentCounts{}
	}
	s := a.options.Agents.Summary()
	return contract.AgentCounts{Current: s.Current, Behind: s.Behind, Lost: s.Lost}
}

// agents tells who is connected.
func (m *metrics) agents(e emitter) {
	if m.api.options.Agents == nil {
		return
	}
	s, n := m.api.options.Agents.Summary(), m.api.options.Agents.Counts()
	for _, x := range []struct {
		state control.State
		n     int
	}{{control.Current, s.Current}, {control.Behind, s.Behind}, {control.Lost, s.Lost}} {
		e.gauge("agents", "Agents, by whether they applied the plan that holds.", float64(x.n), "state", string(x.state))
	}
	e.gauge("agent_polls", "Agents that wait for a plan.", float64(s.Polls))
	e.gauge("agent_catalogues", "Different catalogues of agents.", float64(s.Catalogues))
	e.gauge("agent_tracepoints", "Tracepoints of different catalogues.", float64(s.Tracepoints))
	e.counter("agent_registrations_total", "Registrations of agents taken.", n.Registered.Load())
	e.counter("agent_plans_total", "Plans sent to agents.", n.Plans.Load())
	e.counter("agent_statuses_total", "Statuses of agents taken.", n.Statuses.Load())
	e.counter("agent_refused_total", "Requests of agents that were refused.", n.Refused.Load())
	e.counter("agent_conflicts_total", "Messages of agents that used the ID of another.", n.Conflicts.Load())
	e.counter("agent_expired_total", "Agents that were forgotten because they were not heard of.", n.Expired.Load())
}
