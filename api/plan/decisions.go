package plan

import (
	"context"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/decisionlog"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/search"
)

// ListDecisions implements contract.StrictServerInterface.
func (a *Plan) ListDecisions(
	ctx context.Context, r contract.ListDecisionsRequestObject,
) (contract.ListDecisionsResponseObject, error) {
	q := &r.Params
	p := query.PageOf(q.Limit, q.Cursor, "decisions")
	wanted := decisionlog.Query{Limit: p.Limit}
	var err error
	if wanted.From, wanted.To, err = query.ParseInterval(q.From, q.To); err != nil {
		return nil, err
	}
	switch {
	case q.Problem != nil && q.Incident != nil:
		return nil, refusal.New(refusal.Invalid, "incident: cannot be combined with problem", "")
	case q.Incident != nil:
		id, err := render.ParseIncident(*q.Incident)
		if err != nil {
			return nil, query.NotFound("incident")
		}
		wanted.Subject = search.OfIncident(id)
	case q.Problem != nil:
		id, err := analysis.ParseHash(*q.Problem)
		if err != nil {
			return nil, query.NotFound("problem")
		}
		wanted.Subject = search.OfProblem(id)
	}
	if p.Cursor != nil && *p.Cursor != "" {
		c, err := query.ParseCursor(*p.Cursor, p.Sort)
		if err != nil {
			return nil, err
		}
		var ok bool
		if wanted.Before, ok = decisionlog.ParseID(c.ID); !ok {
			return nil, query.ErrCursor
		}
	}
	decisions, next, err := decisionlog.Find(ctx, a.log, wanted)
	if err != nil {
		return nil, err
	}
	list := contract.ListDecisions200JSONResponse{}
	if next != nil {
		list.NextCursor = new(query.Cursor{Sort: p.Sort, ID: next.String()}.String())
	}
	list.Items, err = a.decisions(ctx, decisions)
	return list, err
}

// decisions converts decisions to the types of the contract.
func (a *Plan) decisions(ctx context.Context, decisions []decisionlog.Logged) ([]contract.Decision, error) {
	all := make([]contract.Decision, 0, len(decisions))
	if len(decisions) == 0 {
		return all, nil
	}
	err := a.reader.Ask(ctx, func(c *engine.View) {
		names := a.reader.Renderer(c)
		for _, d := range decisions {
			all = append(all, names.Decision(&d))
		}
	})
	return all, err
}

// GetDecision implements contract.StrictServerInterface.
func (a *Plan) GetDecision(
	ctx context.Context, r contract.GetDecisionRequestObject,
) (contract.GetDecisionResponseObject, error) {
	id, ok := decisionlog.ParseID(r.Decision)
	if !ok {
		return nil, query.NotFound("decision")
	}
	found, err := decisionlog.Get(a.log, id)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, query.NotFound("decision")
	}
	all, err := a.decisions(ctx, found)
	if err != nil {
		return nil, err
	}
	return contract.GetDecision200JSONResponse(all[0]), nil
}
