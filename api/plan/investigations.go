package api

import (
	"context"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/search"
)

// ListInvestigations implements contract.StrictServerInterface.
func (a *API) ListInvestigations(ctx context.Context, r contract.ListInvestigationsRequestObject) (contract.ListInvestigationsResponseObject, error) {
	q := &r.Params
	var list contract.ListInvestigations200JSONResponse
	refused := error(nil)
	err := a.ask(ctx, func(c *engine.View) {
		s := a.refresh(c)
		names := renderer{s.names(c), c}
		requestType, unknown := s.typeParameter(q.RequestType)
		all := c.Searches.State().Investigations
		order := newHashList()
		for i := range all {
			order.entries = append(order.entries, entry[analysis.Hash]{-float64(all[i].Changed), all[i].Subject.ID, int32(i)})
		}
		order.sort()
		keep := func(i int32) bool {
			v := &all[i]
			return !unknown && (requestType.IsZero() || v.RequestType == requestType) && (q.State == nil || string(*q.State) == v.Status.String())
		}
		items, next, cutErr := order.page(pageOf(q.Limit, q.Cursor, "investigations"), keep)
		refused = cutErr
		list = contract.ListInvestigations200JSONResponse{Items: make([]contract.Investigation, 0, len(items)), NextCursor: next, Epoch: s.epoch()}
		for _, i := range items {
			list.Items = append(list.Items, names.investigation(&all[i], shownSuspects))
		}
	})
	if err == nil {
		err = refused
	}
	return list, err
}

// GetInvestigation implements contract.StrictServerInterface.
func (a *API) GetInvestigation(ctx context.Context, r contract.GetInvestigationRequestObject) (contract.GetInvestigationResponseObject, error) {
	subject, err := parseSubject(r.Subject)
	if err != nil {
		return nil, notFound("investigation")
	}
	var d *contract.InvestigationDetail
	err = a.ask(ctx, func(c *engine.View) {
		if v := c.Searches.Investigation(subject); v != nil {
			d = a.renderer(c).investigationDetail(v)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return nil, notFound("investigation")
	}
	return contract.GetInvestigation200JSONResponse(*d), nil
}

// parseSubject returns the problem or the incident with an ID.
func parseSubject(id string) (search.Subject, error) {
	if len(id) == incidentDigits {
		incident, err := parseIncident(id)
		return search.OfIncident(incident), err
	}
	problem, err := analysis.ParseHash(id)
	return search.OfProblem(problem), err
}
