package api

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/trace"
)

// ListGroups implements contract.StrictServerInterface.
func (a *API) ListGroups(ctx context.Context, r contract.ListGroupsRequestObject) (contract.ListGroupsResponseObject, error) {
	s, err := a.current(ctx)
	if err != nil {
		return nil, err
	}
	q := &r.Params
	requestType, unknown := s.typeParameter(q.RequestType)
	keep := func(i int32) bool {
		g := &s.groups[i]
		return !unknown && (requestType.IsZero() || g.requestType == requestType) &&
			(q.Level == nil || string(*q.Level) == g.level.String()) &&
			(q.Q == nil || matches(s.types[g.requestType]+" "+g.id.String(), q.Q))
	}
	sort := string(value(q.Sort, contract.ListGroupsParamsSortCount))
	order := s.in("groups by "+sort, func() []entry[analysis.Hash] { return s.groupEntries(sort) })
	items, next, err := order.page(pageOf(q.Limit, q.Cursor, sort), keep)
	if err != nil {
		return nil, err
	}
	list := contract.ListGroups200JSONResponse{Items: make([]contract.Group, 0, len(items)), NextCursor: next, Epoch: s.epoch()}
	for _, i := range items {
		list.Items = append(list.Items, s.group(&s.groups[i]))
	}
	return list, nil
}

func (s *snapshot) groupEntries(sort string) []entry[analysis.Hash] {
	entries := make([]entry[analysis.Hash], len(s.groups))
	for i := range s.groups {
		g := &s.groups[i]
		key := 0.
		switch contract.ListGroupsParamsSort(sort) {
		case contract.ListGroupsParamsSortCount:
			key = -float64(g.count)
		case contract.ListGroupsParamsSortMean:
			key = -g.mean
		case contract.ListGroupsParamsSortCov:
			key = -g.cov
		case contract.ListGroupsParamsSortRate:
			key = -g.rate
		case contract.ListGroupsParamsSortID:
		}
		entries[i] = entry[analysis.Hash]{key, g.id, int32(i)}
	}
	return entries
}

func (s *snapshot) group(g *groupRow) contract.Group {
	return contract.Group{
		ID: g.id.String(), Level: contract.Level(g.level.String()), RequestType: g.requestType.String(), RequestTypeName: s.types[g.requestType],
		Count: int64(g.count), Failed: int64(g.failed), MeanNs: number(g.mean), Cov: number(g.cov), Rate: number(g.rate),
		FirstSeen: instant(g.since), LastSeen: instant(g.seen), Provisional: !s.learned,
	}
}

// row returns the row of a group; nil if there is none.
func (s *snapshot) row(id analysis.Hash) *groupRow {
	for i := range s.groups {
		if s.groups[i].id == id {
			return &s.groups[i]
		}
	}
	return nil
}

// askGroup calls read with the group of the given ID. It returns a refusal if there is none.
func (a *API) askGroup(ctx context.Context, text string, read func(*engine.View, *snapshot, *group.Group, renderer) error) error {
	id, err := analysis.ParseHash(text)
	if err != nil {
		return notFound("group")
	}
	found := error(notFound("group"))
	err = a.ask(ctx, func(c *engine.View) {
		if g := c.Groups.Group(id); g != nil {
			s := a.refresh(c)
			found = read(c, s, g, renderer{s.names(c), c})
		}
	})
	return cmp.Or(err, found)
}

// GetGroup implements contract.StrictServerInterface.
func (a *API) GetGroup(ctx context.Context, r contract.GetGroupRequestObject) (contract.GetGroupResponseObject, error) {
	var d contract.GetGroup200JSONResponse
	return &d, a.askGroup(ctx, r.Group, func(c *engine.View, s *snapshot, g *group.Group, names renderer) error {
		row := s.row(g.ID)
		if row == nil {
			return notFound("group")
		}
		summary := c.Groups.Summarize(g)
		d = contract.GetGroup200JSONResponse{
			Group: s.group(row), Judged: int64(summary.Count), Cov: interval(summary.CoV, summary.CoVLow, summary.CoVHigh),
			Between: number(summary.Between), SizeModel: sizeModel(summary.Size), Bins: names.bins(&summary),
			Histogram: make([]contract.Bin, 0, len(summary.Latency)), Edges: names.edges(summary.Edges), Windows: []contract.Window{},
			Problems: []contract.ID{},
		}
		if summary.Count > 0 {
			d.P50Ns, d.P99Ns = new(summary.P50.Nanoseconds()), new(summary.P99.Nanoseconds())
		}
		for _, b := range summary.Latency {
			d.Histogram = append(d.Histogram, contract.Bin{LowNs: b.Low.Nanoseconds(), HighNs: b.High.Nanoseconds(), Count: int64(b.Count)})
		}
		for _, w := range g.Windows() {
			d.Windows = append(d.Windows, window(&w))
		}
		for i := range s.problems {
			if s.problems[i].Group == row.id.String() {
				d.Problems = append(d.Problems, s.problems[i].ID)
			}
		}
		return nil
	})
}

func (r renderer) bins(s *group.Summary) []string {
	all := make([]string, 0, len(s.Bins))
	for i := range s.Bins {
		b := &s.Bins[i]
		variable, where := r.Variable(&detect.Explanation{Variable: b.Variable, Value: b.Value, Where: b.Where})
		all = append(all, variable+where)
	}
	return all
}

func window(w *group.PastWindow) contract.Window {
	x := contract.Window{
		From: at(w.From), To: at(w.To), Count: int64(w.Total.N), Failed: int64(w.Failed), MeanNs: number(w.Total.Mean()), Cov: number(w.Total.CoV()),
		Edges: make([]contract.WindowEdge, 0, len(w.Edges)), Latency: []contract.Bin{},
	}
	for bin, n := range w.Latency.All() {
		x.Latency = append(x.Latency, contract.Bin{LowNs: bin[0], HighNs: bin[1], Count: int64(n)})
	}
	for _, e := range w.Edges {
		x.Edges = append(x.Edges, contract.WindowEdge{Edge: edgeID(e.Edge), MeanNs: number(w.Mean(e))})
	}
	return x
}

// ExplainGroup implements contract.StrictServerInterface.
func (a *API) ExplainGroup(ctx context.Context, r contract.ExplainGroupRequestObject) (contract.ExplainGroupResponseObject, error) {
	var d contract.ExplainGroup200JSONResponse
	return &d, a.askGroup(ctx, r.Group, func(c *engine.View, _ *snapshot, g *group.Group, names renderer) error {
		var all []detect.Explanation
		for i := range c.Problems.Open() {
			if p := &c.Problems.Open()[i]; p.Group == g.ID {
				all = append(all, p.Explanations...)
			}
		}
		slices.SortStableFunc(all, func(x, y detect.Explanation) int { return compareKeys(-x.Effect, -y.Effect) })
		summary := c.Groups.Summarize(g)
		d = contract.ExplainGroup200JSONResponse{Items: names.explanations(all), Bins: names.bins(&summary), SizeModel: sizeModel(summary.Size)}
		return nil
	})
}

// errOrder refuses a span that ends before it begins.
var errOrder = refusal.New(refusal.Malformed, "from must be before to", "")

// parseInterval parses the parameters from and to. A missing one is 0.
func parseInterval(first, last *string) (from, to trace.Nanos, err error) {
	if from, err = parseInstant("from", first); err != nil {
		return 0, 0, err
	}
	if to, err = parseInstant("to", last); err != nil {
		return 0, 0, err
	}
	if to != 0 && from > to {
		return 0, 0, errOrder
	}
	return from, to, nil
}

// parseInstant parses a time parameter of some name: RFC 3339, or nanoseconds since 1970; nil and "" are 0.
func parseInstant(name string, text *string) (trace.Nanos, error) {
	if text == nil || *text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseInt(*text, 10, 64); err == nil && n >= 0 {
		return trace.Nanos(min(n, int64(trace.MaxNanos))), nil
	}
	t, err := time.Parse(time.RFC3339Nano, *text)
	if err != nil || t.Year() < 1970 || t.Year() > lastYear {
		return 0, refusal.New(refusal.Malformed, name+": want a time like 2026-01-31T14:05:00Z, or nanoseconds since 1970, until 2254", "")
	}
	return trace.Nanos(t.UnixNano()), nil
}

// lastYear is the last year that fits into [trace.Nanos] as a whole.
const lastYear = 2254
