package api

import (
	"context"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/internal/metric"
)

// ListAgents implements contract.StrictServerInterface.
func (a *API) ListAgents(_ context.Context, r contract.ListAgentsRequestObject) (contract.ListAgentsResponseObject, error) {
	q := &r.Params
	list := contract.ListAgents200JSONResponse{Items: []contract.Agent{}, Total: a.agentCounts()}
	if a.options.Agents == nil {
		return list, nil
	}
	all, order := a.options.Agents.Agents(), newNameList()
	for i := range all {
		order.entries = append(order.entries, entry[string]{0, all[i].Service + "\x00" + all[i].ID, int32(i)})
	}
	order.sort()
	items, next, err := order.page(pageOf(q.Limit, q.Cursor, "agents"), func(i int32) bool {
		x := &all[i]
		return value(q.Service, x.Service) == x.Service && string(value(q.State, contract.AgentState(x.State))) == string(x.State) &&
			(q.Q == nil || matches(x.Service+" "+x.ID+" "+x.Resource["host.name"]+" "+x.Resource["service.version"], q.Q))
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

// agentCounts returns the number of agents in each state.
func (a *API) agentCounts() contract.AgentCounts {
	if a.options.Agents == nil {
		return contract.AgentCounts{}
	}
	s := a.options.Agents.Summary()
	return contract.AgentCounts{Current: s.Current, Behind: s.Behind, Lost: s.Lost}
}

// agents emits the metrics of agents.
func (m *metrics) agents(e metric.Emitter) {
	if m.api.options.Agents == nil {
		return
	}
	s, n := m.api.options.Agents.Summary(), m.api.options.Agents.Counts()
	for _, x := range []struct {
		state control.State
		n     int
	}{{control.Current, s.Current}, {control.Behind, s.Behind}, {control.Lost, s.Lost}} {
		e.Gauge("agents", "Agents, by whether they applied the current plan.", float64(x.n), "state", string(x.state))
	}
	e.Gauge("agent_polls", "Agents waiting for a plan.", float64(s.Polls))
	e.Gauge("agent_catalogues", "Different catalogues of agents.", float64(s.Catalogues))
	e.Gauge("agent_tracepoints", "Tracepoints of different catalogues.", float64(s.Tracepoints))
	e.Counter("agent_registrations_total", "Accepted registrations of agents.", n.Registered.Load())
	e.Counter("agent_plans_total", "Plans sent to agents.", n.Plans.Load())
	e.Counter("agent_statuses_total", "Accepted statuses of agents.", n.Statuses.Load())
	e.Counter("agent_refused_total", "Refused requests of agents.", n.Refused.Load())
	e.Counter("agent_conflicts_total", "Messages of agents that used the ID of another agent.", n.Conflicts.Load())
	e.Counter("agent_expired_total", "Agents removed after a long silence.", n.Expired.Load())
	e.Counter("agent_displaced_total", "Agents removed to make room for agents with other tokens.", n.Displaced.Load())
}
