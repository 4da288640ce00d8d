package api

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// ListGroups implements contract.StrictServerInterface.
func (a *API) ListGroups(ctx context.Context, r contract.ListGroupsRequestObject) (contract.ListGroupsResponseObject, error) {
	s, err := a.current(ctx)
	if err != nil {
		return nil, err
	}
	q := &r.Params
	requestType, none := s.wantedType(q.RequestType)
	keep := func(i int32) bool {
		g := &s.groups[i]
		return !none && (requestType.IsZero() || g.requestType == requestType) &&
			(q.Level == nil || string(*q.Level) == g.level.String()) &&
			(q.Q == nil || holds(s.types[g.requestType]+" "+g.id.String(), q.Q))
	}
	sort := string(value(q.Sort, contract.ListGroupsParamsSortCount))
	order := s.in("groups by "+sort, func() []entry[analysis.Hash] { return s.groupEntries(sort) })
	items, next, err := order.cut(pageOf(q.Limit, q.Cursor, sort), keep)
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

// askGroup calls read with a group, and says so where there is none.
func (a *API) askGroup(ctx context.Context, text string, read func(*engine.Core, *snapshot, *analysis.Group, renderer) error) error {
	id, err := analysis.ParseHash(text)
	if err != nil {
		return notFound("group")
	}
	found := error(notFound("group"))
	err = a.ask(ctx, func(c *engine.Core) {
		if g := c.Grouper().Group(id); g != nil {
			s := a.refresh(c)
			found = read(c, s, g, renderer{s.names(c), c})
		}
	})
	return cmp.Or(err, found)
}

// GetGroup implements contract.StrictServerInterface.
func (a *API) GetGroup(ctx context.Context, r contract.GetGroupRequestObject) (contract.GetGroupResponseObject, error) {
	var d contract.GetGroup200JSONResponse
	return &d, a.askGroup(ctx, r.Group, func(c *engine.Core, s *snapshot, g *analysis.Group, names renderer) error {
		row := s.row(g.ID)
		if row == nil {
			return notFound("group")
		}
		summary := c.Grouper().Summarize(g)
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

func (r renderer) bins(s *analysis.Summary) []string {
	all := make([]string, 0, len(s.Bins))
	for i := range s.Bins {
		b := &s.Bins[i]
		what, where := r.Variable(&analysis.Explanation{Variable: b.Variable, Value: b.Value, Where: b.Where})
		all = append(all, what+where)
	}
	return all
}

func window(w *analysis.PastWindow) contract.Window {
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
	return &d, a.askGroup(ctx, r.Group, func(c *engine.Core, _ *snapshot, g *analysis.Group, names renderer) error {
		var all []analysis.Explanation
		for i := range c.Problems() {
			if p := &c.Problems()[i]; p.Group == g.ID {
				all = append(all, p.Explanations...)
			}
		}
		slices.SortStableFunc(all, func(x, y analysis.Explanation) int { return compareKeys(-x.Effect, -y.Effect) })
		summary := c.Grouper().Summarize(g)
		d = contract.ExplainGroup200JSONResponse{Items: names.explanations(all), Bins: names.bins(&summary), SizeModel: sizeModel(summary.Size)}
		return nil
	})
}

// CompareGroup implements contract.StrictServerInterface.
func (a *API) CompareGroup(ctx context.Context, r contract.CompareGroupRequestObject) (contract.CompareGroupResponseObject, error) {
	q := &r.Params
	var times [4]trace.Nanos
	for i, text := range []*string{q.From, q.To, q.BaseFrom, q.BaseTo} {
		var err error
		if times[i], err = parseInstant(text); err != nil {
			return nil, err
		}
	}
	byTime := q.From != nil || q.To != nil || q.BaseFrom != nil || q.BaseTo != nil
	byDuration := q.LongerNs != nil || q.ShorterNs != nil
	if byTime && q.Slowest != nil || byDuration && (byTime || q.Slowest != nil) {
		return nil, refuse(http.StatusBadRequest, "either slowest, durations or times")
	}
	var d contract.CompareGroup200JSONResponse
	return &d, a.askGroup(ctx, r.Group, func(_ *engine.Core, _ *snapshot, g *analysis.Group, names renderer) error {
		var one, other population
		switch {
		case byDuration:
			one, other = lasting(g, value(q.LongerNs, 0), value(q.ShorterNs, math.MaxInt64))
		case !byTime:
			one, other = slowest(g, value(q.Slowest, defaultSlowest))
		case q.BaseFrom == nil && q.BaseTo == nil:
			one, other = between(g, times[0], times[1]), reference(g)
		default:
			one, other = between(g, times[0], times[1]), between(g, times[2], times[3])
		}
		d = contract.CompareGroup200JSONResponse(names.compare(&one, &other))
		return nil
	})
}

// defaultSlowest is the part of the requests that counts as slow where nobody says otherwise.
const defaultSlowest = 0.1

// population is a part of the requests of a group.
type population struct {
	label    string
	n        uint64
	mean     float64 // ns; NaN without requests
	from, to trace.Nanos
	edges    map[trace.Edge]float64 // mean ns a request; without an entry 0
}

func (p *population) contract() contract.Population {
	return contract.Population{Label: p.label, Requests: int64(p.n), MeanNs: number(p.mean), From: instant(p.from), To: instant(p.to)}
}

// slowest splits the requests sampled of a group into the slowest and the rest.
func slowest(g *analysis.Group, part float64) (slow, rest population) {
	t, order := sampled(g)
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(t.Total[j], t.Total[i]) })
	n := int(math.Ceil(part * float64(len(order))))
	return populationOf(g, &t, "the slowest "+units.Percent(part)+" of the requests sampled", order[:n]), populationOf(g, &t, "the rest of them", order[n:])
}

// lasting splits the requests sampled of a group into those that lasted [longer, shorter) ns and the rest.
func lasting(g *analysis.Group, longer, shorter int64) (within, rest population) {
	t, all := sampled(g)
	var in, out []int
	for _, row := range all {
		if total := int64(t.Total[row]); total >= longer && total < shorter {
			in = append(in, row)
		} else {
			out = append(out, row)
		}
	}
	label := "the requests sampled that took " + units.Duration(time.Duration(longer)) + " or longer"
	if shorter < math.MaxInt64 {
		label = "the requests sampled that took " + units.Duration(time.Duration(longer)) + " to " + units.Duration(time.Duration(shorter))
	}
	return populationOf(g, &t, label, in), populationOf(g, &t, "the rest of them", out)
}

// sampled returns the requests sampled of a group, a column for each of its edges, and the numbers of all rows.
func sampled(g *analysis.Group) (t stats.Table, rows []int) {
	columns := make([]int32, len(g.Edges))
	for i := range columns {
		columns[i] = int32(i)
	}
	t = stats.NewTable(g.Current.Sample.All(), columns)
	rows = make([]int, len(t.Total))
	for i := range rows {
		rows[i] = i
	}
	return t, rows
}

// populationOf returns what some rows of a table of the edges of a group have in the mean. They are of all the time that is judged: a row
// does not say when it was.
func populationOf(g *analysis.Group, t *stats.Table, label string, rows []int) population {
	p := population{label: label, n: uint64(len(rows)), mean: math.NaN(), edges: make(map[trace.Edge]float64), from: g.Current.First, to: g.Current.Last}
	if len(rows) == 0 {
		return p
	}
	p.mean = 0
	for _, row := range rows {
		p.mean += t.Total[row] / float64(len(rows))
		for e, ns := range t.Row(row) {
			p.edges[g.Edges[e]] += ns / float64(len(rows))
		}
	}
	return p
}

// between returns the requests of the windows of a group that lie in [from, to) for the most part; to 0: no bound.
func between(g *analysis.Group, from, to trace.Nanos) population {
	if to == 0 {
		to = trace.MaxNanos
	}
	var all analysis.Past
	p := population{label: "requests of these times"}
	for _, w := range g.Windows() {
		if middle := w.From + (w.To-w.From)/2; middle < from || middle >= to {
			continue
		}
		if p.from == 0 {
			p.from = w.From
		}
		p.to = w.To
		all.Merge(w.Past)
	}
	p.n, p.mean, p.edges = all.Total.N, math.NaN(), make(map[trace.Edge]float64)
	if p.n > 0 {
		p.mean = all.Total.Mean()
		for _, e := range all.Edges {
			p.edges[e.Edge] = all.Mean(e)
		}
	}
	return p
}

// reference returns the requests of a group from when all was well.
func reference(g *analysis.Group) population {
	w := &g.Reference
	p := population{label: "requests from when all was well", n: w.Total.N, mean: math.NaN(), edges: make(map[trace.Edge]float64)}
	if p.n > 0 {
		p.mean, p.from, p.to = w.Total.Mean(), w.First, w.Last
		for i := range w.Tally.Edges {
			e := &w.Tally.Edges[i]
			p.edges[e.Edge] = e.CoMoments.Moments(p.n).Mean()
		}
	}
	return p
}

func (r renderer) compare(a, b *population) contract.Comparison {
	d := contract.Comparison{A: a.contract(), B: b.contract(), Edges: []contract.EdgeDifference{}}
	edges := make(map[trace.Edge]bool)
	for e := range a.edges {
		edges[e] = true
	}
	for e := range b.edges {
		edges[e] = true
	}
	type difference struct {
		edge       trace.Edge
		difference float64
	}
	var all []difference
	for e := range edges {
		all = append(all, difference{e, a.edges[e] - b.edges[e]})
	}
	slices.SortFunc(all, func(x, y difference) int {
		return cmp.Or(compareKeys(-math.Abs(x.difference), -math.Abs(y.difference)), cmp.Compare(x.edge, y.edge))
	})
	for _, x := range all {
		d.Edges = append(d.Edges, contract.EdgeDifference{
			Place: r.placeOf(x.edge), ANs: number(a.edges[x.edge]), BNs: number(b.edges[x.edge]), DifferenceNs: number(x.difference),
			Part: number(x.difference / (a.mean - b.mean)),
		})
	}
	return d
}

// parseInstant reads a time as the contract has it; nil is 0.
func parseInstant(text *string) (trace.Nanos, error) {
	if text == nil || *text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseInt(*text, 10, 64); err == nil && n >= 0 {
		return trace.Nanos(min(n, int64(trace.MaxNanos))), nil
	}
	t, err := time.Parse(time.RFC3339Nano, *text)
	if err != nil || t.Year() < 1970 || t.Year() > lastYear {
		return 0, refuse(http.StatusBadRequest, "want a time like 2026-01-31T14:05:00Z, or nanoseconds since 1970, until 2254")
	}
	return trace.Nanos(t.UnixNano()), nil
}

// lastYear is the last one that fits into nanoseconds as a whole.
const lastYear = 2254
