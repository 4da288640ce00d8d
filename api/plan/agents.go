package plan

import (
	"context"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/control"
)

// ListAgents implements contract.StrictServerInterface.
func (a *Plan) ListAgents(
	_ context.Context, r contract.ListAgentsRequestObject,
) (contract.ListAgentsResponseObject, error) {
	q := &r.Params
	list := contract.ListAgents200JSONResponse{Items: []contract.Agent{}, Total: a.agentCounts()}
	if a.options.Agents == nil {
		return list, nil
	}
	all, order := a.options.Agents.Agents(), query.NewNameList()
	for i := range all {
		order.Add(0, all[i].Service+"\x00"+all[i].ID, int32(i))
	}
	order.Sort()
	items, next, err := order.Page(query.PageOf(q.Limit, q.Cursor, "agents"), func(i int32) bool {
		x := &all[i]
		state := contract.AgentState(x.State)
		text := x.Service + " " + x.ID + " " + x.Resource["host.name"] + " " + x.Resource["service.version"]
		return query.Value(q.Service, x.Service) == x.Service && query.Value(q.State, state) == state &&
			(q.Q == nil || query.Matches(text, q.Q))
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
		ID:                x.ID,
		Service:           x.Service,
		Transport:         x.Transport,
		State:             contract.AgentState(x.State),
		Resource:          resource,
		Capabilities:      capabilities,
		Since:             x.Since.UTC(),
		Seen:              x.Seen.UTC(),
		Catalogue:         x.Tracepoints,
		CatalogueComplete: !x.Incomplete,
		Plan:              x.Version,
		Applied:           x.Applied,
		Failed:            x.Failed,
		Conflicts:         x.Conflicts,
		Hits:              int64(x.Hits),
		Drops:             int64(x.Drops),
		Usage:             render.Usage(x.Usage),
	}
	if x.Problem != "" {
		d.Problem = &x.Problem
	}
	return d
}

// agentCounts returns the number of agents in each state.
func (a *Plan) agentCounts() contract.AgentCounts {
	if a.options.Agents == nil {
		return contract.AgentCounts{}
	}
	s := a.options.Agents.Summary()
	return contract.AgentCounts{Current: s.Current, Behind: s.Behind, Lost: s.Lost}
}
