package operating

import (
	"context"
	"errors"

	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
)

// auditOrder names the only order of audit entries in cursors.
const auditOrder = "audit"

// ListAudit implements contract.StrictServerInterface.
func (a *Operating) ListAudit(
	ctx context.Context, r contract.ListAuditRequestObject,
) (contract.ListAuditResponseObject, error) {
	from, to, err := query.ParseInterval(r.Params.From, r.Params.To)
	if err != nil {
		return nil, err
	}
	p := query.PageOf(r.Params.Limit, r.Params.Cursor, auditOrder)
	q := audit.Query{Who: query.Value(r.Params.Who, ""), Operation: query.Value(r.Params.Operation, ""), Limit: p.Limit}
	if from != 0 {
		q.From = render.At(from)
	}
	if to != 0 {
		q.To = render.At(to)
	}
	if p.Cursor != nil && *p.Cursor != "" {
		c, err := query.ParseCursor(*p.Cursor, p.Sort)
		if err != nil {
			return nil, err
		}
		q.After = c.ID
	}
	page, err := a.options.Audit.List(ctx, q)
	if errors.Is(err, audit.ErrCursor) {
		return nil, query.ErrCursor
	}
	if err != nil {
		return nil, err
	}
	list := contract.ListAudit200JSONResponse{Items: page.Entries, Unreadable: page.Unreadable}
	if page.Next != "" {
		list.NextCursor = new(query.Cursor{Sort: p.Sort, ID: page.Next}.String())
	}
	return list, nil
}
