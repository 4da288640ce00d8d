// Package services serves the list of services, their figures, the map of calls between them, and annotations.
package services

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on responses about services.
const (
	shownServiceOperations = 500
	shownInside            = 100 // operations inside a service
	shownAnnotations       = 20
	mappedServices         = 2000
	mappedCalls            = 10_000
	keptServiceTables      = 8 // of the latest snapshot
)

// Services serves services and annotations. It is safe for concurrent use.
type Services struct {
	reader    *epoch.Reader
	directory func() *directory.Directory // owners of services
	clock     func() time.Time

	mu     sync.Mutex                   // guards the fields below
	of     *epoch.Snapshot              // snapshot that the tables belong to
	tables map[serviceKey]*serviceTable // nil before the first
	few    *contract.FewCalls           // nil if not yet known
	fewAt  trace.Nanos                  // end of the epoch of few
}

// New returns handlers that take the owners of services from a directory.
func New(r *epoch.Reader, directory func() *directory.Directory, clock func() time.Time) *Services {
	return &Services{reader: r, directory: directory, clock: clock}
}

// table returns the table of all services for the time span in key as of s; a bound of 0 means the default. It returns
// ErrOrder if the span is empty. table reads c, so it must be called while the core may be read.
func (a *Services) table(c *engine.View, s *epoch.Snapshot, key serviceKey) (*serviceTable, error) {
	if key.to == 0 || key.to > s.Ended {
		key.to = s.Ended
	}
	if key.from == 0 {
		key.from = key.to.Add(-trendLength)
	}
	if key.from >= key.to && s.Ended != 0 {
		return nil, query.ErrOrder
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if t := a.tables[key]; t != nil && a.of == s {
		return t, nil
	}
	if a.of != s || len(a.tables) >= keptServiceTables {
		a.of, a.tables = s, make(map[serviceKey]*serviceTable)
	}
	t := newServiceTable(c, s, key, 0)
	a.tables[key] = t
	return t, nil
}

// Attention returns the services that are failing, silent or slower as of s. It omits the first suspects of open
// incidents, because they have another state. Attention reads c, so it must be called while the core may be read.
func (a *Services) Attention(c *engine.View, s *epoch.Snapshot) ([]contract.ServiceAttention, error) {
	t, err := a.table(c, s, serviceKey{})
	if err != nil {
		return nil, err
	}
	found := []contract.ServiceAttention{}
	for _, state := range []contract.ServiceState{
		contract.ServiceStateFailing,
		contract.ServiceStateSilent, contract.ServiceStateSlower,
	} {
		for i := range t.rows {
			if x := &t.rows[i]; x.State == state {
				found = append(found, contract.ServiceAttention{
					ID:      x.ID,
					Service: x.Service,
					State:   x.State,
					Reason:  x.Reason,
				})
			}
		}
	}
	return found, nil
}

// askServices calls read with the table of services for the time span between `from` and `to`, which are parameters of
// a request and may be nil.
func (a *Services) askServices(
	ctx context.Context, from, to *string, read func(*engine.View, *epoch.Snapshot, *serviceTable, serviceKey),
) error {
	var key serviceKey
	var err error
	if key.from, key.to, err = query.ParseInterval(from, to); err != nil {
		return err
	}
	failure := a.reader.Ask(ctx, func(c *engine.View) {
		s := a.reader.Refresh(c)
		t, refused := a.table(c, s, key)
		if err = refused; err == nil {
			read(c, s, t, key)
		}
	})
	return cmp.Or(failure, err)
}

// ListServices implements contract.StrictServerInterface.
func (a *Services) ListServices(
	ctx context.Context, r contract.ListServicesRequestObject,
) (contract.ListServicesResponseObject, error) {
	q := &r.Params
	var t *serviceTable
	var list contract.ListServices200JSONResponse
	err := a.askServices(ctx, q.From, q.To, func(c *engine.View, s *epoch.Snapshot, table *serviceTable, _ serviceKey) {
		t = table
		list = contract.ListServices200JSONResponse{
			Items:    []contract.Service{},
			Epoch:    s.Epoch(),
			Learning: !s.Watching,
			States:   make(map[string]int),
			FewCalls: *t.fewCalls(c.Table),
		}
	})
	if err != nil {
		return nil, err
	}
	list.From, list.To, list.NowFrom = render.At(t.uses.From), render.At(t.uses.Now.To), render.At(t.uses.Now.From)
	list.BinNs = int(t.uses.Bin)
	sort := query.Value(q.Sort, contract.ListServicesParamsSortState)
	order := query.NewNameList()
	for i := range t.rows {
		list.States[string(t.rows[i].State)]++
		order.Add(serviceSortKey(&t.rows[i], sort), t.rows[i].Service, int32(i))
	}
	order.Sort()
	keep := func(i int32) bool {
		s := &t.rows[i]
		return query.Matches(s.Service, q.Q) && (q.State == nil || *q.State == s.State)
	}
	items, next, err := order.Page(query.PageOf(q.Limit, q.Cursor, "services by "+string(sort)), keep)
	if err != nil {
		return nil, err
	}
	list.NextCursor, list.Total = next, order.Count(keep)
	directory := a.directory()
	for _, i := range items {
		x := t.rows[i]
		x.Owner = render.Owner(directory, x.Service)
		list.Items = append(list.Items, x)
	}
	return list, nil
}

// serviceSortKey returns the key to sort services by, in ascending order with NaN last.
func serviceSortKey(s *contract.Service, sort contract.ListServicesParamsSort) float64 {
	falling := func(x *float64) float64 { return -query.Value(x, math.NaN()) }
	switch sort {
	case contract.ListServicesParamsSortRate:
		return -s.Now.Rate
	case contract.ListServicesParamsSortFailed:
		return falling(s.Now.Failed)
	case contract.ListServicesParamsSortP50:
		return falling(s.Now.P50Ns)
	case contract.ListServicesParamsSortP99:
		return falling(s.Now.P99Ns)
	case contract.ListServicesParamsSortOwn:
		return falling(s.Now.OwnNs)
	case contract.ListServicesParamsSortName:
		return 0
	case contract.ListServicesParamsSortState:
	}
	return float64(slices.Index(urgency, s.State))
}

// sortCalls sorts all by current number of calls, most calls first.
func sortCalls(all []contract.ServiceCall) {
	sorting.SliceStable(all, func(a, b contract.ServiceCall) int {
		return cmp.Or(cmp.Compare(b.Now.Calls, a.Now.Calls), strings.Compare(a.Caller, b.Caller),
			strings.Compare(a.Callee, b.Callee))
	})
}

// GetServiceMap implements contract.StrictServerInterface.
func (a *Services) GetServiceMap(
	ctx context.Context, r contract.GetServiceMapRequestObject,
) (contract.GetServiceMapResponseObject, error) {
	var d contract.GetServiceMap200JSONResponse
	var t *serviceTable
	err := a.askServices(ctx, nil, r.Params.To, func(_ *engine.View, s *epoch.Snapshot, x *serviceTable, _ serviceKey) {
		t = x
		d = contract.GetServiceMap200JSONResponse{
			Services: []contract.Service{},
			Epoch:    s.Epoch(),
			Learning: !s.Watching,
			NowFrom:  render.At(t.uses.Now.From),
			To:       render.At(t.uses.Now.To),
		}
	})
	if err != nil {
		return nil, err
	}
	directory, mapped := a.directory(), make(map[string]bool)
	for _, x := range t.rows {
		x.Trend, x.Owner = nil, render.Owner(directory, x.Service)
		d.Services = append(d.Services, x)
	}
	sorting.SliceStable(d.Services, func(x, y contract.Service) int {
		return cmp.Or(cmp.Compare(y.Now.Calls, x.Now.Calls), strings.Compare(x.Service, y.Service))
	})
	d.Services = d.Services[:min(len(d.Services), mappedServices)]
	for i := range d.Services {
		mapped[d.Services[i].Service] = true
	}
	hidden := func(x contract.ServiceCall) bool { return !mapped[x.Caller] || !mapped[x.Callee] }
	d.Calls = slices.DeleteFunc(slices.Clone(t.calls), hidden)
	sortCalls(d.Calls)
	d.Calls = append([]contract.ServiceCall{}, d.Calls[:min(len(d.Calls), mappedCalls)]...)
	return d, nil
}
