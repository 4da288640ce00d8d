package plan

import (
	"context"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
)

// shownSuspects limits the suspects of an investigation in lists.
const shownSuspects = 3

// ListInvestigations implements contract.StrictServerInterface.
func (a *Plan) ListInvestigations(
	ctx context.Context, r contract.ListInvestigationsRequestObject,
) (contract.ListInvestigationsResponseObject, error) {
	q := &r.Params
	var list contract.ListInvestigations200JSONResponse
	refused := error(nil)
	err := a.reader.Ask(ctx, func(c *engine.View) {
		s := a.reader.Refresh(c)
		names := s.Renderer(c)
		requestType, unknown := s.TypeParameter(q.RequestType)
		all := c.Searches.State().Investigations
		order := query.NewHashList()
		for i := range all {
			order.Add(-float64(all[i].Changed), all[i].Subject.ID, int32(i))
		}
		order.Sort()
		keep := func(i int32) bool {
			v := &all[i]
			return !unknown && (requestType.IsZero() || v.RequestType == requestType) &&
				(q.State == nil || string(*q.State) == v.Status.String())
		}
		items, next, cutErr := order.Page(query.PageOf(q.Limit, q.Cursor, "investigations"), keep)
		refused = cutErr
		list = contract.ListInvestigations200JSONResponse{
			Items: make([]contract.Investigation, 0, len(items)), NextCursor: next, Epoch: s.Epoch(),
		}
		for _, i := range items {
			list.Items = append(list.Items, names.Investigation(&all[i], shownSuspects))
		}
	})
	if err == nil {
		err = refused
	}
	return list, err
}

// GetInvestigation implements contract.StrictServerInterface.
func (a *Plan) GetInvestigation(
	ctx context.Context, r contract.GetInvestigationRequestObject,
) (contract.GetInvestigationResponseObject, error) {
	subject, err := parseSubject(r.Subject)
	if err != nil {
		return nil, query.NotFound("investigation")
	}
	var d *contract.InvestigationDetail
	err = a.reader.Ask(ctx, func(c *engine.View) {
		if v := c.Searches.Investigation(subject); v != nil {
			d = a.reader.Renderer(c).InvestigationDetail(v)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return nil, query.NotFound("investigation")
	}
	return contract.GetInvestigation200JSONResponse(*d), nil
}

// parseSubject parses the ID of a problem or an incident, which differ in length.
func parseSubject(id string) (search.Subject, error) {
	if len(id) == render.IncidentDigits {
		incident, err := render.ParseIncident(id)
		return search.OfIncident(incident), err
	}
	problem, err := analysis.ParseHash(id)
	return search.OfProblem(problem), err
}
