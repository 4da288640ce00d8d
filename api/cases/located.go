package cases

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/detect"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/api/internal/sent"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// Limits on the evidence for a place.
const (
	locatedFrames = 200
	locatedTraces = 2
	leastFrame    = 0.005 // frames with less than this share of both the slowdown and the time are omitted
)

// StoreLocated stores the evidence for the places located by the decisions of an epoch. Later would be too late,
// because the search disables the tracepoints that revealed the places, which ends their statistics. Only the goroutine
// that owns the core may call StoreLocated.
func (a *Cases) StoreLocated(c *engine.View, decisions []search.Decision, ended trace.Nanos) {
	for i := range decisions {
		d := &decisions[i]
		v := c.Searches.State().Investigation(d.Subject)
		if v.Answer() == 0 || d.From >= search.Located && d.From <= search.Explained {
			continue
		}
		evidence, err := json.Marshal(renderer{a.reader.Renderer(c)}.located(v, ended))
		if err == nil {
			err = a.store.Places.Put(&store.Located{Of: v.Subject, At: ended, Evidence: evidence})
		}
		if err != nil {
			a.options.Log.Error("the evidence of a place could not be stored", slog.Any("error", err))
		}
	}
}

// storedPlace is the stored form of the evidence for a place.
type storedPlace struct {
	contract.LocatedPlace
	SpanName string `json:"span_name"`
	Callee   string `json:"callee"` // service that the operation calls; may be empty
}

// located returns the evidence for the place that v located, without traces.
func (r renderer) located(v *search.Investigation, ended trace.Nanos) *storedPlace {
	p, top, tree := r.Core.Searches.Searched(v.Subject), &v.Suspects[0], r.Tree(v.Subject, v.RequestType)
	x := &storedPlace{SpanName: r.OpName(top.Op)}
	x.LocatedPlace = contract.LocatedPlace{
		At:        render.At(ended),
		Operation: r.Op(top.Op),
		Service:   r.Service(top.Op),
		Of:        contract.LocatedPlaceOfSlowdown,
		Share:     atMostAll(top),
		Requests:  int64(top.Requests),
		Frames:    []contract.LocatedFrame{},
		Traces:    []contract.LocatedTrace{},
	}
	if callee := r.Table.Target(top.Op); callee != 0 {
		x.Callee = r.Service(callee)
	}
	if top.Tracepoint != 0 {
		x.Tracepoint = r.Tracepoint(top.Tracepoint)
	}
	if p != nil {
		x.Of = contract.LocatedPlaceOf(render.Wholes[p.Whole])
	}
	inclusive := inclusiveTimes(r.Table, p, v)
	for i := range v.Suspects[:min(len(v.Suspects), locatedFrames)] {
		s := &v.Suspects[i]
		f := contract.LocatedFrame{
			Context:   r.Path(tree, s.Context),
			Operation: r.Op(s.Op),
			Located:   i == 0,
			Share:     atMostAll(s),
			Requests:  int64(s.Requests),
			SelfNs:    render.Number(inclusive[placeKey{s.Op, s.Tracepoint}]),
		}
		if s.Tracepoint != 0 {
			f.Tracepoint = r.Tracepoint(s.Tracepoint)
		}
		x.Frames = append(x.Frames, f)
	}
	atMostRest(x.Frames)
	total := excludeCallees(x.Frames)
	x.MeanNs = render.Number(total)
	x.Frames = slices.DeleteFunc(x.Frames, func(f contract.LocatedFrame) bool {
		return !f.Located && math.Abs(query.Value(f.Share.Value, 0)) < leastFrame &&
			query.Value(f.SelfNs, 0) < leastFrame*total
	})
	return x
}

// atMostAll returns the share of a suspect, limited to 1 because an estimate can exceed it.
func atMostAll(s *search.Suspect) contract.Interval {
	return render.Interval(min(1, s.Share), min(1, s.Low), min(1, s.High))
}

// placeKey identifies a suspect.
type placeKey struct {
	op         trace.Op
	tracepoint trace.Symbol // 0: baseline
}

// inclusiveTimes returns the mean time in ns that a request of p spends in each suspect of v. For baseline operations,
// the time excludes baseline callees; for tracepoints, it includes everything inside them. Suspects without times are
// omitted.
func inclusiveTimes(table *trace.Table, p *detect.Problem, v *search.Investigation) map[placeKey]float64 {
	times := make(map[placeKey]float64)
	if p == nil {
		return times
	}
	edges := make(map[trace.Edge]float64, len(p.Edges))
	for i := range p.Edges {
		e := &p.Edges[i]
		edges[e.Edge] = e.Mean
		times[placeKey{table.Context(e.Context).Op, 0}] += e.Mean
	}
	// A tracepoint appears under different contexts in each batch. We only use one batch per edge, the one with the
	// most requests.
	type part struct {
		within trace.Edge
		place  placeKey
	}
	best, sums := make(map[part]*search.Evidence), make(map[part]float64)
	for i := range v.Evidence {
		e := &v.Evidence[i]
		x := part{e.Within, placeKey{e.Op, e.Tracepoint}}
		b := best[x]
		if b == nil || e.Batch != b.Batch && cmp.Or(cmp.Compare(e.N, b.N), cmp.Compare(e.Batch, b.Batch)) > 0 {
			best[x], sums[x] = e, 0
		}
		if best[x].Batch == e.Batch {
			sums[x] += e.Mean * edges[e.Within]
		}
	}
	for x, ns := range sums {
		times[x.place] += ns
	}
	return times
}

// excludeCallees subtracts the time of each tracepoint from the nearest frame above it, and returns the sum of the
// remaining times.
func excludeCallees(frames []contract.LocatedFrame) (total float64) {
	order := make([]int, len(frames)) // deepest first
	for i := range order {
		order[i] = i
	}
	sorting.SliceStable(order,
		func(a, b int) int { return cmp.Compare(len(frames[b].Context), len(frames[a].Context)) })
	own := make([]float64, len(frames))
	for i := range frames {
		own[i] = query.Value(frames[i].SelfNs, math.NaN())
	}
	for at, i := range order {
		if frames[i].Tracepoint == "" || math.IsNaN(own[i]) {
			continue
		}
		inclusive := query.Value(frames[i].SelfNs, 0)
		for _, above := range order[at+1:] {
			if within(frames[i].Context, frames[above].Context) && !math.IsNaN(own[above]) {
				own[above] -= inclusive
				break
			}
		}
	}
	for i := range frames {
		if !math.IsNaN(own[i]) {
			own[i] = max(0, own[i]) // can be negative because the times are from different requests
			total += own[i]
		}
		frames[i].SelfNs = render.Number(own[i])
	}
	return total
}

// atMostRest limits the sum of all positive shares to 1. The sum can exceed 1 because places that became faster have
// negative shares. If it does, the shares of all places but the located one are scaled to fit into the rest.
func atMostRest(frames []contract.LocatedFrame) {
	rest, others := 1., 0.
	for i := range frames {
		if share := max(0, query.Value(frames[i].Share.Value, 0)); frames[i].Located {
			rest -= share
		} else {
			others += share
		}
	}
	if others <= rest {
		return
	}
	part := max(0, rest) / others
	for i := range frames {
		if f := &frames[i]; !f.Located {
			f.Share = render.Interval(part*query.Value(f.Share.Value, 0), part*query.Value(f.Share.Low, 0),
				part*query.Value(f.Share.High, 0))
		}
	}
}

// within reports whether the path context lies strictly below the path above. Nothing lies below an empty path.
func within(context, above []string) bool {
	return len(context) > len(above) && len(above) > 0 && slices.Equal(context[:len(above)], above)
}

// locatedPlace returns the stored evidence for the located place of the first problem or incident in `of` that has such
// evidence, or nil if there is no evidence. If service isn't empty, it skips places that neither run in service nor
// call it.
func (a *Cases) locatedPlace(
	enabled map[string]bool, service string, of ...search.Subject,
) (*contract.LocatedPlace, error) {
	for _, id := range of {
		stored, err := a.store.Places.Get(id)
		if err != nil {
			return nil, err
		}
		if stored == nil {
			continue
		}
		x := &storedPlace{}
		if err := json.Unmarshal(stored.Evidence, x); err != nil {
			return nil, fmt.Errorf("read the evidence of the place of %s: %w", id, err)
		}
		if service != "" && service != x.Service && service != x.Callee {
			continue
		}
		x.Enabled = enabled[x.Tracepoint]
		x.Traces, err = a.tracesAt(id, x)
		return &x.LocatedPlace, err
	}
	return nil, nil
}

// tracesAt returns up to locatedTraces stored traces of a problem or an incident that have a span at the place x,
// longest span first.
func (a *Cases) tracesAt(of search.Subject, x *storedPlace) ([]contract.LocatedTrace, error) {
	found := []contract.LocatedTrace{}
	err := a.store.Kept.EachFor(of, func(_ analysis.Hash, e *store.Exemplars) error {
		for _, kept := range slices.Concat(e.Located, e.Slow) {
			t, err := a.traceAt(&kept, x)
			if err != nil {
				return err
			}
			if t != nil &&
				!slices.ContainsFunc(found, func(o contract.LocatedTrace) bool { return o.Trace == t.Trace }) {
				found = append(found, *t)
			}
		}
		return nil
	})
	sorting.SliceStable(found, func(a, b contract.LocatedTrace) int { return cmp.Compare(b.SpanNs, a.SpanNs) })
	return found[:min(len(found), locatedTraces)], err
}

// traceAt returns an exemplar with its longest span at the place x, or nil if it has no such span or isn't stored.
func (a *Cases) traceAt(e *store.Exemplar, x *storedPlace) (*contract.LocatedTrace, error) {
	data, err := a.store.Traces.Get(e.Trace)
	if err != nil || data == nil {
		return nil, err
	}
	v := sent.Read(e.Trace, e.Start, data)
	var t *contract.LocatedTrace
	for i := range v.All {
		if s := &v.All[i]; x.has(s) && (t == nil || s.DurationNs > t.SpanNs) {
			t = &contract.LocatedTrace{
				Trace:      e.Trace.String(),
				Span:       s.ID,
				Start:      render.At(e.Start),
				DurationNs: max(e.Duration, s.DurationNs),
				SpanNs:     s.DurationNs,
			}
		}
	}
	return t, nil
}

// has reports whether s is a span at the place x.
func (x *storedPlace) has(s *contract.Span) bool {
	return s.Service == x.Service && s.Tracepoint == x.Tracepoint && (s.Name == x.SpanName || x.Tracepoint != "")
}

// enabled returns the names of the tracepoints in the plan.
func (r renderer) enabled() map[string]bool {
	all := make(map[string]bool)
	for i := range r.Core.Searches.Plan().Leases {
		all[r.Tracepoint(r.Core.Searches.Plan().Leases[i].Tracepoint)] = true
	}
	return all
}
