package api

import (
	"context"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/trace"
)

// ListDeploys implements contract.StrictServerInterface.
func (a *API) ListDeploys(ctx context.Context, r contract.ListDeploysRequestObject) (contract.ListDeploysResponseObject, error) {
	q := &r.Params
	from, to, err := parseInterval(q.From, q.To)
	if err != nil {
		return nil, err
	}
	var all []contract.Deploy
	order := newNameList()
	err = a.ask(ctx, func(c *engine.View) {
		for _, d := range c.Deploys {
			x := deployOf(c.Table, d)
			if d.At < from || to != 0 && d.At >= to || value(q.Service, x.Service) != x.Service {
				continue
			}
			order.entries = append(order.entries, entry[string]{-float64(d.At), x.ID, int32(len(all))})
			all = append(all, x)
		}
	})
	if err != nil {
		return nil, err
	}
	order.sort()
	items, next, err := order.page(pageOf(q.Limit, q.Cursor, "deploys"), func(int32) bool { return true })
	list := contract.ListDeploys200JSONResponse{Items: []contract.Deploy{}, NextCursor: next}
	for _, i := range items {
		list.Items = append(list.Items, all[i])
	}
	return list, err
}

func deployOf(names *trace.Table, d engine.Deploy) contract.Deploy {
	return contract.Deploy{
		ID: hex16(trace.Mix(trace.Mix(uint64(d.Service), uint64(d.Version)), uint64(d.At))), At: at(d.At),
		Service: names.Text(d.Service), Version: names.Text(d.Version), Before: names.Text(d.Before),
	}
}
