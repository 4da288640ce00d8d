package requests

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/group"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/epoch"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/trace"
)

// CompareGroup implements contract.StrictServerInterface.
func (a *Requests) CompareGroup(
	ctx context.Context, r contract.CompareGroupRequestObject,
) (contract.CompareGroupResponseObject, error) {
	q := &r.Params
	var times [4]trace.Nanos
	for i, x := range []struct {
		name string
		text *string
	}{{"from", q.From}, {"to", q.To}, {"base_from", q.BaseFrom}, {"base_to", q.BaseTo}} {
		var err error
		if times[i], err = query.ParseInstant(x.name, x.text); err != nil {
			return nil, err
		}
	}
	based := q.BaseFrom != nil || q.BaseTo != nil
	byTime := based || q.From != nil || q.To != nil
	byDuration := q.LongerNs != nil || q.ShorterNs != nil
	if q.Slowest != nil && (byTime || byDuration) || byDuration && based {
		return nil, refusal.New(refusal.Malformed, "the parameters cannot be combined", "give either slowest, "+
			"or longer_ns and shorter_ns with from and to, or from and to with base_from and base_to")
	}
	var d contract.CompareGroup200JSONResponse
	var requests sides
	var options critpath.Options
	err := a.askGroup(ctx, r.Group, func(c *engine.View, _ *epoch.Snapshot, g *group.Group, names renderer) error {
		var one, other population
		var note string
		sampled := c.Kept.Of(g)
		split := func(o *observation.Observation) side { return timesSide(o, times[0], times[1], times[2], times[3]) }
		switch {
		case byDuration:
			b := box{times[0], times[1], query.Value(q.LongerNs, 0), query.Value(q.ShorterNs, math.MaxInt64)}
			split = b.side
			if one, other, note = b.compare(sampled); one.n+other.n == 0 {
				one, other, note = b.split(g)
			}
		case !byTime:
			part := query.Value(q.Slowest, defaultSlowest)
			split = slowestSide(sampled, part)
			one = populationOf("the slowest "+units.Percent(part)+" of the sampled requests", sampled, split, first)
			other = populationOf(others, sampled, split, second)
			if one.n == 0 || other.n == 0 {
				one, other = slowest(g, part)
			}
		case !based:
			one, other = between(g, times[0], times[1]), reference(g)
			times[3] = g.Reference.Last + 1
		default:
			one, other = between(g, times[0], times[1]), between(g, times[2], times[3])
		}
		d = contract.CompareGroup200JSONResponse(names.compare(&one, &other))
		for _, o := range sampled {
			requests[split(o)] = append(requests[split(o)], o)
		}
		d.Attributes, options = names.attributes(g.ID, requests), c.Options.Path
		if note != "" {
			d.Note = &note
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &d, a.addUnlisted(&d.Attributes, requests, options)
}

// populationOf returns the population of the requests that `of` assigns to side `which`.
func populationOf(
	label string, requests []*observation.Observation, of func(*observation.Observation) side, which side,
) population {
	p := population{label: label, mean: math.NaN(), edges: make(map[trace.Edge]float64)}
	total := 0.0
	for _, o := range requests {
		if of(o) != which {
			continue
		}
		if p.n == 0 || o.Start < p.from {
			p.from = o.Start
		}
		p.n, p.to = p.n+1, max(p.to, o.Start)
		total += float64(o.Duration)
		for i := range o.Edges {
			p.edges[o.Edges[i].Edge] += float64(o.Edges[i].Nanos)
		}
	}
	if p.n > 0 {
		p.mean = total / float64(p.n)
	}
	for e := range p.edges {
		p.edges[e] /= float64(p.n)
	}
	return p
}

// compare splits requests into those in the box and the rest. A nonempty note explains why the result is unreliable.
func (b *box) compare(requests []*observation.Observation) (within, rest population, note string) {
	within, rest = populationOf(b.label(), requests, b.side, first), populationOf(others, requests, b.side, second)
	since := trace.MaxNanos
	for _, o := range requests {
		since = min(since, o.Start)
	}
	return within, rest, b.note(since, int(within.n), int(rest.n))
}

// defaultSlowest is the default value of the parameter slowest, a fraction of the requests.
const defaultSlowest = 0.1

// population describes one side of a comparison: some of a group's requests, and their mean times.
type population struct {
	label    string
	n        uint64
	mean     float64 // ns; NaN if there are no requests
	from, to trace.Nanos
	edges    map[trace.Edge]float64 // mean ns per request; 0 if an edge is missing
}

func (p *population) contract() contract.Population {
	return contract.Population{
		Label:    p.label,
		Requests: int64(p.n),
		MeanNs:   render.Number(p.mean),
		From:     render.Instant(p.from),
		To:       render.Instant(p.to),
	}
}

// slowest splits the sampled requests of a group into the slowest fraction `part` and the rest.
func slowest(g *group.Group, part float64) (slow, rest population) {
	s := sampleOf(g)
	order := make([]int, len(s.arrived))
	for i := range order {
		order[i] = i
	}
	sorting.SliceStable(order, func(i, j int) int { return cmp.Compare(s.Total[j], s.Total[i]) })
	n := int(math.Ceil(part * float64(len(order))))
	return s.population("the slowest "+units.Percent(part)+" of the sampled requests", order[:n]),
		s.population(others, order[n:])
}

// box is a range of durations and times.
type box struct {
	from, to        trace.Nanos // [from, to); to is 0 if unbounded
	longer, shorter int64       // [longer, shorter) ns
}

// timed reports whether b is bounded in time.
func (b *box) timed() bool { return b.from > 0 || b.to > 0 }

// contains reports whether a request that took total ns and arrived in the tick [from, to) given by arrived lies in the
// box. Because the time within the tick is unknown, the request counts if the middle of its tick lies in the box or the
// middle of the box lies in its tick.
func (b *box) contains(total float64, arrived [2]int64) bool {
	if ns := int64(total); ns < b.longer || ns >= b.shorter {
		return false
	}
	from, to := int64(b.from), int64(cmp.Or(b.to, trace.MaxNanos))
	middle, middleOfBox := arrived[0]+(arrived[1]-arrived[0])/2, from+(to-from)/2
	return !b.timed() || from <= middle && middle < to ||
		from < to && arrived[0] <= middleOfBox && middleOfBox < arrived[1]
}

// split splits the sampled requests of a group into those in the box and the rest. A nonempty note explains why the
// result is unreliable, and suggests a remedy.
func (b *box) split(g *group.Group) (within, rest population, note string) {
	s := sampleOf(g)
	var in, out []int
	for row, arrived := range s.arrived {
		if b.contains(s.Total[row], arrived) {
			in = append(in, row)
		} else {
			out = append(out, row)
		}
	}
	return s.population(b.label(), in), s.population(others, out), b.note(s.since(), len(in), len(out))
}

// others is the label for the sampled requests outside a selection.
const others = "the other sampled requests"

func (b *box) label() string {
	label := "the sampled requests that "
	switch {
	case b.from > 0 && b.to > 0:
		label += "arrived from " + instantText(b.from) + " to " + instantText(b.to) + " and "
	case b.from > 0:
		label += "arrived from " + instantText(b.from) + " on and "
	case b.to > 0:
		label += "arrived before " + instantText(b.to) + " and "
	}
	switch {
	case b.shorter == math.MaxInt64 && b.longer <= 1:
		return strings.TrimSuffix(strings.TrimSuffix(label, " and "), " that ")
	case b.shorter < math.MaxInt64:
		return label + "took " + units.Duration(time.Duration(b.longer)) + " to " +
			units.Duration(time.Duration(b.shorter))
	}
	return label + "took " + units.Duration(time.Duration(b.longer)) + " or longer"
}

// fewCompared is the minimum number of requests for a reliable mean.
const fewCompared = 8

// note returns a text that explains why a comparison is unreliable, and suggests a remedy. It is empty unless few or no
// requests are in or outside the box, or sampling started after the box. since is the start of sampling; in and out are
// the numbers of requests in and outside the box.
func (b *box) note(since trace.Nanos, in, out int) string {
	all := in + out
	begin := "sampling began only at " + instantText(since)
	early := b.from > 0 && b.from < since
	switch {
	case all == 0:
		return "there are no sampled requests: none arrived since the group was last healthy; compare times alone"
	case b.to > 0 && b.to <= since:
		return "no sampled request lies in the box: " + begin + "; choose a later box, or compare times alone"
	case in < fewCompared && early:
		return few(in, all) + " in the box: " + begin + "; choose a later or larger box, or compare times alone"
	case in < fewCompared:
		const why = "since Sibyl keeps some requests of each ten minutes only"
		return few(in, all) + " in the box, " + why + ": choose a larger one"
	case out < fewCompared:
		return few(out, all) + " outside of the box: choose a smaller one"
	case early:
		return begin + ": earlier requests in the box are not compared"
	}
	return ""
}

// few returns the start of a sentence like "only 3 of 20 sampled requests lie in the box".
func few(n, all int) string {
	switch n {
	case 0:
		return fmt.Sprintf("none of %s lies", units.Plural(all, "sampled request"))
	case 1:
		return fmt.Sprintf("only 1 of %s lies", units.Plural(all, "sampled request"))
	}
	return fmt.Sprintf("only %d of %s lie", n, units.Plural(all, "sampled request"))
}

// instantText formats a time as in the contract, to the second.
func instantText(t trace.Nanos) string { return render.At(t).Format(time.RFC3339) }

// sample holds the sampled requests of a group in a table with a row per request and a column per edge.
type sample struct {
	stats.Table
	group   *group.Group
	arrived [][2]int64 // tick [from, to) when the request of each row arrived, ns since 1970; 0, 0 if unknown
}

func sampleOf(g *group.Group) sample {
	columns := make([]int32, len(g.Edges()))
	for i := range columns {
		columns[i] = int32(i)
	}
	s := sample{Table: stats.NewTable(g.Current.Sample.All(), columns), group: g}
	for _, row := range g.Current.Sample.All() {
		from, to := row.Arrival()
		s.arrived = append(s.arrived, [2]int64{from, to})
	}
	return s
}

// since returns the start of the tick that sampling started in.
func (s *sample) since() trace.Nanos {
	return s.group.Current.First - s.group.Current.First%trace.Nanos(stats.Tick)
}

// population returns the population of the given rows.
func (s *sample) population(label string, rows []int) population {
	p := population{label: label, n: uint64(len(rows)), mean: math.NaN(), edges: make(map[trace.Edge]float64)}
	if len(rows) == 0 {
		return p
	}
	p.mean = 0
	for _, row := range rows {
		p.mean += s.Total[row] / float64(len(rows))
		for e, ns := range s.Row(row) {
			p.edges[s.group.Edges()[e]] += ns / float64(len(rows))
		}
	}
	p.from, p.to = s.extent(rows)
	return p
}

// extent returns the time span that the given rows arrived in.
func (s *sample) extent(rows []int) (from, to trace.Nanos) {
	from = trace.MaxNanos
	for _, row := range rows {
		from, to = min(from, trace.Nanos(s.arrived[row][0])), max(to, trace.Nanos(s.arrived[row][1]))
	}
	return from, to
}

// between returns the population of the requests in those windows of a group that lie completely in [from, to); a `to`
// of 0 means unbounded. If there are no such windows, for example because older windows are longer, it uses the windows
// whose middle lies in [from, to).
func between(g *group.Group, from, to trace.Nanos) population {
	if to == 0 {
		to = trace.MaxNanos
	}
	within := func(w *group.PastWindow) bool { return w.From >= from && w.To <= to }
	windows := g.Windows()
	if !slices.ContainsFunc(windows, func(w group.PastWindow) bool { return within(&w) }) {
		within = func(w *group.PastWindow) bool {
			middle := w.From + (w.To-w.From)/2
			return middle >= from && middle < to
		}
	}
	var all group.Past
	p := population{label: "the requests in the chosen range of time"}
	for _, w := range windows {
		if !within(&w) {
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
		p.label = "the requests from " + instantText(p.from) + " to " + instantText(p.to)
		p.mean = all.Total.Mean()
		for _, e := range all.Edges {
			p.edges[e.Edge] = all.Mean(e)
		}
	}
	return p
}

// reference returns the population of a group's reference requests, which arrived before the group's problem.
func reference(g *group.Group) population {
	w := &g.Reference
	p := population{
		label: "the requests from before the problem",
		n:     w.Total.N,
		mean:  math.NaN(),
		edges: make(map[trace.Edge]float64),
	}
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
	sorting.Slice(all, func(x, y difference) int {
		return cmp.Or(query.CompareKeys(-math.Abs(x.difference), -math.Abs(y.difference)), cmp.Compare(x.edge, y.edge))
	})
	for _, x := range all {
		d.Edges = append(d.Edges, contract.EdgeDifference{
			Place:        r.EdgePlace(x.edge),
			ANs:          render.Number(a.edges[x.edge]),
			BNs:          render.Number(b.edges[x.edge]),
			DifferenceNs: render.Number(x.difference),
			Part:         render.Number(x.difference / (a.mean - b.mean)),
		})
	}
	return d
}
