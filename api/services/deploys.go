package services

import (
	"context"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
)

// ListDeploys implements contract.StrictServerInterface.
func (a *Services) ListDeploys(
	ctx context.Context, r contract.ListDeploysRequestObject,
) (contract.ListDeploysResponseObject, error) {
	q := &r.Params
	from, to, err := query.ParseInterval(q.From, q.To)
	if err != nil {
		return nil, err
	}
	var all []contract.Deploy
	order := query.NewNameList()
	err = a.reader.Ask(ctx, func(c *engine.View) {
		for _, d := range c.Deploys {
			x := render.Deploy(c.Table, d)
			if d.At < from || to != 0 && d.At >= to || query.Value(q.Service, x.Service) != x.Service {
				continue
			}
			order.Add(-float64(d.At), x.ID, int32(len(all)))
			all = append(all, x)
		}
	})
	if err != nil {
		return nil, err
	}
	order.Sort()
	items, next, err := order.Page(query.PageOf(q.Limit, q.Cursor, "deploys"), func(int32) bool { return true })
	list := contract.ListDeploys200JSONResponse{Items: []contract.Deploy{}, NextCursor: next}
	for _, i := range items {
		list.Items = append(list.Items, all[i])
	}
	return list, err
}
