package requests

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sibyl-trace/sibyl/analysis"
	"github.com/sibyl-trace/sibyl/analysis/critpath"
	"github.com/sibyl-trace/sibyl/analysis/observation"
	"github.com/sibyl-trace/sibyl/analysis/stats"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/api/internal/query"
	"github.com/sibyl-trace/sibyl/api/internal/render"
	"github.com/sibyl-trace/sibyl/api/internal/sent"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/ingest"
	"github.com/sibyl-trace/sibyl/ingest/otlp"
	"github.com/sibyl-trace/sibyl/internal/refusal"
	"github.com/sibyl-trace/sibyl/internal/sorting"
	"github.com/sibyl-trace/sibyl/search"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// ListExemplars implements contract.StrictServerInterface.
func (a *Requests) ListExemplars(
	_ context.Context, r contract.ListExemplarsRequestObject,
) (contract.ListExemplarsResponseObject, error) {
	group, err := analysis.ParseHash(r.Params.Group)
	if err != nil {
		return nil, query.NotFound("group")
	}
	read := a.store.Exemplars.Of
	if r.Params.Problem != nil {
		problem, err := analysis.ParseHash(*r.Params.Problem)
		if err != nil {
			return nil, query.NotFound("problem")
		}
		read = func(group analysis.Hash) (*store.Exemplars, error) {
			return a.store.Kept.Of(search.OfProblem(problem), group)
		}
	}
	exemplars, err := read(group)
	if err != nil {
		return nil, err
	}
	list := contract.ListExemplars200JSONResponse{Items: []contract.Exemplar{}}
	for _, stratum := range []struct {
		name contract.ExemplarStratum
		all  []store.Exemplar
	}{
		{contract.ExemplarStratumSlow, exemplars.Slow},
		{contract.ExemplarStratumTypical, exemplars.Typical},
		{contract.ExemplarStratumFast, exemplars.Fast},
		{contract.ExemplarStratumFailed, exemplars.Failed},
	} {
		if r.Params.Stratum != nil && string(*r.Params.Stratum) != string(stratum.name) {
			continue
		}
		for i := range stratum.all {
			x := &stratum.all[i]
			list.Items = append(list.Items, contract.Exemplar{
				Trace:      x.Trace.String(),
				Group:      group.String(),
				Stratum:    stratum.name,
				Start:      render.At(x.Start),
				DurationNs: x.Duration,
			})
		}
	}
	return list, nil
}

// GetTrace implements contract.StrictServerInterface.
func (a *Requests) GetTrace(
	ctx context.Context, r contract.GetTraceRequestObject,
) (contract.GetTraceResponseObject, error) {
	id, err := trace.ParseID(r.Trace)
	if err != nil {
		return nil, query.NotFound("trace")
	}
	data, err := a.store.Traces.Get(id)
	switch {
	case err != nil:
		return nil, err
	case data == nil:
		return nil, refusal.New(refusal.NotFound, "this trace is not stored",
			"Sibyl stores samples of each group, and lists them at /traces; a tracing backend may have the others")
	}
	var options critpath.Options
	if err := a.reader.Ask(ctx, func(c *engine.View) { options = c.Options.Path }); err != nil {
		return nil, err
	}
	d, steps, err := readTrace(id, data, options, a.options.Failing)
	if err != nil {
		return nil, fmt.Errorf("read stored trace %s: %w", id, err)
	}
	if err := a.rank(ctx, d, steps); err != nil {
		return nil, err
	}
	if d.Comparison, err = a.compareTrace(ctx, id, data, options); err != nil {
		return nil, err
	}
	d.Links = append(d.Links, render.Links(directory.LinksTo(a.options.Directory().Traces, linkTarget(id, d)))...)
	return contract.GetTrace200JSONResponse(*d), nil
}

// minRanked is the minimum number of spans of an operation for showing percentiles.
const minRanked = 20

// rank sets the percentile of each span of d among the spans of its step. steps holds the steps by span ID.
func (a *Requests) rank(ctx context.Context, d *contract.Trace, steps map[string]trace.Op) error {
	ranks := make(map[trace.Op]*stats.Ranks)
	for i := range d.Spans {
		ranks[steps[d.Spans[i].ID]] = nil
	}
	err := a.reader.Ask(ctx, func(c *engine.View) {
		if since := c.Spans.Since(); since > 0 {
			d.RankedSince = new(render.At(since))
		}
		for step := range ranks {
			ranks[step] = new(rankedSpans(c.Spans, step))
		}
	})
	if err != nil {
		return err
	}
	for i := range d.Spans {
		s := &d.Spans[i]
		r := ranks[steps[s.ID]]
		if s.Among = int64(r.Count()); s.Among >= minRanked {
			s.Percentile = new(100 * r.Below(min(max(0, s.DurationNs), stats.MaxNanos-1)))
			s.UsualNs = new(r.Quantile(0.5))
		}
	}
	return nil
}

// rankedSpans returns the durations that a span of the operation op is ranked among: the durations of usual spans and,
// if there are too few, also of the latest ones.
func rankedSpans(spans *observation.RecentSpans, op trace.Op) stats.Ranks {
	usual := spans.Usual(op)
	if usual.Count() < minRanked {
		latest := spans.Latest(op, 0)
		usual.Merge(&latest)
	}
	return usual
}

// linkTarget returns the values for links to a trace: its ID and time span, and the service and operation of its first
// root.
func linkTarget(id trace.ID, d *contract.Trace) *directory.Request {
	start := trace.Nanos(d.Start.UnixNano())
	r := &directory.Request{Trace: id, Start: start, End: start.Add(time.Duration(d.DurationNs))}
	if len(d.Roots) == 0 {
		return r
	}
	if i := slices.IndexFunc(d.Spans, func(s contract.Span) bool { return s.ID == d.Roots[0].Span }); i >= 0 {
		r.Service, r.Operation = d.Spans[i].Service, d.Spans[i].Name
	}
	return r
}

// shownSpans limits the number of spans of a trace in a response.
const shownSpans = 100_000

// readTrace decodes a trace from an OTLP request. It returns the trace with its critical path but without percentiles,
// and the steps of its spans by ID.
func readTrace(
	id trace.ID, data []byte, options critpath.Options, failing ingest.FailureRules,
) (*contract.Trace, map[string]trace.Op, error) {
	t, err := otlp.DecodeTrace(id, data, failing)
	if err != nil {
		return nil, nil, err
	}
	path := critpath.NewExtractor(options).Extract(t)
	d := &contract.Trace{
		ID:    id.String(),
		Flags: path.Flags.Names(),
		Spans: []contract.Span{},
		Roots: []contract.Root{},
		Links: []contract.Link{},
	}
	if d.Flags == nil {
		d.Flags = []string{}
	}
	own := make(map[string]int64) // exclusive ns by span ID
	start := firstStart(t)
	for i := range path.Roots {
		root := &path.Roots[i]
		d.Roots = append(d.Roots, contract.Root{
			Span: path.Nodes[root.Node].ID.String(), DurationNs: path.Duration(root).Nanoseconds(),
			Sections: sections(path, start, root.Sections), Refined: sections(path, start, root.Refined),
		})
		walk := root.Sections
		if len(root.Refined) > 0 {
			walk = root.Refined
		}
		for _, s := range walk {
			own[path.Nodes[s.Node].ID.String()] += int64(s.End - s.Start)
		}
	}
	v := sent.Read(id, start, data)
	spans, steps := matchSpans(path, t, v.All)
	for i := range spans {
		spans[i].ExclusiveNs = own[spans[i].ID]
		d.DurationNs = max(d.DurationNs, spans[i].StartNs+spans[i].DurationNs)
	}
	sorting.SliceStable(spans, func(x, y contract.Span) int {
		return cmp.Or(cmp.Compare(x.StartNs, y.StartNs), cmp.Compare(y.DurationNs, x.DurationNs))
	})
	d.DroppedSpans = max(0, len(spans)-shownSpans)
	d.Spans = append(d.Spans, spans[:len(spans)-d.DroppedSpans]...)
	d.Start = render.At(start)
	return d, steps, nil
}

// matchSpans matches sent, the spans as they were sent, with the nodes of the path. It returns the spans with the IDs
// and parents of their nodes, and the steps of the spans by ID.
//
// If several spans have the same ID, it returns the one that the path keeps. If a client and a server share an ID, it
// returns both: on the path, the server has a new ID, and lies between the client and the children of the shared ID. A
// span without a node is returned as sent if no other span has its ID.
func matchSpans(path *critpath.Path, t *trace.Trace, sent []contract.Span) ([]contract.Span, map[string]trace.Op) {
	type key struct{ id, kind string } // as sent; the kind distinguishes the two spans of a shared ID
	nodes := make(map[key]*critpath.Node, len(path.Nodes))
	taken := make(map[string]bool, len(path.Nodes)) // IDs as sent
	for i := range path.Nodes {
		n := &path.Nodes[i]
		s := &t.Spans[n.Span]
		nodes[key{s.ID.String(), s.Kind.String()}] = n
		taken[s.ID.String()] = true
	}
	start := firstStart(t)
	spans, steps := make([]contract.Span, 0, len(sent)), make(map[string]trace.Op, len(sent))
	for _, s := range sent {
		n := nodes[key{s.ID, s.Kind}]
		switch {
		case n == nil && taken[s.ID]:
			continue
		case n == nil:
			taken[s.ID] = true
		default:
			as := &t.Spans[n.Span]
			if _, again := steps[n.ID.String()]; again || as.Start.Sub(start).Nanoseconds() != s.StartNs ||
				as.Duration().Nanoseconds() != s.DurationNs {
				continue
			}
			steps[n.ID.String()] = n.Step
			s.Error = as.Flags&trace.Error != 0 // the status alone isn't enough
			if n.Parent >= 0 {
				s.Parent = parentOf(path, t, n, s.Parent)
			}
			s.ID = n.ID.String()
		}
		spans = append(spans, s)
	}
	return spans, steps
}

// parentOf returns the parent ID of a node that is not a root. It is the parent ID as sent, unless that ID or the
// node's own ID is shared.
func parentOf(path *critpath.Path, t *trace.Trace, n *critpath.Node, sent string) string {
	up := &path.Nodes[n.Parent]
	if shared := up.ID != t.Spans[up.Span].ID || t.Spans[up.Span].ID == t.Spans[n.Span].ID; shared {
		return up.ID.String()
	}
	return sent
}

func firstStart(t *trace.Trace) trace.Nanos {
	first := trace.MaxNanos
	for i := range t.Spans {
		first = min(first, t.Spans[i].Start)
	}
	return first
}

func sections(p *critpath.Path, origin trace.Nanos, list []critpath.Section) []contract.Section {
	all := make([]contract.Section, 0, len(list))
	for _, s := range list {
		all = append(all, contract.Section{
			Span: p.Nodes[s.Node].ID.String(), StartNs: int64(s.Start - origin), EndNs: int64(s.End - origin),
		})
	}
	return all
}
