package requests

import (
	"cmp"
	"context"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/sorting"
)

// ListGroups implements contract.StrictServerInterface.
func (a *Requests) ListGroups(
	ctx context.Context, r contract.ListGroupsRequestObject,
) (contract.ListGroupsResponseObject, error) {
	s, err := a.reader.Current(ctx)
	if err != nil {
		return nil, err
	}
	q := &r.Params
	requestType, unknown := s.TypeParameter(q.RequestType)
	keep := func(i int32) bool {
		g := &s.Groups[i]
		return !unknown && (requestType.IsZero() || g.RequestType == requestType) &&
			(q.Level == nil || string(*q.Level) == g.Level.String()) &&
			(q.Q == nil || query.Matches(s.Types[g.RequestType]+" "+g.ID.String(), q.Q))
	}
	sort := string(query.Value(q.Sort, contract.ListGroupsParamsSortCount))
	order := s.Sorted("groups by "+sort, func(l *query.List[analysis.Hash]) { addGroups(l, s, sort) })
	items, next, err := order.Page(query.PageOf(q.Limit, q.Cursor, sort), keep)
	if err != nil {
		return nil, err
	}
	list := contract.ListGroups200JSONResponse{
		Items: make([]contract.Group, 0, len(items)), NextCursor: next, Epoch: s.Epoch(),
	}
	for _, i := range items {
		list.Items = append(list.Items, groupOf(s, &s.Groups[i]))
	}
	return list, nil
}

// addGroups adds the groups of s to l, with the keys for the order called sort.
func addGroups(l *query.List[analysis.Hash], s *epoch.Snapshot, sort string) {
	for i := range s.Groups {
		g := &s.Groups[i]
		key := 0.
		switch contract.ListGroupsParamsSort(sort) {
		case contract.ListGroupsParamsSortCount:
			key = -float64(g.Count)
		case contract.ListGroupsParamsSortMean:
			key = -g.Mean
		case contract.ListGroupsParamsSortCov:
			key = -g.Cov
		case contract.ListGroupsParamsSortRate:
			key = -g.Rate
		case contract.ListGroupsParamsSortID:
		}
		l.Add(key, g.ID, int32(i))
	}
}

func groupOf(s *epoch.Snapshot, g *epoch.GroupRow) contract.Group {
	return contract.Group{
		ID:              g.ID.String(),
		Level:           contract.Level(g.Level.String()),
		RequestType:     g.RequestType.String(),
		RequestTypeName: s.Types[g.RequestType],
		Count:           int64(g.Count),
		Failed:          int64(g.Failed),
		MeanNs:          render.Number(g.Mean),
		Cov:             render.Number(g.Cov),
		Rate:            render.Number(g.Rate),
		FirstSeen:       render.Instant(g.Since),
		LastSeen:        render.Instant(g.Seen),
		Provisional:     !s.Learned,
	}
}

// askGroup calls read with the group whose ID is text, and returns the error from read. It returns a refusal if there
// is no such group.
func (a *Requests) askGroup(
	ctx context.Context, text string, read func(*engine.View, *epoch.Snapshot, *group.Group, renderer) error,
) error {
	id, err := analysis.ParseHash(text)
	if err != nil {
		return query.NotFound("group")
	}
	found := error(query.NotFound("group"))
	err = a.reader.Ask(ctx, func(c *engine.View) {
		if g := c.Groups.Group(id); g != nil {
			s := a.reader.Refresh(c)
			found = read(c, s, g, renderer{s.Renderer(c)})
		}
	})
	return cmp.Or(err, found)
}

// GetGroup implements contract.StrictServerInterface.
func (a *Requests) GetGroup(
	ctx context.Context, r contract.GetGroupRequestObject,
) (contract.GetGroupResponseObject, error) {
	var d contract.GetGroup200JSONResponse
	return &d, a.askGroup(ctx, r.Group, func(c *engine.View, s *epoch.Snapshot, g *group.Group, names renderer) error {
		row := s.Row(g.ID)
		if row == nil {
			return query.NotFound("group")
		}
		summary := c.Groups.Summarize(g)
		d = contract.GetGroup200JSONResponse{
			Group:     groupOf(s, row),
			Judged:    int64(summary.Count),
			Cov:       render.Interval(summary.CoV, summary.CoVLow, summary.CoVHigh),
			Between:   render.Number(summary.Between),
			SizeModel: sizeModel(summary.Size),
			Bins:      names.bins(&summary),
			Histogram: make([]contract.Bin, 0, len(summary.Latency)),
			Edges:     names.Edges(summary.Edges),
			Windows:   []contract.Window{},
			Problems:  []contract.ID{},
		}
		if summary.Count > 0 {
			d.P50Ns, d.P99Ns = new(summary.P50.Nanoseconds()), new(summary.P99.Nanoseconds())
		}
		for _, b := range summary.Latency {
			d.Histogram = append(d.Histogram,
				contract.Bin{LowNs: b.Low.Nanoseconds(), HighNs: b.High.Nanoseconds(), Count: int64(b.Count)})
		}
		for _, w := range g.Windows() {
			d.Windows = append(d.Windows, window(&w))
		}
		for i := range s.Problems {
			if s.Problems[i].Group == row.ID.String() {
				d.Problems = append(d.Problems, s.Problems[i].ID)
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

func sizeModel(m *group.SizeModel) *contract.SizeModel {
	if m == nil {
		return nil
	}
	return &contract.SizeModel{
		InterceptNs: render.Number(m.Base),
		NsPerByte:   render.Number(m.PerByte),
		NsPerPacket: render.Number(m.PerSegment),
		PacketBytes: m.Segment,
		Requests:    int64(m.Requests),
		Delayed:     render.Number(m.Delayed),
		TimedOut:    render.Number(m.TimedOut),
		CovTotal:    render.Number(m.CoVTotal),
	}
}

func window(w *group.PastWindow) contract.Window {
	x := contract.Window{
		From:    render.At(w.From),
		To:      render.At(w.To),
		Count:   int64(w.Total.N),
		Failed:  int64(w.Failed),
		MeanNs:  render.Number(w.Total.Mean()),
		Cov:     render.Number(w.Total.CoV()),
		Edges:   make([]contract.WindowEdge, 0, len(w.Edges)),
		Latency: []contract.Bin{},
	}
	for bin, n := range w.Latency.All() {
		x.Latency = append(x.Latency, contract.Bin{LowNs: bin[0], HighNs: bin[1], Count: int64(n)})
	}
	for _, e := range w.Edges {
		x.Edges = append(x.Edges, contract.WindowEdge{Edge: render.EdgeID(e.Edge), MeanNs: render.Number(w.Mean(e))})
	}
	return x
}

// ExplainGroup implements contract.StrictServerInterface.
func (a *Requests) ExplainGroup(
	ctx context.Context, r contract.ExplainGroupRequestObject,
) (contract.ExplainGroupResponseObject, error) {
	var d contract.ExplainGroup200JSONResponse
	return &d, a.askGroup(ctx, r.Group, func(c *engine.View, _ *epoch.Snapshot, g *group.Group, names renderer) error {
		var all []detect.Explanation
		for i := range c.Problems.Open() {
			if p := &c.Problems.Open()[i]; p.Group == g.ID {
				all = append(all, p.Explanations...)
			}
		}
		sorting.SliceStable(all, func(x, y detect.Explanation) int { return query.CompareKeys(-x.Effect, -y.Effect) })
		summary := c.Groups.Summarize(g)
		d = contract.ExplainGroup200JSONResponse{
			Items: names.Explained(all), Bins: names.bins(&summary), SizeModel: sizeModel(summary.Size),
		}
		return nil
	})
}
