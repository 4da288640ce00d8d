package plan

import (
	"context"
	"log/slog"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// shownSuspects limits the number of suspects of an investigation in lists.
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

// Default durations for which a person's decision to start or end a search holds.
const (
	startedFor = time.Hour
	endedFor   = 24 * time.Hour
)

// SteerInvestigation implements contract.StrictServerInterface.
func (a *Plan) SteerInvestigation(
	ctx context.Context, r contract.SteerInvestigationRequestObject,
) (contract.SteerInvestigationResponseObject, error) {
	subject, err := parseSubject(r.Subject)
	if err != nil {
		return nil, query.NotFound("incident or problem")
	}
	now, who := a.options.Clock(), access.Caller(ctx).Name
	x := search.Steering{Subject: subject, By: who, Reason: query.Value(r.Body.Reason, "")}
	until := now.Add(startedFor)
	if r.Body.Kind == contract.SteeringRequestKindEnd {
		x.Ended, until = true, now.Add(endedFor)
	}
	if r.Body.Until != nil {
		until = *r.Body.Until
		if !until.After(now) || until.Year() > query.LastYear {
			return nil, refusal.New(refusal.Invalid, "until: want a time in the future", "")
		}
	}
	x.Until = trace.Nanos(until.UnixNano())
	searchable := false
	err = a.reader.Ask(ctx, func(c *engine.View) { searchable = c.Searches.Searched(subject) != nil })
	switch {
	case err != nil:
		return nil, err
	case !searchable:
		return nil, refusal.New(refusal.Conflict, "there is nothing to search: no open problem or incident with this "+
			"ID adds time to requests", "failures and missing requests show in the traces themselves")
	}
	switch room, err := a.reader.Change(ctx, engine.Change{Steer: &x}); {
	case err != nil:
		return nil, err
	case !room:
		return nil, refusal.New(refusal.Conflict, "too many searches are started or ended by people", "withdraw some")
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "search steered", slog.String("subject", r.Subject),
		slog.String("kind", string(r.Body.Kind)), slog.String("by", who))
	return contract.SteerInvestigation200JSONResponse(*render.Steering(&x)), nil
}

// WithdrawSteering implements contract.StrictServerInterface.
func (a *Plan) WithdrawSteering(
	ctx context.Context, r contract.WithdrawSteeringRequestObject,
) (contract.WithdrawSteeringResponseObject, error) {
	subject, err := parseSubject(r.Subject)
	if err != nil {
		return nil, query.NotFound("incident or problem")
	}
	x := search.Steering{Subject: subject, By: access.Caller(ctx).Name}
	if _, err := a.reader.Change(ctx, engine.Change{Steer: &x}); err != nil {
		return nil, err
	}
	return contract.WithdrawSteering204Response{}, nil
}

// parseSubject parses the ID of a problem or an incident. The two kinds of ID differ in length.
func parseSubject(id string) (search.Subject, error) {
	if len(id) == render.IncidentDigits {
		incident, err := render.ParseIncident(id)
		return search.OfIncident(incident), err
	}
	problem, err := analysis.ParseHash(id)
	return search.OfProblem(problem), err
}
