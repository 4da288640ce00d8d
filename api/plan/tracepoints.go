package plan

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/cct"
	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/trace"
)

// point is a tracepoint with its state and cost.
type point struct {
	id           trace.Symbol
	op           trace.Op
	layer        cct.Layer
	kind         cct.TracepointKind
	baseline     bool
	name         string
	state        contract.TracepointState
	cost         search.Usage
	requestTypes int
}

// pointsOf returns all tracepoints that appear in agents' catalogues, in trees, in the plan or in an override. Costs
// are estimated from the trees built so far, as if the tracepoints were on in all requests.
func pointsOf(c *engine.View) map[trace.Symbol]*point {
	points := make(map[trace.Symbol]*point)
	of := func(id trace.Symbol) *point {
		p := points[id]
		if p == nil {
			p = &point{id: id}
			points[id] = p
		}
		return p
	}
	for t := range c.Offers.Catalogue() {
		p := of(t.ID)
		p.op, p.layer, p.kind, p.baseline = t.Op, t.Layer, t.Kind, t.Baseline
	}
	for id, t := range c.Trees.All() {
		rate := c.Rate(id)
		for i := range t.Nodes {
			n := &t.Nodes[i]
			if n.Tracepoint == 0 {
				continue
			}
			p := of(n.Tracepoint)
			if p.op == 0 {
				p.op, p.layer, p.kind = n.Op, n.Layer, n.Kind
			}
			if hits := n.HitRate() * rate; hits > 0 {
				p.cost.Hits += hits
				p.cost.Bytes += hits * float64(n.Bytes)
				p.cost.CPU += hits * n.Cost.Seconds()
			}
			if t.At(n.Tracepoint)[0] == int32(i) {
				p.requestTypes++
			}
		}
	}
	for _, l := range c.Searches.Plan().Leases {
		of(l.Tracepoint)
	}
	for _, w := range c.Searches.State().Overrides {
		of(w.Tracepoint)
	}
	states, names := render.NewStates(c), render.New(describe.New(c.Table, describe.Verbatim), c)
	for id, p := range points {
		p.name, p.state = names.Tracepoint(id), states.Of(id)
		p.cost.Tracepoints = 1
		if p.baseline {
			p.state = contract.TracepointStateBaseline
		}
	}
	return points
}

// stateOrder is the order of states in lists.
var stateOrder = []contract.TracepointState{
	contract.TracepointStateOn, contract.TracepointStatePending, contract.TracepointStateForbidden,
	contract.TracepointStateOff, contract.TracepointStateBaseline,
}

// ListTracepoints implements contract.StrictServerInterface.
func (a *Plan) ListTracepoints(
	ctx context.Context, r contract.ListTracepointsRequestObject,
) (contract.ListTracepointsResponseObject, error) {
	q := &r.Params
	sort := query.Value(q.Sort, contract.ListTracepointsParamsSortState)
	var list contract.ListTracepoints200JSONResponse
	var refused error
	err := a.reader.Ask(ctx, func(c *engine.View) {
		s := a.reader.Refresh(c)
		names := renderer{s.Renderer(c)}
		order := query.NewNameList()
		var all []*point
		for _, p := range pointsOf(c) {
			order.Add(sortKey(p, sort), p.name+"\x00"+render.Hex16(p.id), int32(len(all)))
			all = append(all, p)
		}
		order.Sort()
		keep := func(i int32) bool {
			p := all[i]
			return query.Value(q.State, p.state) == p.state &&
				(q.Q == nil || query.Matches(p.name+" "+names.Op(p.op)+" "+render.Hex16(p.id), q.Q))
		}
		var items []int32
		var next *string
		items, next, refused = order.Page(query.PageOf(q.Limit, q.Cursor, string(sort)), keep)
		list = contract.ListTracepoints200JSONResponse{
			Items: make([]contract.Tracepoint, 0, len(items)), NextCursor: next, Epoch: s.Epoch(),
		}
		for _, i := range items {
			list.Items = append(list.Items, names.point(c, all[i]))
		}
	})
	return list, cmp.Or(err, refused)
}

func sortKey(p *point, sort contract.ListTracepointsParamsSort) float64 {
	switch sort {
	case contract.ListTracepointsParamsSortState:
		return float64(slices.Index(stateOrder, p.state))
	case contract.ListTracepointsParamsSortBytes:
		return -p.cost.Bytes
	case contract.ListTracepointsParamsSortCPU:
		return -p.cost.CPU
	case contract.ListTracepointsParamsSortName:
	}
	return 0
}

func (r renderer) point(c *engine.View, p *point) contract.Tracepoint {
	x := contract.Tracepoint{
		ID:           render.Hex16(p.id),
		Name:         p.name,
		Operation:    r.Op(p.op),
		Layer:        contract.TracepointLayer(p.layer.String()),
		Kind:         contract.TracepointKind(p.kind.String()),
		State:        p.state,
		Cost:         render.Usage(p.cost),
		Leases:       []contract.Lease{},
		RequestTypes: p.requestTypes,
	}
	plan := c.Searches.Plan()
	share := 0.
	for i := range plan.Leases {
		if l := &plan.Leases[i]; l.Tracepoint == p.id {
			share += plan.Arms[l.Arm].Share
			x.Leases = append(x.Leases, r.lease(plan, l))
		}
	}
	x.Share = render.Number(share)
	for _, w := range c.Searches.State().Overrides {
		if w.Tracepoint == p.id {
			kind := contract.OverrideKind(w.Kind.String())
			x.Override = &contract.Override{Kind: kind, Forced: w.Forced, By: w.By, Until: render.Instant(w.Until)}
		}
	}
	return x
}

func (r renderer) lease(plan *search.Plan, l *search.Lease) contract.Lease {
	owner, incident := render.Subject(l.Owner)
	return contract.Lease{
		Arm:      search.ArmName(plan.Arms[l.Arm].Name),
		Since:    render.At(l.Since),
		Expires:  render.At(l.Expires),
		Cause:    l.Cause,
		Owner:    owner,
		Incident: incident,
		Pinned:   l.Pinned,
	}
}

// GetTracepoint implements contract.StrictServerInterface.
func (a *Plan) GetTracepoint(
	ctx context.Context, r contract.GetTracepointRequestObject,
) (contract.GetTracepointResponseObject, error) {
	x, _, err := a.tracepoint(ctx, r.Tracepoint)
	return contract.GetTracepoint200JSONResponse(x), err
}

// tracepoint returns the tracepoint with the hexadecimal ID text. It returns a refusal if there is no such tracepoint,
// or if it belongs to the baseline, which is always on.
func (a *Plan) tracepoint(ctx context.Context, text string) (x contract.Tracepoint, id trace.Symbol, err error) {
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return x, 0, query.NotFound("tracepoint")
	}
	id = trace.Symbol(n)
	found := false
	err = a.reader.Ask(ctx, func(c *engine.View) {
		if p := pointsOf(c)[id]; p != nil && !p.baseline {
			found = true
			x = renderer{a.reader.Renderer(c)}.point(c, p)
		}
	})
	if err == nil && !found {
		err = query.NotFound("tracepoint outside of the baseline")
	}
	return x, id, err
}

// enabledFor is the default duration of an override that enables a tracepoint.
const enabledFor = time.Hour

// OverrideTracepoint implements contract.StrictServerInterface.
func (a *Plan) OverrideTracepoint(
	ctx context.Context, r contract.OverrideTracepointRequestObject,
) (contract.OverrideTracepointResponseObject, error) {
	now := a.options.Clock()
	who := access.Caller(ctx)
	w := search.Override{Forced: query.Value(r.Body.Force, false), By: who.Name}
	switch r.Body.Kind {
	case contract.OverrideRequestKindEnable:
		w.Kind, w.Until = search.Enable, trace.Nanos(now.Add(enabledFor).UnixNano())
	case contract.OverrideRequestKindPin:
		w.Kind = search.Pin
	case contract.OverrideRequestKindForbid:
		w.Kind = search.Forbid
	}
	if until := r.Body.Until; until != nil {
		if !until.After(now) || until.Year() > query.LastYear {
			return nil, refusal.New(refusal.Invalid, "until: want a time in the future", "")
		}
		w.Until = trace.Nanos(until.UnixNano())
	}
	switch {
	case w.Forced && !who.Role.Allows(access.Admin):
		return nil, refusal.New(refusal.Forbidden, "forcing a tracepoint on beyond the budget needs a token with "+
			"the role admin; yours is "+string(who.Role), "")
	case w.Forced && w.Kind == search.Forbid:
		return nil, refusal.New(refusal.Invalid, "force: a forbidden tracepoint is off anyway", "")
	}
	_, id, err := a.tracepoint(ctx, r.Tracepoint)
	if err != nil {
		return nil, err
	}
	w.Tracepoint = id
	switch room, err := a.reader.Change(ctx, engine.Change{Override: &w}); {
	case err != nil:
		return nil, err
	case !room:
		return nil, refusal.New(refusal.Conflict, "too many tracepoints have an override", "withdraw some")
	}
	x, _, err := a.tracepoint(ctx, r.Tracepoint)
	if err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "tracepoint overridden", slog.String("tracepoint", x.Name),
		slog.String("kind", w.Kind.String()), slog.Bool("forced", w.Forced), slog.String("by", who.Name))
	return contract.OverrideTracepoint200JSONResponse(x), nil
}

// WithdrawOverride implements contract.StrictServerInterface.
func (a *Plan) WithdrawOverride(
	ctx context.Context, r contract.WithdrawOverrideRequestObject,
) (contract.WithdrawOverrideResponseObject, error) {
	x, id, err := a.tracepoint(ctx, r.Tracepoint)
	if err != nil {
		return nil, err
	}
	withdrawn, err := a.reader.Change(ctx, engine.Change{Withdraw: id, By: access.Caller(ctx).Name})
	if err != nil {
		return nil, err
	}
	if withdrawn {
		a.options.Log.LogAttrs(ctx, slog.LevelInfo, "override of a tracepoint withdrawn",
			slog.String("tracepoint", x.Name), slog.String("by", access.Caller(ctx).Name))
	}
	return contract.WithdrawOverride204Response{}, nil
}

// GetPlan implements contract.StrictServerInterface.
func (a *Plan) GetPlan(ctx context.Context, _ contract.GetPlanRequestObject) (contract.GetPlanResponseObject, error) {
	var d contract.GetPlan200JSONResponse
	return &d, a.reader.Ask(ctx, func(c *engine.View) {
		names := renderer{a.reader.Renderer(c)}
		plan := c.Searches.Plan()
		d = contract.GetPlan200JSONResponse{
			Version: plan.Version,
			Epoch:   render.Instant(c.Ended),
			Agents:  a.agentCounts(),
			Arms:    make([]contract.Arm, len(plan.Arms)),
		}
		for i := range plan.Arms {
			x := &plan.Arms[i]
			d.Arms[i] = contract.Arm{
				Name:        search.ArmName(x.Name),
				Share:       render.Number(x.Share),
				Tracepoints: []contract.PlannedTracepoint{},
			}
		}
		for i := range plan.Leases {
			l := &plan.Leases[i]
			x := &d.Arms[l.Arm]
			x.Tracepoints = append(x.Tracepoints, contract.PlannedTracepoint{
				ID: render.Hex16(l.Tracepoint), Name: names.Tracepoint(l.Tracepoint), Lease: names.lease(plan, l),
			})
		}
	})
}

// GetBudget implements contract.StrictServerInterface.
func (a *Plan) GetBudget(
	ctx context.Context, _ contract.GetBudgetRequestObject,
) (contract.GetBudgetResponseObject, error) {
	var d contract.GetBudget200JSONResponse
	return &d, a.reader.Ask(ctx, func(c *engine.View) {
		b, overrun, m := c.Options.Budget, c.Searches.State().Overrun, c.Offers.Measured()
		d = contract.GetBudget200JSONResponse{
			Total:    render.Limit(b.Tracepoints, b.Bytes, b.CPU),
			Service:  render.Limit(b.Service.Tracepoints, b.Service.Bytes, b.Service.CPU),
			Estimate: render.Usage(estimate(c)),
			Measured: contract.Usage{
				Tracepoints: len(pointsOn(c.Searches.Plan())),
				Hits:        render.Number(m.Hits),
				Bytes:       render.Number(m.Bytes),
				CPU:         render.Number(m.CPU),
			},
			MeasuredPlan: m.Plan,
			OverrunBytes: render.Number(overrun.Bytes),
			OverrunCPU:   render.Number(overrun.CPU),
		}
	})
}

// estimate returns the estimated cost of the plan.
func estimate(c *engine.View) search.Usage {
	points := pointsOf(c)
	plan := c.Searches.Plan()
	var all search.Usage
	for i := range plan.Leases {
		l := &plan.Leases[i]
		u, share := &points[l.Tracepoint].cost, plan.Arms[l.Arm].Share
		all.Hits += u.Hits * share
		all.Bytes += u.Bytes * share
		all.CPU += u.CPU * share
	}
	all.Tracepoints = len(pointsOn(plan))
	return all
}

// pointsOn returns the tracepoints that are on in a plan.
func pointsOn(plan *search.Plan) map[trace.Symbol]bool {
	on := make(map[trace.Symbol]bool)
	for i := range plan.Leases {
		on[plan.Leases[i].Tracepoint] = true
	}
	return on
}
