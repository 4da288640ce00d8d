package services

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/sibyl-trace/sibyl/analysis/history"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// GetService implements contract.StrictServerInterface.
func (a *Services) GetService(
	ctx context.Context, r contract.GetServiceRequestObject,
) (contract.GetServiceResponseObject, error) {
	var d *contract.GetService200JSONResponse
	q := &r.Params
	err := a.askServices(ctx, q.From, q.To, func(c *engine.View, s *epoch.Snapshot, t *serviceTable, _ serviceKey) {
		i := slices.IndexFunc(t.rows, func(x contract.Service) bool {
			return x.ID == r.Service || x.Service == r.Service
		})
		if i < 0 {
			return
		}
		service := t.uses.Services[i].Service
		key := serviceKey{from: t.uses.From, to: t.uses.Now.To}
		if t.live {
			key.to = s.Ended
			if from := t.rows[i].NowFrom; from != nil {
				key.now = trace.Nanos(from.UnixNano())
			}
		}
		detailed := newServiceTable(c, s, key, service)
		i = slices.IndexFunc(detailed.uses.Services, func(x history.ServiceUse) bool { return x.Service == service })
		d = detailed.detail(c, i)
	})
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, refusal.New(refusal.NotFound, "no such service in the last two hours", "/services lists them")
	}
	d.Service.Owner = render.Owner(a.directory(), d.Service.Service)
	return *d, nil
}

// detail returns the service at index i with its parts and neighbours.
func (t *serviceTable) detail(c *engine.View, i int) *contract.GetService200JSONResponse {
	x, names := &t.uses.Services[i], c.Table
	d := &contract.GetService200JSONResponse{
		Service:        t.rows[i],
		Operations:     []contract.ServiceOperation{},
		Inside:         []contract.ServiceSpans{},
		Instances:      []contract.ServiceInstance{},
		Callers:        []contract.ServiceCall{},
		Callees:        []contract.ServiceCall{},
		Annotations:    []contract.Annotation{},
		From:           render.At(t.uses.From),
		To:             render.At(t.uses.Now.To),
		NowFrom:        render.At(t.uses.Now.From),
		BinNs:          int(t.uses.Bin),
		MoreOperations: max(0, len(x.Operations)-shownServiceOperations),
	}
	for k := range x.Operations[:min(len(x.Operations), shownServiceOperations)] {
		o := &x.Operations[k]
		op := contract.ServiceOperation{
			Operation: names.OpName(o.Op), Kind: names.Operation(o.Op).Kind.String(), Trend: t.trend(o.Series),
		}
		latest, usual := c.Spans.Latest(o.Op, t.onset), c.Spans.Usual(o.Op)
		op.Now, op.Usual = t.loads(&o.Use, &latest, &usual)
		op.Worse = worse(&op.Now, op.Usual, t.tail(&latest, &usual))
		op.State, op.Reason = stateOf(&op.Now, op.Usual, op.Worse, t.quiet(&o.Use))
		op.State, op.Reason = t.affectedState(o.Op, op.State, op.Reason)
		d.Operations = append(d.Operations, op)
	}
	d.Inside = t.inside(c, x)
	for _, y := range c.History.Instances.Uses(x.Service, t.uses.Now, t.uses.From) {
		var spans stats.Ranks
		if t.live {
			k := history.InstanceKey{Service: x.Service, Key: y.Key, Value: y.Value}
			spans = c.History.Durations.Latest(k, t.onset, t.uses.Now.To)
		}
		d.Instances = append(d.Instances, contract.ServiceInstance{
			Key:       names.Text(y.Key),
			Value:     names.Text(y.Value),
			FirstSeen: render.At(y.First),
			LastSeen:  render.At(y.Last),
			Now:       loadOf(y.Now, t.uses.Now.To.Sub(t.uses.Now.From), &spans),
		})
	}
	for k := range t.calls {
		switch call := t.calls[k]; d.Service.Service {
		case call.Caller:
			d.Callees = append(d.Callees, call)
		case call.Callee:
			d.Callers = append(d.Callers, call)
		}
	}
	sortCalls(d.Callers)
	sortCalls(d.Callees)
	for _, y := range slices.Backward(c.Annotations) {
		if (y.Service == x.Service || y.Service == 0) && len(d.Annotations) < shownAnnotations {
			d.Annotations = append(d.Annotations, render.Annotation(names, &y))
		}
	}
	return d
}

// inside returns the operations of a service that no other service calls, and the calls that the service makes, ordered
// by total time, longest first. The result is empty unless the table is live.
func (t *serviceTable) inside(c *engine.View, x *history.ServiceUse) []contract.ServiceSpans {
	all, total := []contract.ServiceSpans{}, make(map[string]float64) // ns by name
	if !t.live {
		return all
	}
	names, entries := c.Table, make(map[trace.Op]bool)
	for i := range x.Operations {
		entries[x.Operations[i].Op] = true
	}
	for op := range c.Spans.LatestOps() {
		o := names.Operation(op)
		if o.Service != x.Service || entries[op] || entries[names.Base(op)] {
			continue
		}
		latest, usual := c.Spans.Latest(op, t.onset), c.Spans.Usual(op)
		if latest.Count() == 0 {
			continue
		}
		from, to := c.Spans.Measured(op, t.onset)
		s := contract.ServiceSpans{
			Operation: names.OpName(op),
			Name:      names.OpName(op),
			Kind:      o.Kind.String(),
			Spans:     int64(latest.Count()),
			From:      render.At(max(from, t.onset)),
			To:        render.At(min(to, t.uses.Now.To)),
			MeanNs:    latest.Sum() / float64(latest.Count()),
			P50Ns:     latest.Quantile(0.5),
			P99Ns:     latest.Quantile(0.99),
		}
		if o.Target != 0 {
			s.Name += " → " + strings.TrimSpace(names.ServiceName(o.Target)+" "+names.OpName(o.Target))
		}
		if usual.Count() > 0 {
			s.UsualP50Ns, s.UsualP99Ns = new(usual.Quantile(0.5)), new(usual.Quantile(0.99))
		}
		all = append(all, s)
		total[s.Name] += latest.Sum()
	}
	sorting.SliceStable(all, func(a, b contract.ServiceSpans) int {
		return cmp.Or(cmp.Compare(total[b.Name], total[a.Name]), strings.Compare(a.Name, b.Name),
			strings.Compare(a.Kind, b.Kind))
	})
	return all[:min(len(all), shownInside)]
}
